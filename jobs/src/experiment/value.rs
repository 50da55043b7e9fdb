//! Values of the command line in Hydra's grammar, which is not that of YAML.
//!
//! ```text
//! 7  -1.5  true  null       numbers, bools and null; `yes` and `on` are texts
//! Pick it up                a text, up to the end, or up to `,` `]` `}` inside brackets
//! 'say \'hi\''  "a, b"      a quoted text
//! [a,b]  {k:v,l:[1]}        a list, a mapping
//! (nothing)                 the empty text
//! ```
//! Hydra's OverrideLexer.g4 and OverrideParser.g4, 1.3. A comma outside of brackets, with which Hydra
//! sweeps over several values, is part of the text.

use serde_json::{Map, Number, Value};

use crate::refusal::Refusal;

/// Maximum depth of brackets; the deepest value of an Experiment has six.
const MAX_DEPTH: usize = 32;

/// Reads a value.
///
/// # Errors
/// Refuses a quoted text, list or mapping that is not complete.
pub(super) fn read(text: &str) -> Result<Value, Refusal> {
    let text = text.trim();
    if !text.starts_with(['[', '{', '\'', '"']) {
        return Ok(primitive(&unescaped(text)));
    }
    let mut reader = Reader { rest: text };
    let value = reader.value(0)?;
    match reader.rest.is_empty() {
        true => Ok(value),
        false => Err(reader.expected("the end")),
    }
}

/// What is left to read.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, Refusal> {
        if depth > MAX_DEPTH {
            return Err(Refusal::new(format_args!(
                "brackets are more than {MAX_DEPTH} deep"
            )));
        }
        self.skip_space();
        let value = match self.rest.chars().next() {
            Some('[') => self.list(depth)?,
            Some('{') => self.mapping(depth)?,
            Some(mark @ ('\'' | '"')) => Value::String(self.quoted(mark)?),
            _ => primitive(&unescaped(self.unquoted(&[',', ']', '}']))),
        };
        self.skip_space();
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Refusal> {
        self.take('[');
        let mut items = Vec::new();
        self.skip_space();
        while !self.take(']') {
            items.push(self.value(depth + 1)?);
            self.end_item(']')?;
        }
        Ok(Value::Array(items))
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, Refusal> {
        self.take('{');
        let mut entries = Map::new();
        self.skip_space();
        while !self.take('}') {
            let key = self.key()?;
            let value = self.value(depth + 1)?;
            entries.insert(key, value);
            self.end_item('}')?;
        }
        Ok(Value::Object(entries))
    }

    /// Reads a name and the colon behind it.
    fn key(&mut self) -> Result<String, Refusal> {
        self.skip_space();
        let key = match self.rest.chars().next() {
            Some(mark @ ('\'' | '"')) => self.quoted(mark)?,
            _ => unescaped(self.unquoted(&[':', ',', ']', '}', '[', '{'])),
        };
        self.skip_space();
        match self.take(':') {
            true if !key.is_empty() => Ok(key),
            true => Err(self.expected("a name before `:`")),
            false => Err(self.expected("`:`")),
        }
    }

    /// Reads the comma behind an item; the closing bracket stays.
    fn end_item(&mut self, closing: char) -> Result<(), Refusal> {
        if self.take(',') {
            self.skip_space();
            return Ok(());
        }
        match self.rest.chars().next() {
            Some(found) if found == closing => Ok(()),
            Some(_) => Err(self.expected("`,` or a closing bracket")),
            None => Err(open(closing)),
        }
    }

    /// Reads a quoted text. A backslash only counts before the quotation mark, and before those
    /// backslashes that stand there.
    fn quoted(&mut self, mark: char) -> Result<String, Refusal> {
        self.take(mark);
        let (mut text, mut slashes) = (String::new(), 0);
        for (at, letter) in self.rest.char_indices() {
            if letter == '\\' {
                slashes += 1;
                continue;
            }
            let is_mark = letter == mark;
            let kept = if is_mark { slashes / 2 } else { slashes };
            text.extend(std::iter::repeat_n('\\', kept));
            if is_mark && slashes % 2 == 0 {
                self.rest = &self.rest[at + mark.len_utf8()..];
                return Ok(text);
            }
            slashes = 0;
            text.push(letter);
        }
        Err(open(mark))
    }

    /// Returns the text up to one of `ends`, which may stand behind a backslash or in `${…}`.
    fn unquoted(&mut self, ends: &[char]) -> &str {
        let (mut before, mut in_reference) = (' ', false);
        let mut end = self.rest.len();
        for (at, letter) in self.rest.char_indices() {
            let is_escaped = before == '\\';
            in_reference = match (before, letter) {
                ('$', '{') => true,
                (_, '}') if in_reference => {
                    before = letter;
                    in_reference = false;
                    continue;
                }
                _ => in_reference,
            };
            if ends.contains(&letter) && !is_escaped && !in_reference {
                end = at;
                break;
            }
            // Of two backslashes, the second one has no meaning of its own.
            before = if is_escaped { ' ' } else { letter };
        }
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text.trim()
    }

    fn take(&mut self, letter: char) -> bool {
        let rest = self.rest.strip_prefix(letter);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn expected(&self, wanted: &'static str) -> Refusal {
        let found = match self.rest.chars().next() {
            Some(letter) => format!("`{}`", letter.escape_debug()),
            None => "the end".to_owned(),
        };
        Refusal::new(format_args!("found {found}, expected {wanted}"))
    }
}

fn open(mark: char) -> Refusal {
    Refusal::new(format_args!("`{mark}` is missing at the end"))
}

/// Replaces backslashes before characters that have a meaning by these characters.
fn unescaped(text: &str) -> String {
    let mut unescaped = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.next_if(|next| letter == '\\' && "\\()[]{}:=, \t".contains(*next));
        unescaped.push(next.unwrap_or(letter));
    }
    unescaped
}

/// Returns the value of a text without quotation marks.
fn primitive(text: &str) -> Value {
    match text.to_ascii_lowercase().as_str() {
        "null" => return Value::Null,
        "true" => return true.into(),
        "false" => return false.into(),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.ends_with(|last: char| last.is_ascii_digit() || last == '.')
        && digits.contains(|letter: char| letter.is_ascii_digit());
    let has_more_zeros = digits.len() > 1 && digits.starts_with('0') && !digits.contains('.');
    if !is_number || has_more_zeros || digits.contains("__") {
        return text.into();
    }
    number(&text.replace('_', "")).map_or_else(|| text.into(), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let whole = text.strip_prefix('+').unwrap_or(text);
    let signed = || whole.parse::<i64>().ok().map(Number::from);
    let float = || whole.parse::<f64>().ok().and_then(Number::from_f64);
    let unsigned = whole.parse::<u64>().ok().map(Number::from);
    unsigned.or_else(signed).or_else(float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn values_have_the_types_of_hydra() {
        for (text, value) in [
            ("7", json!(7)),
            ("-1_000", json!(-1000)),
            ("1.5e-3", json!(1.5e-3)),
            (".5", json!(0.5)),
            ("True", json!(true)),
            ("NULL", json!(null)),
            ("", json!("")),
            ("yes", json!("yes")),
            ("off", json!("off")),
            ("010", json!("010")),
            ("1.2.3", json!("1.2.3")),
            ("inf", json!("inf")),
            (
                "Pick it up, then go: there",
                json!("Pick it up, then go: there"),
            ),
            ("/a/b:c=d", json!("/a/b:c=d")),
            ("a\\,b", json!("a,b")),
            ("'say \\'hi\\''", json!("say 'hi'")),
            ("\"a, b\"", json!("a, b")),
            ("'c:\\d\\\\'", json!("c:\\d\\")),
            ("'7'", json!("7")),
        ] {
            assert_eq!(read(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn lists_and_mappings_need_no_space() {
        for (text, value) in [
            ("{num_episodes:7}", json!({"num_episodes": 7})),
            ("[]", json!([])),
            ("{}", json!({})),
            ("[a, 'b,c', [1, -2.5]]", json!(["a", "b,c", [1, -2.5]])),
            (
                "{hdr_image:{enabled:true,hdr_names:[a,b]}, x: }",
                json!({"hdr_image": {"enabled": true, "hdr_names": ["a", "b"]}, "x": ""}),
            ),
            (
                "{'a b': 1, light.on: true}",
                json!({"a b": 1, "light.on": true}),
            ),
            ("[${shared.a},b]", json!(["${shared.a}", "b"])),
            ("[gpu:0\\], b]", json!(["gpu:0]", "b"])),
        ] {
            assert_eq!(read(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_not_complete_is_refused() {
        let refusal = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(refusal("[1,2"), "`]` is missing at the end");
        assert_eq!(refusal("'a"), "`'` is missing at the end");
        assert_eq!(refusal("{a}"), "found `}`, expected `:`");
        assert_eq!(refusal("{:1}"), "found `1`, expected a name before `:`");
        assert_eq!(refusal("[1] 2"), "found `2`, expected the end");
        let shown = refusal("[1}");
        assert_eq!(shown, "found `}`, expected `,` or a closing bracket");
        let deep = "[".repeat(100_000);
        assert_eq!(refusal(&deep), "brackets are more than 32 deep");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,30}", nested in "[\\[\\]{}:,'\"\\\\$a]{0,30}") {
            let _ = (read(&text), read(&nested));
        }
    }
}
