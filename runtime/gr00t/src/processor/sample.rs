//! The input and output of the processor, per sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::Tensor;

use crate::processor::ProcessorError;
use crate::processor::image::Picture;

/// One raw observation of the robot.
#[derive(Clone, Debug, Default)]
pub struct Raw<'a> {
    /// Pictures by video key, one for each step of the modality, oldest first.
    pub video: BTreeMap<&'a str, Vec<Picture<'a>>>,
    /// State vectors by key, one row for each step of the modality, oldest first.
    pub state: BTreeMap<&'a str, Rows<'a>>,
    /// The task, as text.
    pub instruction: &'a str,
}

/// Rows of values, `[rows, width]`, row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rows<'a> {
    width: usize,
    values: &'a [f32],
}

impl<'a> Rows<'a> {
    /// Creates rows of `width` values each.
    ///
    /// # Errors
    /// Returns [`ProcessorError::Input`] if `values` does not consist of whole rows, at least one.
    pub fn new(width: usize, values: &'a [f32]) -> Result<Self, ProcessorError> {
        if width == 0 || values.is_empty() || !values.len().is_multiple_of(width) {
            let found = format!("{} values", values.len());
            return Err(ProcessorError::input(
                "a state",
                found,
                format!("whole rows of {width} are needed"),
            ));
        }
        Ok(Self { width, values })
    }

    /// Returns the number of values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    /// Returns the rows, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &'a [f32]> {
        self.values.chunks_exact(self.width)
    }

    /// Returns the newest row.
    pub fn last(&self) -> &'a [f32] {
        &self.values[self.values.len() - self.width..]
    }
}

/// One observation in the form that the network reads.
#[derive(Debug)]
pub struct Sample {
    /// Token ids of the prompt, without padding.
    pub ids: Arc<[i64]>,
    /// Normalised patches of the pictures, in the order of the prompt: `[p, 1536]`, `f32`; or as
    /// bytes, `[p, 768]`, `u8`.
    pub pixels: Tensor,
    /// Number of patches of each picture along time, height and width.
    pub grids: Vec<[i64; 3]>,
    /// Normalised state, padded: `[T, max_state_dim]`, row-major.
    pub state: Vec<f32>,
    /// Number of state steps, T.
    pub state_rows: usize,
    /// Index of the category weights.
    pub embodiment_id: i64,
}

/// Actions of one key: `[horizon, width]`, row-major, physical units.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionRows {
    /// The action key.
    pub key: String,
    /// Number of values in a step.
    pub width: usize,
    /// The values of all steps.
    pub values: Vec<f32>,
}
