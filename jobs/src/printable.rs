//! Makes text from outside safe to print, such as error messages of ranks, names in files, and
//! values in the store.
//!
//! A terminal interprets what it receives: escape sequences move the cursor, set the title and, in
//! some terminals, paste text into the shell. Characters that change the text direction make a line
//! read differently from its content. Both are shown as text in Rust's notation: `\u{1b}[2J`. Other
//! text stays unchanged, so most calls copy nothing. The escaping cannot be reversed, because a
//! backslash in the text is not escaped: the result is for readers, not for programs.

use std::borrow::Cow;

/// Escapes everything that a terminal would interpret, except line breaks and tabs.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_escaped = |char| is_obeyed(char) && !matches!(char, '\n' | '\t');
    escape(text, is_escaped, in_rust)
}

/// Escapes the text for use within a line: line breaks and tabs as well, so that a name cannot
/// imitate a separate line of output.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    escape(text, is_obeyed, in_rust)
}

/// Escapes what a terminal would interpret in JSON, as `\u009b`. The JSON keeps its meaning:
/// outside strings, such characters can only be line breaks or tabs between tokens, and those stay
/// unchanged.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |char| is_obeyed(char) && !matches!(char, '\n' | '\t' | '\r');
    escape(json, is_escaped, |char| {
        let mut units = [0; 2];
        let units = char.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    })
}

/// Returns a character in Rust's notation.
fn in_rust(char: char) -> String {
    char.escape_default().to_string()
}

fn escape(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    shown: fn(char) -> String,
) -> Cow<'_, str> {
    let Some(first) = text.find(&is_escaped) else {
        return Cow::Borrowed(text);
    };
    let mut safe = String::with_capacity(text.len() + 16);
    safe.push_str(&text[..first]);
    for char in text[first..].chars() {
        if is_escaped(char) {
            safe.push_str(&shown(char));
        } else {
            safe.push(char);
        }
    }
    Cow::Owned(safe)
}

/// Returns whether a terminal does anything other than draw the character in its place.
fn is_obeyed(char: char) -> bool {
    match char {
        // C0, DEL and C1: ECMA-48, section 5.
        char if char.is_control() => true,
        // Embeddings, overrides, isolates and directional marks: Unicode Standard Annex 9, section
        // 2.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        // Line and paragraph separators, which break lines in some viewers.
        '\u{2028}' | '\u{2029}' => true,
        // Invisible characters: byte order mark, interlinear annotations, tags.
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    }
}

/// Quotes a word of a command line that can be pasted if a POSIX shell would not read it as it is.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_text_is_not_copied() {
        for text in [
            "",
            "rank 1 exited",
            "a\n\tb",
            "Grüße, 世界, \u{1f916}, שלום",
            r"C:\path",
        ] {
            assert!(
                matches!(printable(text), Cow::Borrowed(same) if same == text),
                "{text}"
            );
        }
    }

    #[test]
    fn what_a_terminal_obeys_is_shown_as_text_and_line_breaks_only_within_a_line() {
        for (text, shown) in [
            ("\u{1b}]0;title\u{7}", r"\u{1b}]0;title\u{7}"),
            ("50%\rdone", r"50%\rdone"),
            ("a\u{8}b\0", r"a\u{8}b\u{0}"),
            ("\u{7f}", r"\u{7f}"),
            ("\u{9b}2J", r"\u{9b}2J"),
            ("a\u{202e}gpj.exe\u{2066}", r"a\u{202e}gpj.exe\u{2066}"),
        ] {
            assert_eq!((&*printable(text), &*printable_line(text)), (shown, shown));
        }
        let breaks = "x\nrrun: all is well\t";
        assert_eq!(printable_line(breaks), r"x\nrrun: all is well\t");
        assert_eq!(printable(breaks), breaks);
    }

    #[test]
    fn json_stays_the_same_json() {
        let value =
            serde_json::json!({ "a\u{9b}": ["\u{1b}[2J", "\u{202e}", "\u{7f}\n", "\u{e0001}"] });
        for json in [
            value.to_string(),
            serde_json::to_string_pretty(&value).expect("JSON"),
        ] {
            let safe = printable_json(&json);
            assert!(
                !safe.contains(|char| is_obeyed(char) && char != '\n'),
                "{safe}"
            );
            let found = serde_json::from_str::<serde_json::Value>(&safe).expect("JSON");
            assert_eq!(found, value);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_obeyed_and_nothing_else_is_changed(text: String) {
            let (safe, line) = (printable(&text), printable_line(&text));
            prop_assert!(!safe.contains(|char| is_obeyed(char) && char != '\n' && char != '\t'));
            prop_assert!(!line.contains(is_obeyed));
            prop_assert_eq!(printable(&safe), &*safe);
            prop_assert!(text.contains(is_obeyed) || *line == *text);
        }
    }
}
