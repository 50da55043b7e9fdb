//! What goes into the processor and comes out of it, one sample each.

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::Tensor;

use super::ProcessorError;
use super::image::Picture;

/// One observation as the robot made it.
#[derive(Clone, Debug, Default)]
pub struct Raw<'a> {
    /// Pictures by view, one for each step of the modality, oldest first.
    pub video: BTreeMap<&'a str, Vec<Picture<'a>>>,
    /// State vectors by key, one row for each step of the modality, oldest first.
    pub state: BTreeMap<&'a str, Rows<'a>>,
    /// The task in words.
    pub instruction: &'a str,
}

/// Rows of numbers, `[rows, width]`, row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rows<'a> {
    width: usize,
    values: &'a [f32],
}

impl<'a> Rows<'a> {
    /// Rows of `width` numbers.
    ///
    /// # Errors
    /// [`ProcessorError::Input`] if `values` is not a whole number of rows, at least one.
    pub fn new(width: usize, values: &'a [f32]) -> Result<Self, ProcessorError> {
        if width == 0 || values.is_empty() || !values.len().is_multiple_of(width) {
            let found = format!("{} values", values.len());
            return Err(ProcessorError::input("a state", found, format!("whole rows of {width} are needed")));
        }
        Ok(Self { width, values })
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    /// The rows, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &'a [f32]> {
        self.values.chunks_exact(self.width)
    }

    /// The newest row.
    pub fn last(&self) -> &'a [f32] {
        &self.values[self.values.len() - self.width..]
    }
}

/// One observation as the network reads it.
#[derive(Debug)]
pub struct Sample {
    /// Prompt tokens, without padding.
    pub ids: Arc<[i64]>,
    /// Normalised patches of the pictures, in the order of the prompt: `[p, 1536]`, `f32`; or as bytes, `[p, 768]`, `u8`.
    pub pixels: Tensor,
    /// Patches of each picture: time, height, width.
    pub grids: Vec<[i64; 3]>,
    /// Normalised state, padded: `[T, max_state_dim]`, row-major.
    pub state: Vec<f32>,
    /// Steps of the state, T.
    pub state_rows: usize,
    /// Slot of the category weights.
    pub embodiment_id: i64,
}

/// Actions of one key: `[horizon, width]`, row-major, physical units.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionRows {
    /// The key.
    pub key: String,
    /// Numbers in a step.
    pub width: usize,
    /// The numbers.
    pub values: Vec<f32>,
}
