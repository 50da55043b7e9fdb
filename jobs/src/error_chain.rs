//! Prints an error together with its causes.

use std::error::Error;

/// Formats an error and its sources as `what: why: why`.
pub fn chain(err: &dyn Error) -> String {
    let mut text = err.to_string();
    let mut source = err.source();
    while let Some(err) = source {
        text = format!("{text}: {err}");
        source = err.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the plan")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn an_error_is_followed_by_its_sources() {
        let inner = "x".parse::<u8>().unwrap_err();
        let shown = chain(&Outer(inner));
        assert_eq!(shown, "cannot read the plan: invalid digit found in string");
    }
}
