//! Estimates the working memory of GR00T N1.7: the bytes of a batch in addition to the weights.
//!
//! ```text
//! pass        = a segment + patches × (6.5 + 42 × vision / 1024) KiB + text × 110 × language / 2048 KiB
//! activations = 36 MiB + 4.6 % of the weights + the larger of pass and small weights
//! graph       = pass + 100 KiB × blocks
//! ```
//! A process holds what libtorch's allocator has reserved, up to a half more than all tensors
//! together at any time. So the formula is fitted to reserved bytes: to the peaks of four sizes of
//! network in `measured.json`, none of which it stays below. Nothing is kept for gradients, and
//! attention is fused, so everything grows in proportion to the tokens.

use std::path::Path;

use jobs::captured_graphs;
use jobs::files::{self, MAX_DOCUMENT_BYTES};
use serde_json::{Value, json};

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;

/// Bytes that every network holds: 33 MiB of cuBLAS's workspaces on Hopper, constants, and the rest
/// of segments.
const BASE: f64 = 36.0 * MIB;

/// Gaps that remain where weights were joined to fused layers, as a share of all weights.
const GAPS: f64 = 0.046;

/// KiB of an inference for each patch of a picture, and in addition for each of a vision tower with
/// 1024 features.
const PER_PATCH: [f64; 2] = [6.5, 42.0];

/// KiB of an inference for each token of text in a language model with 2048 features.
const PER_TOKEN: f64 = 110.0;

/// Tensors up to this many bytes are in segments of 2 MiB, larger ones in segments of 20 MiB
/// (c10/cuda/CUDACachingAllocator.cpp, torch 2.11: `kSmallSize`, `kSmallBuffer`, `kLargeBuffer`).
pub(super) const SMALL: u64 = 1 << 20;

/// Memory that CUDA itself takes for the kernels of a block in a captured graph: 16 MiB for the 172
/// blocks of the released size. This is an assumption; it was not measured.
const PER_BLOCK: f64 = 100.0 * KIB;

/// Text tokens of a prompt: 10 of the chat template and an instruction of up to about 25 words.
/// Jobs do not say how long the instructions of their environments are.
const TEXT_TOKENS: u64 = 40;

/// Tokens around an image: `<|vision_start|>` and `<|vision_end|>`.
const AROUND: u64 = 2;

/// Numbers of a patch of two equal frames: 3 channels of 16 × 16 pixels each.
const PIXELS: u64 = 2 * 3 * 16 * 16;

/// Edge of an input image of the network in pixels, if the processor does not give it (all
/// releases: 256).
const EDGE: u64 = 256;

/// Maximum width, number of layers or heads, and number of images that are accepted.
const MAX_WIDTH: u64 = 1 << 16;
const MAX_COUNT: u64 = 1 << 10;
const MAX_IMAGES: u64 = 64;

/// The sizes of a network that its memory depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Number of images of a sample, and of patches of an image.
    images: u64,
    patches: u64,
    /// Number of text tokens of a prompt, without images and the tokens around them.
    text: u64,
    /// Widths of the vision tower, of its inner layers, and of the language model.
    vision: u64,
    inner: u64,
    language: u64,
    /// Number of decoder layers that are used.
    pub(super) layers: u64,
    /// Number of transformer blocks that one inference runs, those of each denoising step included.
    blocks: u64,
    /// Numbers that only the form for inference has: the projections of the vision tower's queries
    /// and keys have half of each head repeated, and the norms of the language model's heads became
    /// matrices.
    added: u64,
}

/// A checkpoint on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) shape: Shape,
    /// Bytes of the tensors of the checkpoint, in the type of the computation.
    pub(super) tensors: u64,
    /// The part of them in tensors up to [`SMALL`]: the block into which all tensors were read keeps
    /// their place, and an inference uses it.
    pub(super) small: u64,
    /// Bytes of a number.
    pub(super) float: u64,
}

impl Network {
    /// Returns the bytes of the weights in their form for inference.
    pub(super) fn weights(&self) -> u64 {
        self.tensors + self.shape.added * self.float
    }

    /// Returns the bytes that are reserved besides the weights for inferences of `rows` rows.
    pub(super) fn activations(&self, rows: u64) -> u64 {
        let pass = self.pass(rows).max(self.small as f64);
        (BASE + GAPS * self.weights() as f64 + pass) as u64
    }

    /// Returns the bytes of a captured graph of this batch size.
    pub(super) fn graph(&self, rows: u64) -> u64 {
        (self.pass(rows) + PER_BLOCK * self.shape.blocks as f64) as u64
    }

    /// Returns the bytes of all graphs of an evaluation with inferences of up to `rows` rows.
    /// Batches shrink with a job's last episodes, so each of the padded batch sizes may be
    /// captured.
    pub(super) fn graphs(&self, rows: u64) -> u64 {
        let sizes = captured_graphs::batch_sizes(rows).into_iter();
        sizes.map(|rows| self.graph(rows)).sum()
    }

    fn pass(&self, rows: u64) -> f64 {
        let shape = &self.shape;
        let patches = (rows * shape.images * shape.patches) as f64;
        let text = (rows * (shape.text + shape.images * AROUND)) as f64;
        let largest = patches * (shape.inner.max(PIXELS) * self.float) as f64;
        let segment = if largest > SMALL as f64 { 20.0 } else { 2.0 };
        let [of_pixels, of_tower] = PER_PATCH;
        let of_patches = patches * (of_pixels + of_tower * shape.vision as f64 / 1024.0);
        let of_text = text * PER_TOKEN * shape.language as f64 / 2048.0;
        segment * MIB + (of_patches + of_text) * KIB * self.float as f64 / 2.0
    }
}

impl Shape {
    /// Reads the sizes of the checkpoint in `folder`; returns `None` if it is not a readable GR00T
    /// N1.7. `tag` is the embodiment; without it, the one with the most images is used. A missing
    /// field has the default of its class.
    pub(super) fn read(folder: &Path, vlm: Option<&Path>, tag: Option<&str>) -> Option<Self> {
        let config = document(&folder.join("config.json"))?;
        if config["model_type"] != "Gr00tN1d7" {
            return None;
        }
        let vlm = vlm.map_or_else(|| folder.join("vlm"), Path::to_owned);
        let vlm = document(&vlm.join("config.json")).unwrap_or_else(released_vlm);
        let processor = document(&folder.join("processor_config.json"))
            .or_else(|| document(&folder.join("processor/processor_config.json")))?;
        Self::new(&config, &vlm, &processor["processor_kwargs"], tag)
    }

    fn new(config: &Value, vlm: &Value, processor: &Value, tag: Option<&str>) -> Option<Self> {
        let (text, tower) = (&vlm["text_config"], &vlm["vision_config"]);
        let dit = &config["diffusion_model_cfg"];
        let count = |found: &Value, class| number(found, class, MAX_COUNT);
        let width = |found: &Value| number(found, None, MAX_WIDTH);
        let side = edge(processor)? / width(&tower["patch_size"])?;
        let (vision, depth) = (width(&tower["hidden_size"])?, count(&tower["depth"], None)?);
        let heads =
            count(&text["num_attention_heads"], None)? + count(&text["num_key_value_heads"], None)?;
        let layers = count(&config["select_layer"], Some(12))?;
        let denoising = count(&dit["num_layers"], Some(16))?
            * count(&config["num_inference_timesteps"], Some(4))?;
        let attention = &config["vl_self_attention_cfg"]["num_layers"];
        Some(Self {
            images: images(processor, tag)?,
            patches: Some(side * side).filter(|patches| *patches <= MAX_WIDTH)?,
            text: TEXT_TOKENS,
            vision,
            inner: width(&tower["intermediate_size"])?,
            language: width(&text["hidden_size"])?,
            layers,
            blocks: depth + layers + attention.as_u64().unwrap_or(0).min(MAX_COUNT) + denoising,
            added: depth * vision * vision + layers * heads * 2 * width(&text["head_dim"])?.pow(2),
        })
    }
}

/// Returns the configuration of the released backbone, `nvidia/Cosmos-Reason2-2B`, which a
/// checkpoint need not include.
fn released_vlm() -> Value {
    json!({
        "text_config": {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8,
                        "head_dim": 128},
        "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "depth": 24,
                          "patch_size": 16}
    })
}

fn document(path: &Path) -> Option<Value> {
    files::read_json(path, MAX_DOCUMENT_BYTES).ok()
}

/// Returns a number from 1 to `most`; a missing one is that of the class.
fn number(found: &Value, class: Option<u64>, most: u64) -> Option<u64> {
    match found {
        Value::Null => class,
        found => found.as_u64().filter(|found| (1..=most).contains(found)),
    }
}

/// Returns the edge of `image_target_size`, which must be a square; if it is not given, the value
/// of all releases.
fn edge(processor: &Value) -> Option<u64> {
    match processor["image_target_size"].as_array() {
        Some(sides) => sides.iter().map(|side| number(side, None, 4096)).max()?,
        None => Some(EDGE),
    }
}

/// Returns the number of images of the embodiment: views times time steps.
fn images(processor: &Value, tag: Option<&str>) -> Option<u64> {
    let all = processor["modality_configs"].as_object()?;
    let count = |(_, modalities): (&String, &Value)| {
        let length = |name: &str| Some(modalities["video"][name].as_array()?.len() as u64);
        Some(length("delta_indices")? * length("modality_keys")?)
    };
    let is_asked =
        |(name, _): &(&String, &Value)| tag.is_none_or(|tag| tag.eq_ignore_ascii_case(name));
    let of_tag = all.iter().filter(is_asked).filter_map(count).max();
    of_tag
        .or_else(|| all.iter().filter_map(count).max())
        .filter(|images| (1..=MAX_IMAGES).contains(images))
}

#[cfg(test)]
mod tests;
