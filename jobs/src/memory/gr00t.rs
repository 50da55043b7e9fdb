//! What GR00T N1.7 computes with, from the widths in its `config.json`: bytes of a batch beside the weights.
//!
//! ```text
//! pictures ─► vision ─► image features ─┐
//! words ─► embedding ───────────────────┴─► language ─► vl self-attention ─► vl ─► K/V of all cross blocks ─► head
//! ```
//! Nothing is kept for gradients, so what counts is the stage that holds most at one time, and what earlier stages leave
//! for it. Each tensor is counted once where an operator reads it and once where another is written; attention is fused
//! (flash or memory-efficient), so scores are never there whole.

use std::path::Path;

use serde_json::{Map, Value};

/// Tokens of a prompt beside its pictures: 5 of the chat template and an instruction of up to about 40 words.
const TEXT_TOKENS: u64 = 64;

/// Tokens around a picture: `<|vision_start|>` and `<|vision_end|>`.
const AROUND: u64 = 2;

/// Edge of a picture that goes into the network, pixels, where the processor does not say (all releases: 256).
const EDGE: u64 = 256;

/// What the caching allocator holds beside what is asked for: it rounds up to blocks of 2 MiB (20 MiB for medium sizes)
/// and cannot join what lies apart. An assumption.
const FRAGMENTATION: f64 = 1.3;

/// Room of the libraries' own: cuBLAS takes 32 MiB a handle and stream on Hopper and 8 MiB elsewhere (PyTorch, "CUDA
/// semantics", cuBLAS workspaces), cuBLASLt and attention more. An assumption.
const WORKSPACE: u64 = 128 << 20;

/// Widths in `config.json` files are believed up to this, so that products of four fit into 64 bits.
const MAX_WIDTH: u64 = 1 << 16;

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
    vision: u64,
    vision_inner: u64,
    deepstack: u64,
    language: u64,
    language_inner: u64,
    heads: u64,
    kv_heads: u64,
    head: u64,
    has_vl_attention: bool,
    embedding: u64,
    cross_blocks: u64,
    horizon: u64,
    /// Decoder layers that are used.
    pub(super) layers: u64,
}

/// The released backbone, `nvidia/Cosmos-Reason2-2B`, which a checkpoint need not bring.
fn released_vlm() -> Value {
    serde_json::json!({
        "text_config": {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16,
                        "num_key_value_heads": 8, "head_dim": 128},
        "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "patch_size": 16, "spatial_merge_size": 2,
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
        let text = |name: &str| width(vlm.get("text_config")?.get(name)?);
        let vision = |name: &str| width(vlm.get("vision_config")?.get(name)?);
        let dit = |name: &str| config.get("diffusion_model_cfg")?.get(name);
        let merge = vision("spatial_merge_size")?;
        let side = edge(processor)? / vision("patch_size")?;
        let blocks = dit("num_layers").map_or(Some(16), width)?;
        let interleaved = dit("interleave_self_attention").and_then(Value::as_bool).unwrap_or(true);
        let attention = config.get("vl_self_attention_cfg").and_then(|attention| attention.get("num_layers"));
        let deepstack = vlm.get("vision_config")?.get("deepstack_visual_indexes").and_then(Value::as_array);
        Some(Self {
            images: images(processor, tag)?,
            patches: side * side,
            merge: merge * merge,
            vision: vision("hidden_size")?,
            vision_inner: vision("intermediate_size")?,
            deepstack: deepstack.map_or(0, |indexes| indexes.len().min(64) as u64),
            language: text("hidden_size")?,
            language_inner: text("intermediate_size")?,
            heads: text("num_attention_heads")?,
            kv_heads: text("num_key_value_heads")?,
            head: text("head_dim")?,
            has_vl_attention: attention.and_then(Value::as_u64).is_some_and(|layers| layers > 0),
            embedding: own("input_embedding_dim", 1536)?,
            cross_blocks: if interleaved { blocks.div_ceil(2) } else { blocks },
            horizon: own("action_horizon", 40)?,
            layers: own("select_layer", 12)?,
        })
    }

    /// Tokens of a prompt.
    fn tokens(&self) -> u64 {
        self.images * (self.patches / self.merge + AROUND) + TEXT_TOKENS
    }

    /// Bytes that a batch of `rows` takes beside the weights, with numbers of `float` bytes.
    pub(super) fn activations(&self, rows: u64, float: u64) -> u64 {
        let values = self.vision_values().max(self.language_values()).max(self.head_values());
        let bytes = values.saturating_mul(rows).saturating_mul(float);
        ((bytes as f64 * FRAGMENTATION) as u64).saturating_add(WORKSPACE)
    }

    /// A block of the vision tower: x and its norm; q, k and v together, q and k turned in float32 (two values a number, in
    /// and out) and cast back, the result; or the two sides of the activation of its MLP. Before it the pixels, after it the
    /// features for the language model.
    fn vision_values(&self) -> u64 {
        let patches = self.images * self.patches;
        let attention = (2 + 3 + 8 + 2 + 1) * self.vision;
        let mlp = 2 * self.vision + 2 * self.vision_inner;
        patches * attention.max(mlp) + self.image_features()
    }

    /// The last features and those of the deepstack.
    fn image_features(&self) -> u64 {
        self.images * self.patches / self.merge * self.language * (1 + self.deepstack)
    }

    /// A decoder layer: x and its norm; q, k and v, the same turned, keys and values repeated for every head (where rows are
    /// padded), the result; or gate, up, silu and their product.
    fn language_values(&self) -> u64 {
        let (q, kv) = (self.heads * self.head, self.kv_heads * self.head);
        let attention = 2 * self.language + 2 * (q + 2 * kv) + 2 * q + q;
        let mlp = 2 * self.language + 4 * self.language_inner;
        self.tokens() * attention.max(mlp) + self.image_features()
    }

    /// The vl self-attention (an MLP four times as wide), or the keys and values of all cross blocks, made once and kept
    /// for all steps of the sampler, beside a block of the action transformer (its MLP is four times as wide, too).
    fn head_values(&self) -> u64 {
        let tokens = self.tokens();
        let attention = if self.has_vl_attention { tokens * self.language * (2 + 2 * 4) } else { 0 };
        let kept = tokens * self.cross_blocks * 2 * self.embedding;
        let action = (1 + self.horizon) * self.embedding * (2 + 2 * 4);
        attention.max(2 * kept + tokens * self.language + action)
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
mod tests {
    use super::*;
    use serde_json::json;

    const MIB: u64 = 1 << 20;

    fn released(cameras: usize) -> Widths {
        let config = json!({"model_type": "Gr00tN1d7", "select_layer": 16,
            "vl_self_attention_cfg": {"num_layers": 4}, "diffusion_model_cfg": {"num_layers": 32}});
        let keys: Vec<_> = (0..cameras).map(|camera| format!("camera_{camera}")).collect();
        let processor = json!({"image_target_size": [256, 256],
            "modality_configs": {"new_embodiment": {"video": {"delta_indices": [0], "modality_keys": keys}}}});
        Widths::new(config.as_object().unwrap(), &released_vlm(), &processor, None).unwrap()
    }

    #[test]
    fn the_released_network_takes_tens_of_mebibytes_a_row_beside_its_six_gigabytes() {
        // One camera: 256 patches, 130 tokens with a long instruction. The keys and values that are kept are
        // 130 tokens × 16 blocks × 2 × 1536 × 2 bytes = 13 MB, and an MLP of the language model, the widest there is,
        // 130 × 4 × 6144 × 2 = 6 MB: a row is some tens of MB, a thousandth of the 6.3 GB of weights at batch 1 and as much
        // as they are above batch 100.
        let one = released(1).activations(1, 2) - WORKSPACE;
        assert!((10 * MIB..60 * MIB).contains(&one), "{} MiB", one / MIB);
        let night = released(2).activations(32, 2);
        assert!((800 * MIB..3000 * MIB).contains(&night), "{} MiB", night / MIB);
    }

    #[test]
    fn more_rows_more_pictures_and_wider_numbers_never_take_less() {
        let bytes = |cameras: usize, rows: u64, float: u64| released(cameras).activations(rows, float);
        assert!(bytes(1, 2, 2) > bytes(1, 1, 2) && bytes(2, 1, 2) > bytes(1, 1, 2) && bytes(1, 1, 4) > bytes(1, 1, 2));
        let slope = |rows: u64| bytes(2, rows + 1, 2) - bytes(2, rows, 2);
        assert!(slope(1).abs_diff(slope(63)) <= 2, "linear in rows");
    }

    #[test]
    fn widths_come_from_the_files_of_a_checkpoint() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/gr00t/case_a_single");
        let widths = Widths::read(&fixture, None, None).unwrap();
        assert_eq!((widths.images, widths.patches, widths.vision, widths.language), (1, 256, 24, 48));
        assert_eq!((widths.cross_blocks, widths.horizon, widths.layers), (3, 16, 4));
        assert!(widths.activations(1, 4) < released(1).activations(1, 2));
        assert_eq!(Widths::read(Path::new("/nowhere"), None, None), None);
    }

    #[test]
    fn widths_that_are_none_are_refused() {
        let config = json!({"action_horizon": u64::MAX});
        let processor = json!({"modality_configs": {"a": {"video": {"delta_indices": [0], "modality_keys": ["x"]}}}});
        assert_eq!(Widths::new(config.as_object().unwrap(), &released_vlm(), &processor, None), None);
    }
}
