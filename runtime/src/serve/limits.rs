//! The limits of one request.

use models::gr00t::processor::Modalities;
use wire::Value;

use crate::serve::error::RequestError;
use crate::serve::stats::Counted;

/// Maximum number of values in a state vector; those of released checkpoints have less than a
/// hundred.
const LONGEST_STATE: usize = 4096;

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

impl RequestLimits {
    /// Checks an observation that has been validated; returns its number of rows.
    ///
    /// # Errors
    /// Returns [`RequestError`] for the first limit that it exceeds.
    pub fn check(
        &self,
        observation: &Value,
        modalities: &Modalities,
    ) -> Result<usize, RequestError> {
        let member = |part: &str, key: &str| observation.get(part).and_then(|part| part.get(key));
        let rows = match member("language", modalities.language_key()) {
            Some(Value::List(rows)) => &rows[..],
            _ => &[],
        };
        let (found, most) = (rows.len(), self.max_rows);
        if found > most {
            let text =
                format!("the request has {found} rows, expected at most {most} (--max-rows)");
            return Err(limit(text));
        }
        let (found, most) = (
            rows.iter().map(text_bytes).max().unwrap_or(0),
            self.max_prompt_bytes,
        );
        if found > most {
            return Err(limit(format!(
                "an instruction has {found} bytes, expected at most {most} (--max-prompt)"
            )));
        }
        let most = self.max_picture_edge;
        for view in &modalities.video.keys {
            // A long and narrow picture counts as the square that it is padded to.
            if let Some(Value::Array(array)) = member("video", view)
                && let [.., height, width, _] = *array.shape()
                && height.max(width) > most
            {
                return Err(limit(format!(
                    "a picture of `{view}` has {height} x {width} pixels, expected at most {most} \
                     along an edge (--max-picture)"
                )));
            }
        }
        for key in &modalities.state.keys {
            if let Some(Value::Array(array)) = member("state", key)
                && let Some(found) = array.shape().last()
                && *found > LONGEST_STATE
            {
                return Err(limit(format!(
                    "state `{key}` has {found} values, expected at most {LONGEST_STATE}"
                )));
            }
        }
        Ok(rows.len())
    }
}

fn limit(text: String) -> RequestError {
    RequestError::rejected(Counted::Limit, text)
}

fn text_bytes(row: &Value) -> usize {
    match row {
        Value::List(texts) => texts.iter().map(text_bytes).max().unwrap_or(0),
        Value::Text(text) => text.len(),
        _ => 0,
    }
}
