//! Numbers and quotes as Python reads and writes them, because torchrun parses its options with
//! Python.

/// Parses a number as Python's `int(text)`. Returns `None` if that raises or if the number exceeds
/// 64 bits.
///
/// Surrounding blanks, a sign, and single underscores between digits are accepted.
pub fn int(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let plain = digits_without_underscores(digits)?;
    let sign = if text.starts_with('-') { "-" } else { "" };
    format!("{sign}{plain}").parse().ok()
}

/// Parses a number as Python's `float(text)`. Returns `None` if that raises.
pub fn float(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_between_digits = |at: usize| {
        let digit = |index: Option<usize>| {
            index
                .and_then(|i| text.as_bytes().get(i))
                .is_some_and(u8::is_ascii_digit)
        };
        digit(at.checked_sub(1)) && digit(at.checked_add(1))
    };
    if !text.match_indices('_').all(|(at, _)| is_between_digits(at)) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Quotes a text without control characters as Python's `repr(text)`: in single quotes, or in
/// double ones if it contains single ones.
pub fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let escaped = text.replace('\\', "\\\\");
    let escaped = if quote == '\'' {
        escaped.replace('\'', "\\'")
    } else {
        escaped
    };
    format!("{quote}{escaped}{quote}")
}

fn digits_without_underscores(digits: &str) -> Option<String> {
    let groups: Vec<&str> = digits.split('_').collect();
    let is_number =
        |group: &&str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    groups.iter().all(is_number).then(|| groups.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_int_may_have_blanks_a_sign_and_underscores() {
        assert_eq!(
            [" 4 ", "+4", "1_0", "-3", "007"].map(int),
            [Some(4), Some(4), Some(10), Some(-3), Some(7)]
        );
    }

    #[test]
    fn what_python_refuses_is_no_int() {
        assert_eq!(
            [
                "",
                " ",
                "a",
                "1.0",
                "_1",
                "1_",
                "1__0",
                "+-1",
                "0x1",
                "99999999999999999999"
            ]
            .map(int),
            [None; 10]
        );
    }

    #[test]
    fn a_float_is_decimal_or_scientific() {
        assert_eq!(
            ["0.2", " 1e3 ", "5", "-.5", "1_0.5"].map(float),
            [Some(0.2), Some(1e3), Some(5.0), Some(-0.5), Some(10.5)]
        );
        assert_eq!(["", "x", "1_.0", "0x1", "1,5"].map(float), [None; 5]);
    }

    #[test]
    fn text_is_quoted_as_python_does() {
        assert_eq!(
            ["a", "it's", r#"a'b"c"#, r"a\b"].map(repr),
            ["'a'", "\"it's\"", r#"'a\'b"c'"#, r"'a\\b'"]
        );
    }
}
