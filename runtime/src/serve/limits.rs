//! What one request may ask for.

use crate::policy::gr00t::processor::{Modalities, Object};

/// Values of one state vector; those of released checkpoints have less than a hundred.
const LONGEST_STATE: usize = 4096;

/// Bytes of an error text; some of them show what a client sent.
const LONGEST_ERROR: usize = 4096;

/// What one request may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Observations in a request.
    pub max_rows: usize,
    /// Bytes of an instruction, UTF-8.
    pub max_prompt_bytes: usize,
    /// Pixels along an edge of a picture.
    pub max_picture_edge: usize,
}

/// Which limit a request exceeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    /// Too many observations.
    #[error("the request has {found} rows, at most {most} are taken (--max-rows)")]
    Rows {
        /// How many.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// A long instruction.
    #[error("an instruction has {found} bytes, at most {most} are taken (--max-prompt)")]
    Prompt {
        /// How many.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// A large picture. A long and narrow one counts as the square that it is padded to.
    #[error(
        "a picture of `{view}` has {height} x {width} pixels, at most {most} along an edge are taken (--max-picture)"
    )]
    Picture {
        /// Which view.
        view: String,
        /// Its height in pixels.
        height: usize,
        /// Its width in pixels.
        width: usize,
        /// The limit of both.
        most: usize,
    },
    /// A long state vector.
    #[error("state `{key}` has {found} values, at most {LONGEST_STATE} are taken")]
    State {
        /// Which one.
        key: String,
        /// How many.
        found: usize,
    },
}

impl RequestLimits {
    /// Looks at an observation that has been validated; gives its number of rows.
    ///
    /// # Errors
    /// [`LimitExceeded`] for the first limit that it exceeds.
    pub fn check(&self, observation: &Object, modalities: &Modalities) -> Result<usize, LimitExceeded> {
        let member = |part: &str, key: &str| observation.get(part).and_then(|part| part.get(key));
        let rows = match member("language", modalities.language_key()) {
            Some(Object::List(rows)) => &rows[..],
            _ => &[],
        };
        if rows.len() > self.max_rows {
            return Err(LimitExceeded::Rows { found: rows.len(), most: self.max_rows });
        }
        let longest = rows.iter().map(text_bytes).max().unwrap_or(0);
        if longest > self.max_prompt_bytes {
            return Err(LimitExceeded::Prompt { found: longest, most: self.max_prompt_bytes });
        }
        for view in &modalities.video.keys {
            if let Some(Object::Array(array)) = member("video", view)
                && let [.., height, width, _] = *array.shape()
                && height.max(width) > self.max_picture_edge
            {
                return Err(LimitExceeded::Picture { view: view.clone(), height, width, most: self.max_picture_edge });
            }
        }
        for key in &modalities.state.keys {
            if let Some(Object::Array(array)) = member("state", key)
                && let Some(&found) = array.shape().last()
                && found > LONGEST_STATE
            {
                return Err(LimitExceeded::State { key: key.clone(), found });
            }
        }
        Ok(rows.len())
    }
}

fn text_bytes(row: &Object) -> usize {
    match row {
        Object::List(texts) => texts.iter().map(text_bytes).max().unwrap_or(0),
        Object::Text(text) => text.len(),
        _ => 0,
    }
}

/// An error text for a client, its beginning if it is long.
pub fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_ERROR {
        text.truncate(text.floor_char_boundary(LONGEST_ERROR));
        text.push('…');
    }
    text
}
