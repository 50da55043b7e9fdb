//! What GR00T N1.7 computes with, from the widths in its `config.json`: bytes of a batch beside the weights.
//!
//! ```text
//! pictures ─► vision ─► image features ─┐
//! words ─► embedding ───────────────────┴─► language ─► vl self-attention ─► vl ─► K/V of all cross blocks ─► head
//! ```
//! What the process has of the card is what libtorch's allocator has reserved, and that is more than all tensors together at
//! any time: up to a half more for activations. So the tensors of loading ([`load`]) and of one inference ([`pass`]) go
//! through a model of the allocator in their order. Nothing is kept for gradients; attention is fused (flash or
//! memory-efficient), so scores are never there whole.

mod load;
mod network;
mod pass;

use std::path::Path;

pub(super) use load::Weights;
pub(super) use network::Network;
pub use network::graph_sizes;
use serde_json::{Map, Value};

/// Tokens of a prompt beside its pictures: 10 of the chat template and an instruction of up to 25 words or so. Jobs do not
/// say how long the instructions of their environments are.
const TEXT_TOKENS: u64 = 40;

/// Tokens around a picture: `<|vision_start|>` and `<|vision_end|>`.
const AROUND: u64 = 2;

/// Edge of a picture that goes into the network, pixels, where the processor does not say (all releases: 256).
const EDGE: u64 = 256;

/// Widths in `config.json` files are believed up to this, so that products of four fit into 64 bits.
const MAX_WIDTH: u64 = 1 << 16;

/// Numbers of layers, and of heads, are believed up to this.
const MAX_COUNT: u64 = 1 << 10;

/// Pictures of a sample are believed up to this.
const MAX_IMAGES: u64 = 64;

/// Sizes that activations depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    /// Pictures of a sample.
    images: u64,
    /// Patches of a picture.
    patches: u64,
    /// Patches that become one token.
    merge: u64,
    /// Tokens of a prompt beside its pictures and what is around them.
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
    /// Blocks and heads of the attention over image and text features.
    vl_blocks: u64,
    vl_heads: u64,
    /// Width of the action transformer, and what it comes down to.
    embedding: u64,
    hidden: u64,
    dit_heads: u64,
    cross_blocks: u64,
    /// Blocks that look at their own tokens.
    own_blocks: u64,
    /// Numbers of an action, filled up.
    action: u64,
    horizon: u64,
    /// Decoder layers that are used.
    pub(super) layers: u64,
}

/// The released backbone, `nvidia/Cosmos-Reason2-2B`, which a checkpoint need not bring.
fn released_vlm() -> Value {
    serde_json::json!({
        "text_config": {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16,
                        "num_key_value_heads": 8, "head_dim": 128},
        "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "depth": 24, "patch_size": 16,
                          "spatial_merge_size": 2,
                          "deepstack_visual_indexes": [5, 11, 17]}
    })
}

impl Widths {
    /// Of the checkpoint in `folder`; `None` if it is no GR00T N1.7 that can be read. `tag` is the embodiment, of several
    /// the one with the most pictures if it is not named. A missing field has the default of its class.
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

    fn new(config: &Map<String, Value>, vlm: &Value, processor: &Value, tag: Option<&str>) -> Option<Self> {
        let own = |name: &str, class: u64| config.get(name).map_or(Some(class), width);
        let few = |count: u64| (count <= MAX_COUNT).then_some(count);
        let text = |name: &str| width(vlm.get("text_config")?.get(name)?);
        let vision = |name: &str| width(vlm.get("vision_config")?.get(name)?);
        let dit = |name: &str| config.get("diffusion_model_cfg")?.get(name);
        let merge = vision("spatial_merge_size")?;
        let side = edge(processor)? / vision("patch_size")?;
        let blocks = dit("num_layers").map_or(Some(16), width).and_then(few)?;
        let interleaved = dit("interleave_self_attention").and_then(Value::as_bool).unwrap_or(true);
        let attention = |name: &str| config.get("vl_self_attention_cfg")?.get(name)?.as_u64().and_then(few);
        let deepstack = vlm.get("vision_config")?.get("deepstack_visual_indexes").and_then(Value::as_array);
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
            dit_heads: dit("num_attention_heads").map_or(Some(32), width).and_then(few)?,
            cross_blocks: if interleaved { blocks.div_ceil(2) } else { blocks },
            own_blocks: if interleaved { blocks / 2 } else { 0 },
            action: own("max_action_dim", 132)?,
            horizon: own("action_horizon", 40)?,
            layers: own("select_layer", 12).and_then(few)?,
        })
    }

    /// Tokens of a prompt.
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
    match serde_json::from_slice(&std::fs::read(path).ok()?).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

fn width(value: &Value) -> Option<u64> {
    value.as_u64().filter(|width| (1..=MAX_WIDTH).contains(width))
}

/// `image_target_size`, a square; else what every release has.
fn edge(processor: &Value) -> Option<u64> {
    match processor.get("image_target_size").and_then(Value::as_array) {
        Some(sides) => sides.iter().map(width).max()?.filter(|edge| *edge <= 4096),
        None => Some(EDGE),
    }
}

/// Views times time steps of the embodiment.
fn images(processor: &Value, tag: Option<&str>) -> Option<u64> {
    let all = processor.get("modality_configs")?.as_object()?;
    let count = |modalities: &Value| {
        let video = modalities.get("video")?;
        let length = |name: &str| video.get(name).and_then(Value::as_array).map(|list| list.len() as u64);
        Some(length("delta_indices")? * length("modality_keys")?)
    };
    let same = |name: &str| tag.is_none_or(|tag| tag.eq_ignore_ascii_case(name));
    let of_tag = all.iter().filter(|(name, _)| same(name)).filter_map(|(_, modalities)| count(modalities)).max();
    of_tag.or_else(|| all.values().filter_map(count).max()).filter(|images| (1..=MAX_IMAGES).contains(images))
}

#[cfg(test)]
mod tests;
