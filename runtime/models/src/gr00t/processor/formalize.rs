//! Removes upper case and punctuation from instructions.

use std::sync::LazyLock;

use regex::Regex;

/// Matches characters that are neither word characters (`str.isalnum` or underscore) nor white
/// space (`str.isspace`) in Python's `re`. Python's white space is that of Unicode plus the four
/// separators from U+001C.
static PUNCTUATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[^\p{L}\p{N}_\s\x1c-\x1f]").expect("the pattern is a constant that the tests use")
});

/// Returns the text in lower case, without the characters that are neither word characters nor
/// white space.
pub(super) fn formalize(text: &str) -> String {
    PUNCTUATION
        .replace_all(&text.to_lowercase(), "")
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_spaces_stay() {
        assert_eq!(
            formalize("Move  the 2nd café-mug!\n"),
            "move  the 2nd cafémug\n"
        );
        assert_eq!(formalize("½ snake_case ² 中文"), "½ snake_case ² 中文");
    }

    #[test]
    fn a_mark_that_lower_case_brings_is_no_word_character() {
        assert_eq!(formalize("İ ΑΣ <|image_pad|>"), "i ας image_pad");
    }
}
