//! The limits of one request.

use gr00t::client::PyObject;
use gr00t::processor::Modalities;

/// Maximum number of values in a state vector; those of released checkpoints have less than a
/// hundred.
const LONGEST_STATE: usize = 4096;

/// Maximum size of an error text in bytes; some of them quote what a client sent.
const LONGEST_ERROR: usize = 4096;

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Observations in a request.
    pub max_rows: usize,
    /// Maximum size of an instruction in bytes (UTF-8).
    pub max_prompt_bytes: usize,
    /// Maximum height and width of an image in pixels.
    pub max_picture_edge: usize,
}

/// The limit that a request exceeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    /// Too many observations.
    #[error("the request has {found} rows, expected at most {most} (--max-rows)")]
    Rows {
        /// Number of observations.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// The instruction is too long.
    #[error("an instruction has {found} bytes, expected at most {most} (--max-prompt)")]
    Prompt {
        /// Its size in bytes.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// The image is too large. A long and narrow one counts as the square that it is padded to.
    #[error(
        "a picture of `{view}` has {height} x {width} pixels, expected at most {most} along an \
         edge (--max-picture)"
    )]
    Picture {
        /// Name of the camera view.
        view: String,
        /// Its height in pixels.
        height: usize,
        /// Its width in pixels.
        width: usize,
        /// The limit of both.
        most: usize,
    },
    /// The state vector is too long.
    #[error("state `{key}` has {found} values, expected at most {LONGEST_STATE}")]
    State {
        /// Its key.
        key: String,
        /// Its number of values.
        found: usize,
    },
}

impl RequestLimits {
    /// Checks an observation that has been validated; returns its number of rows.
    ///
    /// # Errors
    /// Returns [`LimitExceeded`] for the first limit that it exceeds.
    pub fn check(
        &self,
        observation: &PyObject,
        modalities: &Modalities,
    ) -> Result<usize, LimitExceeded> {
        let member = |part: &str, key: &str| observation.get(part).and_then(|part| part.get(key));
        let rows = match member("language", modalities.language_key()) {
            Some(PyObject::List(rows)) => &rows[..],
            _ => &[],
        };
        if rows.len() > self.max_rows {
            return Err(LimitExceeded::Rows {
                found: rows.len(),
                most: self.max_rows,
            });
        }
        let longest = rows.iter().map(text_bytes).max().unwrap_or(0);
        if longest > self.max_prompt_bytes {
            return Err(LimitExceeded::Prompt {
                found: longest,
                most: self.max_prompt_bytes,
            });
        }
        for view in &modalities.video.keys {
            if let Some(PyObject::Array(array)) = member("video", view)
                && let [.., height, width, _] = *array.shape()
                && height.max(width) > self.max_picture_edge
            {
                return Err(LimitExceeded::Picture {
                    view: view.clone(),
                    height,
                    width,
                    most: self.max_picture_edge,
                });
            }
        }
        for key in &modalities.state.keys {
            if let Some(PyObject::Array(array)) = member("state", key)
                && let Some(&found) = array.shape().last()
                && found > LONGEST_STATE
            {
                return Err(LimitExceeded::State {
                    key: key.clone(),
                    found,
                });
            }
        }
        Ok(rows.len())
    }
}

fn text_bytes(row: &PyObject) -> usize {
    match row {
        PyObject::List(texts) => texts.iter().map(text_bytes).max().unwrap_or(0),
        PyObject::Text(text) => text.len(),
        _ => 0,
    }
}

/// Shortens a long error text to its beginning.
pub fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_ERROR {
        text.truncate(text.floor_char_boundary(LONGEST_ERROR));
        text.push('…');
    }
    text
}
