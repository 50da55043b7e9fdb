//! Numbers of things in texts: `1 job`, `2 jobs`, `a, b and 4 more`.

use std::fmt::Display;

/// Formats a number and a noun whose plural ends in `s`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Formats how often something happened: `once`, `twice`, `3 times`.
pub fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// Formats the first names, and counts the rest: `a, b and 4 more`.
pub fn listed(names: &[impl AsRef<str>], most: usize) -> String {
    let first: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(most) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        let texts = [0, 1, 2].map(|count| counted(count, "job"));
        assert_eq!(texts, ["0 jobs", "1 job", "2 jobs"]);
        assert_eq!([1, 2, 3].map(times), ["once", "twice", "3 times"]);
    }

    #[test]
    fn many_names_are_counted() {
        let names = ["a", "b", "c"];
        let texts = [0, 2, 3].map(|count| listed(&names[..count], 2));
        assert_eq!(texts, ["", "a, b", "a, b and 1 more"]);
    }
}
