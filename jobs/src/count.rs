//! Numbers of things in texts: `1 job`, `2 jobs`.

use std::fmt::Display;

/// Formats a number and a noun whose plural ends in `s`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        let texts = [0, 1, 2].map(|count| counted(count, "job"));
        assert_eq!(texts, ["0 jobs", "1 job", "2 jobs"]);
    }
}
