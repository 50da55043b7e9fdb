//! The prompt of a task as token ids: what the chat template of the checkpoint renders.

use std::error::Error;
use std::path::Path;

use tokenizers::Tokenizer;

use crate::network::GRID;

/// Pictures of a sample.
pub const CAMERAS: usize = 2;

/// Ids of `instruction` behind [`CAMERAS`] pictures, with the tokenizer of the folder `vlm`.
pub fn ids(vlm: &Path, instruction: &str) -> Result<Vec<i64>, Box<dyn Error>> {
    let tokenizer = Tokenizer::from_file(vlm.join("tokenizer.json")).map_err(|error| error.to_string())?;
    let pads = "<|image_pad|>".repeat((GRID * GRID / 4) as usize);
    let pictures = format!("<|vision_start|>{pads}<|vision_end|>").repeat(CAMERAS);
    let text = format!("<|im_start|>user\n{pictures}{}<|im_end|>\n", formal(instruction));
    let encoding = tokenizer.encode(text, false).map_err(|error| error.to_string())?;
    Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
}

/// Lower case, without punctuation.
fn formal(instruction: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || *c == '_' || c.is_whitespace();
    instruction.to_lowercase().chars().filter(kept).collect()
}
