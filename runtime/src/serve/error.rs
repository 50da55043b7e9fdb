//! The reason why a request is answered with an error.

use std::fmt::Display;

use crate::serve::stats::Counted;

/// Maximum size of an error text in bytes; some of them quote what a client sent.
const LONGEST: usize = 4096;

/// The reason why a request is answered with an error. The text goes to the client, and is that of
/// the reference where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct RequestError {
    text: String,
    /// As what it is counted among the requests that reached no policy.
    pub counted: Option<Counted>,
}

impl RequestError {
    /// Creates an error that only errors are counted with; a long text is cut.
    pub fn new(text: impl Display) -> Self {
        let mut text = text.to_string();
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST));
            text.push('…');
        }
        Self {
            text,
            counted: None,
        }
    }

    /// Creates an error for which a request reached no policy.
    pub fn rejected(counted: Counted, text: impl Display) -> Self {
        Self {
            counted: Some(counted),
            ..Self::new(text)
        }
    }
}

impl From<String> for RequestError {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}
