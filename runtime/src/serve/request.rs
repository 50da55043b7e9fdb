//! The limits of one request, and the reason why a request is answered with an error.

use std::fmt::Display;

use crate::protocols::gr00t::validation::Inputs;
use crate::serve::stats::Counted;

/// Maximum number of values in a state vector; those of released checkpoints have less than a
/// hundred.
const LONGEST_STATE: usize = 4096;

/// Maximum size of an instruction in bytes (UTF-8).
const LONGEST_PROMPT: usize = 2048;

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Observations in a request.
    pub max_rows: usize,
    /// Maximum height and width of an image in pixels.
    pub max_picture_edge: usize,
}

impl RequestLimits {
    /// Checks a valid observation.
    ///
    /// # Errors
    /// Returns [`RequestError`] for the first limit that it exceeds.
    pub fn check(&self, inputs: &Inputs) -> Result<(), RequestError> {
        let limit = |text| Err(RequestError::rejected(Counted::Limit, text));
        let (found, most) = (inputs.language.len(), self.max_rows);
        if found > most {
            return limit(format!(
                "the request has {found} rows, expected at most {most} (--max-rows)"
            ));
        }
        let texts = inputs.language.iter().map(|text| text.len());
        let found = texts.max().unwrap_or(0);
        if found > LONGEST_PROMPT {
            return limit(format!(
                "an instruction has {found} bytes, expected at most {LONGEST_PROMPT}"
            ));
        }
        let most = self.max_picture_edge;
        for (view, array) in &inputs.video {
            // A long and narrow picture counts as the square that it is padded to.
            if let [.., height, width, _] = *array.shape()
                && height.max(width) > most
            {
                return limit(format!(
                    "a picture of `{view}` has {height} x {width} pixels, expected at most {most} \
                     along an edge (--max-picture)"
                ));
            }
        }
        for (key, array) in &inputs.state {
            if let Some(found) = array.shape().last()
                && *found > LONGEST_STATE
            {
                return limit(format!(
                    "state `{key}` has {found} values, expected at most {LONGEST_STATE}"
                ));
            }
        }
        Ok(())
    }
}

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
