//! Estimates the working memory of GR00T N1.7 from the widths in its `config.json`: the bytes of a
//! batch in addition to the weights.
//!
//! ```text
//! images ─► vision ─► image features ─┐
//! text ─► embedding ──────────────────┴─► language ─► vl self-attention ─► vl
//!   vl ─► K/V of all cross blocks ─► head
//! ```
//! The process holds all GPU memory that libtorch's allocator has reserved, which is more than all
//! tensors together at any time: up to a half more for activations. So the tensors of loading
//! ([`load`]) and of one inference ([`pass`]) go through a model of the allocator in their order.
//! Nothing is kept for gradients. Attention is fused (flash or memory-efficient), so the score
//! matrix never exists as a whole.

mod load;
mod network;
mod pass;

use std::path::Path;

use jobs::files::{self, MAX_DOCUMENT_BYTES};
pub(super) use load::WeightBytes;
pub(super) use network::Network;
use serde_json::{Map, Value};

/// Text tokens of a prompt: 10 of the chat template and an instruction of up to about 25 words.
/// Jobs do not say how long the instructions of their environments are.
const TEXT_TOKENS: u64 = 40;

/// Tokens around an image: `<|vision_start|>` and `<|vision_end|>`.
const AROUND: u64 = 2;

/// Edge of an input image of the network in pixels, if the processor does not give it (all
/// releases: 256).
const EDGE: u64 = 256;

/// Maximum width accepted from a `config.json`, so that products of four fit into 64 bits.
const MAX_WIDTH: u64 = 1 << 16;

/// Maximum number of layers or heads that is accepted.
const MAX_COUNT: u64 = 1 << 10;

/// Maximum number of images of a sample that is accepted.
const MAX_IMAGES: u64 = 64;

/// The sizes that activations depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetworkWidths {
    /// Number of images of a sample.
    images: u64,
    /// Number of patches of an image.
    patches: u64,
    /// Number of patches that are merged into one token.
    merge: u64,
    /// Number of text tokens of a prompt, without images and the tokens around them.
    text: u64,
    vision: u64,
    vision_inner: u64,
    vision_heads: u64,
    vision_blocks: u64,
    deepstack: u64,
    language: u64,
    language_inner: u64,
    heads: u64,
    kv_heads: u64,
    head: u64,
    /// Blocks and heads of the self-attention over image and text features.
    vl_blocks: u64,
    vl_heads: u64,
    /// Width of the action transformer, and its output width.
    embedding: u64,
    hidden: u64,
    dit_heads: u64,
    cross_blocks: u64,
    /// Number of blocks with self-attention over the action tokens.
    own_blocks: u64,
    /// Padded length of an action.
    action: u64,
    horizon: u64,
    /// Number of decoder layers that are used.
    pub(super) layers: u64,
}

/// Returns the configuration of the released backbone, `nvidia/Cosmos-Reason2-2B`, which a
/// checkpoint need not include.
fn released_vlm() -> Value {
    serde_json::json!({
        "text_config": {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16,
                        "num_key_value_heads": 8, "head_dim": 128},
        "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "depth": 24, "patch_size": 16,
                          "spatial_merge_size": 2,
                          "deepstack_visual_indexes": [5, 11, 17]}
    })
}

impl NetworkWidths {
    /// Reads the widths of the checkpoint in `folder`; returns `None` if it is not a readable GR00T
    /// N1.7. `tag` is the embodiment; without it, the one with the most images is used. A missing
    /// field has the default of its class.
    pub(super) fn read(folder: &Path, vlm: Option<&Path>, tag: Option<&str>) -> Option<Self> {
        let config = object(&folder.join("config.json"))?;
        if config.get("model_type").and_then(Value::as_str) != Some("Gr00tN1d7") {
            return None;
        }
        let vlm = vlm.map_or_else(|| folder.join("vlm"), Path::to_owned);
        let vlm = object(&vlm.join("config.json")).map_or_else(released_vlm, Value::Object);
        let processor = object(&folder.join("processor_config.json"))
            .or_else(|| object(&folder.join("processor/processor_config.json")))?;
        Self::new(&config, &vlm, processor.get("processor_kwargs")?, tag)
    }

    fn new(
        config: &Map<String, Value>,
        vlm: &Value,
        processor: &Value,
        tag: Option<&str>,
    ) -> Option<Self> {
        let own = |name: &str, class: u64| config.get(name).map_or(Some(class), width);
        let few = |count: u64| (count <= MAX_COUNT).then_some(count);
        let text = |name: &str| width(vlm.get("text_config")?.get(name)?);
        let vision = |name: &str| width(vlm.get("vision_config")?.get(name)?);
        let dit = |name: &str| config.get("diffusion_model_cfg")?.get(name);
        let merge = vision("spatial_merge_size")?;
        let side = edge(processor)? / vision("patch_size")?;
        let blocks = dit("num_layers").map_or(Some(16), width).and_then(few)?;
        let interleaved = dit("interleave_self_attention")
            .and_then(Value::as_bool)
            .unwrap_or(true);
        let attention = |name: &str| {
            config
                .get("vl_self_attention_cfg")?
                .get(name)?
                .as_u64()
                .and_then(few)
        };
        let deepstack = vlm
            .get("vision_config")?
            .get("deepstack_visual_indexes")
            .and_then(Value::as_array);
        Some(Self {
            images: images(processor, tag)?,
            patches: Some(side * side).filter(|patches| *patches <= MAX_WIDTH)?,
            merge: merge * merge,
            text: TEXT_TOKENS,
            vision: vision("hidden_size")?,
            vision_inner: vision("intermediate_size")?,
            vision_heads: vision("num_heads").and_then(few)?,
            vision_blocks: vision("depth").and_then(few)?,
            deepstack: deepstack.map_or(0, |indexes| indexes.len().min(64) as u64),
            language: text("hidden_size")?,
            language_inner: text("intermediate_size")?,
            heads: text("num_attention_heads").and_then(few)?,
            kv_heads: text("num_key_value_heads").and_then(few)?,
            head: text("head_dim")?,
            vl_blocks: attention("num_layers").unwrap_or(0),
            vl_heads: attention("num_attention_heads").unwrap_or(1),
            embedding: own("input_embedding_dim", 1536)?,
            hidden: own("hidden_size", 1024)?,
            dit_heads: dit("num_attention_heads")
                .map_or(Some(32), width)
                .and_then(few)?,
            cross_blocks: if interleaved {
                blocks.div_ceil(2)
            } else {
                blocks
            },
            own_blocks: if interleaved { blocks / 2 } else { 0 },
            action: own("max_action_dim", 132)?,
            horizon: own("action_horizon", 40)?,
            layers: own("select_layer", 12).and_then(few)?,
        })
    }

    /// Returns the number of tokens of a prompt.
    fn tokens(&self) -> u64 {
        self.image_tokens() + self.text_tokens()
    }

    fn image_tokens(&self) -> u64 {
        self.images * self.patches / self.merge
    }

    fn text_tokens(&self) -> u64 {
        self.images * AROUND + self.text
    }
}

fn object(path: &Path) -> Option<Map<String, Value>> {
    let text = files::read(path, MAX_DOCUMENT_BYTES).ok()?;
    match serde_json::from_slice(&text).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

fn width(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .filter(|width| (1..=MAX_WIDTH).contains(width))
}

/// Returns the edge of `image_target_size`, which must be a square; if it is not given, the value
/// of all releases.
fn edge(processor: &Value) -> Option<u64> {
    match processor.get("image_target_size").and_then(Value::as_array) {
        Some(sides) => sides.iter().map(width).max()?.filter(|edge| *edge <= 4096),
        None => Some(EDGE),
    }
}

/// Returns the number of images of the embodiment: views times time steps.
fn images(processor: &Value, tag: Option<&str>) -> Option<u64> {
    let all = processor.get("modality_configs")?.as_object()?;
    let count = |modalities: &Value| {
        let video = modalities.get("video")?;
        let length = |name: &str| {
            video
                .get(name)
                .and_then(Value::as_array)
                .map(|list| list.len() as u64)
        };
        Some(length("delta_indices")? * length("modality_keys")?)
    };
    let same = |name: &str| tag.is_none_or(|tag| tag.eq_ignore_ascii_case(name));
    let of_tag = all
        .iter()
        .filter(|(name, _)| same(name))
        .filter_map(|(_, modalities)| count(modalities))
        .max();
    of_tag
        .or_else(|| all.values().filter_map(count).max())
        .filter(|images| (1..=MAX_IMAGES).contains(images))
}

#[cfg(test)]
mod tests;
