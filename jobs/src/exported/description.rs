//! `rrun.inputs` in the metadata of a package: what its inputs and actions are.
//!
//! ```json
//! {"format": 1, "torch": "2.11.0", "cpu_flags": ["avx2", "fma"], "batch": {"min": 1, "max": 64},
//!  "inputs": [
//!    {"kind": "cameras", "names": ["front", "wrist"], "height": 96, "width": 96, "layout": "HWC",
//!     "dtype": "uint8", "stacked": true},
//!    {"kind": "state", "vectors": [{"name": "eef_position", "size": 3}]},
//!    {"kind": "tokens", "length": 64, "tokenizer": "bytes"},
//!    {"kind": "noise", "shape": [16, 7]}],
//!  "output": {"horizon": 16, "action_dim": 7}}
//! ```
//! `runtime/python/export_policy.py` writes it. Libtorch does not check shapes at run time, so
//! everything that the rank checks is here.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::refusal::Refusal;

/// The version of the format that is read.
const FORMAT: u64 = 1;

/// Most inputs of a package, names of an input, and dimensions of noise.
const MOST_ITEMS: usize = 64;

/// Longest name in bytes.
const MOST_NAME: usize = 256;

/// Largest edge of a picture, most tokens, actions and rows of a batch.
const MOST: usize = 4096;

/// Most values of a state vector or of the noise of a row.
const MOST_VALUES: usize = 1 << 24;

/// What the inputs and the actions of a package are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Version of the format.
    format: u64,
    /// The version of torch that exported it: `2.11.0+cu130`.
    pub torch: String,
    /// Flags of the CPU that the compiler was allowed to use, as `/proc/cpuinfo` names them.
    #[serde(default)]
    pub cpu_flags: Vec<String>,
    /// The numbers of rows that it takes.
    pub batch: Batch,
    /// Its inputs, in the order of the arguments of `forward`.
    pub inputs: Vec<Input>,
    /// Its actions.
    pub output: Output,
}

/// Numbers of rows that a package takes in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The smallest number.
    pub min: usize,
    /// The largest number.
    pub max: usize,
}

/// The actions of a package: `float [B, horizon, action_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Number of actions of a chunk.
    pub horizon: usize,
    /// Number of components of an action.
    pub action_dim: usize,
}

/// An argument of `forward`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Input {
    /// Pictures of one camera or several.
    Cameras(Cameras),
    /// State vectors, one after the other: `float32 [B, sum of sizes]`.
    State {
        /// The vectors, in order.
        vectors: Vec<StateVector>,
    },
    /// The instruction: `int64 [B, length]`, padded on the right with 0.
    Tokens {
        /// Number of tokens.
        length: usize,
        /// Where the tokens come from.
        tokenizer: TokenKind,
    },
    /// Standard normal noise: `float32 [B, …]`.
    Noise {
        /// Its shape without the batch.
        shape: Vec<usize>,
    },
}

/// Pictures: `[B, cameras, height, width, 3]` in the layout `HWC` if they are stacked, without the
/// dimension of cameras for a single one that is not.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cameras {
    /// Names of the cameras, in order.
    pub names: Vec<String>,
    /// Height in pixels.
    pub height: u32,
    /// Width in pixels.
    pub width: u32,
    /// Order of the dimensions.
    pub layout: Layout,
    /// Type of the pixels.
    pub dtype: PixelKind,
    /// Whether there is a dimension of cameras.
    pub stacked: bool,
}

/// A named vector of an observation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateVector {
    /// Its name.
    pub name: String,
    /// Number of values.
    pub size: usize,
}

/// The order of the dimensions of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Layout {
    /// Height, width, channels.
    #[serde(rename = "HWC")]
    Hwc,
    /// Channels, height, width.
    #[serde(rename = "CHW")]
    Chw,
}

/// The type of the pixels of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PixelKind {
    /// Bytes from 0 to 255.
    Uint8,
    /// Numbers from 0 to 1: bytes divided by 255.
    Float32,
}

/// Where the tokens of an instruction come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// They are the UTF-8 bytes of the instruction.
    Bytes,
    /// A `tokenizer.json` makes them, which the job names.
    File,
}

impl Description {
    /// Parses and checks a description.
    ///
    /// # Errors
    /// Refuses the first wrong field by its path.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let description: Self = serde_json::from_str(text).map_err(Refusal::new)?;
        if description.format != FORMAT {
            let found = description.format;
            return Err(Refusal::new(format_args!(
                "`format` is {found}, expected {FORMAT}"
            )));
        }
        let Batch { min, max } = description.batch;
        number("batch.min", min, MOST)?;
        number("batch.max", max, MOST)?;
        if min > max {
            return Err(Refusal::new(format_args!(
                "`batch.min` is {min}, which is more than `batch.max`, {max}"
            )));
        }
        number("output.horizon", description.output.horizon, MOST)?;
        number("output.action_dim", description.output.action_dim, MOST)?;
        number("number of inputs", description.inputs.len(), MOST_ITEMS)?;
        for (index, input) in description.inputs.iter().enumerate() {
            input.check(&format!("inputs[{index}]"))?;
        }
        Ok(description)
    }
}

impl Input {
    /// Checks the numbers and names of an input.
    fn check(&self, field: &str) -> Result<(), Refusal> {
        match self {
            Self::Cameras(cameras) => {
                let given = cameras.names.iter().map(String::as_str);
                names(&format!("{field}.names"), given)?;
                number(&format!("{field}.height"), cameras.height as usize, MOST)?;
                number(&format!("{field}.width"), cameras.width as usize, MOST)?;
                if !cameras.stacked && cameras.names.len() != 1 {
                    return Err(Refusal::new(format_args!(
                        "`{field}.names` has {} names without `stacked`, expected 1",
                        cameras.names.len()
                    )));
                }
            }
            Self::State { vectors } => {
                let of_vectors = vectors.iter().map(|vector| vector.name.as_str());
                names(&format!("{field}.vectors"), of_vectors)?;
                for vector in vectors {
                    let size = format!("{field}.vectors.{}.size", vector.name);
                    number(&size, vector.size, MOST_VALUES)?;
                }
            }
            Self::Tokens { length, .. } => number(&format!("{field}.length"), *length, MOST)?,
            Self::Noise { shape } => {
                let place = format!("{field}.shape");
                number(&place, shape.len(), MOST_ITEMS)?;
                let values = shape.iter().copied().try_fold(1, usize::checked_mul);
                number(&place, values.unwrap_or(usize::MAX), MOST_VALUES)?;
            }
        }
        Ok(())
    }
}

fn number(field: &str, found: usize, most: usize) -> Result<(), Refusal> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err(Refusal::new(format_args!(
        "`{field}` is {found}, expected a number from 1 to {most}"
    )))
}

/// Checks that there are names, and that each is there once.
fn names<'a>(field: &str, names: impl ExactSizeIterator<Item = &'a str>) -> Result<(), Refusal> {
    number(field, names.len(), MOST_ITEMS)?;
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > MOST_NAME || !seen.insert(name) {
            let found: String = name.chars().take(MOST_NAME).collect();
            return Err(Refusal::new(format_args!(
                "`{field}` is {found:?}, expected a name of 1 to {MOST_NAME} bytes that occurs once"
            )));
        }
    }
    Ok(())
}
