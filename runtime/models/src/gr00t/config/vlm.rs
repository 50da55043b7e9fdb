//! Reads and checks `vlm/config.json`: sizes of the backbone, Qwen3-VL.

use std::path::Path;

use jobs::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gr00t::config::check_sizes;
use crate::json::Fixed::{IfGiven, Needed, Written};
use crate::json::{Document, Fixed, written};

const FIXED: [Fixed; 15] = [
    Written("/architectures", r#"["Qwen3VLForConditionalGeneration"]"#),
    Written("/model_type", r#""qwen3_vl""#),
    Written("/tie_word_embeddings", "true"),
    Written("/text_config/model_type", r#""qwen3_vl_text""#),
    IfGiven("/text_config/attention_bias", "false"),
    IfGiven("/text_config/hidden_act", r#""silu""#),
    Written("/text_config/tie_word_embeddings", "true"),
    IfGiven("/text_config/rope_scaling/rope_type", r#""default""#),
    Needed("/text_config/rope_scaling/mrope_interleaved", "true"),
    Written("/vision_config/model_type", r#""qwen3_vl""#),
    IfGiven("/vision_config/hidden_act", r#""gelu_pytorch_tanh""#),
    // The patches of the image processor: 3 colour channels, two frames of 16 × 16 pixels, merged
    // 2 × 2.
    Needed("/vision_config/in_channels", "3"),
    Needed("/vision_config/temporal_patch_size", "2"),
    Needed("/vision_config/patch_size", "16"),
    Needed("/vision_config/spatial_merge_size", "2"),
];

/// Sizes of the backbone, from the `config.json` of the repository that `model_name` names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VlmConfig {
    /// Id of the placeholder token that a picture's merged patches replace.
    pub image_token_id: i64,
    /// Id of the placeholder of a video's patches; not used by GR00T.
    pub video_token_id: i64,
    /// Id of the token before a picture.
    pub vision_start_token_id: i64,
    /// Id of the token after a picture.
    pub vision_end_token_id: i64,
    /// Sizes of the language model.
    #[serde(rename = "text_config")]
    pub text: TextConfig,
    /// Sizes of the vision tower.
    #[serde(rename = "vision_config")]
    pub vision: VisionConfig,
}

/// Sizes of the language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextConfig {
    /// Hidden width.
    pub hidden_size: i64,
    /// Number of layers of the whole model, of which `select_layer` are used.
    pub num_hidden_layers: i64,
    /// Number of query heads.
    pub num_attention_heads: i64,
    /// Number of key and value heads; divides the number of query heads.
    pub num_key_value_heads: i64,
    /// Width of one attention head.
    pub head_dim: i64,
    /// Inner width of the gated MLP.
    pub intermediate_size: i64,
    /// Epsilon of the RMS norms, added to the mean square.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How the rotary frequencies are divided.
    pub rope_scaling: RopeScaling,
    /// Number of rows of the token embedding table.
    pub vocab_size: i64,
}

/// How the rotary frequencies are divided between the axes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RopeScaling {
    /// Number of rotary frequencies of the temporal, height and width axis; their sum is half of
    /// `head_dim`.
    pub mrope_section: [i64; 3],
}

/// Sizes of the vision tower.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisionConfig {
    /// Number of blocks.
    pub depth: i64,
    /// Hidden width.
    pub hidden_size: i64,
    /// Number of attention heads. The width of one is a multiple of 4, because of the two rotary
    /// axes.
    pub num_heads: i64,
    /// Inner width of the MLP.
    pub intermediate_size: i64,
    /// Edge of a patch in pixels.
    pub patch_size: i64,
    /// Number of frames in a patch.
    pub temporal_patch_size: i64,
    /// Edge of a merge block in patches.
    pub spatial_merge_size: i64,
    /// Number of colour channels.
    pub in_channels: i64,
    /// Number of rows of the position table; a square number.
    pub num_position_embeddings: i64,
    /// Width of the language model.
    pub out_hidden_size: i64,
    /// Indices of the blocks whose output goes to the first decoder layers, ascending.
    pub deepstack_visual_indexes: Vec<i64>,
}

impl VlmConfig {
    /// Reads and checks a `config.json`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the field.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        Self::parse(&Document::read(path)?)
    }

    /// Returns the sizes of `nvidia/Cosmos-Reason2-2B`.
    pub fn released() -> Self {
        Self {
            image_token_id: 151_655,
            video_token_id: 151_656,
            vision_start_token_id: 151_652,
            vision_end_token_id: 151_653,
            text: TextConfig {
                hidden_size: 2048,
                num_hidden_layers: 28,
                num_attention_heads: 16,
                num_key_value_heads: 8,
                head_dim: 128,
                intermediate_size: 6144,
                rms_norm_eps: 1e-6,
                rope_theta: 5e6,
                rope_scaling: RopeScaling {
                    mrope_section: [24, 20, 20],
                },
                vocab_size: 151_936,
            },
            vision: VisionConfig {
                depth: 24,
                hidden_size: 1024,
                num_heads: 16,
                intermediate_size: 4096,
                patch_size: 16,
                temporal_patch_size: 2,
                spatial_merge_size: 2,
                in_channels: 3,
                num_position_embeddings: 2304,
                out_hidden_size: 2048,
                deepstack_visual_indexes: vec![5, 11, 17],
            },
        }
    }

    /// Returns the JSON that [`VlmConfig::read`] reads.
    pub fn to_json(&self) -> Value {
        written(self, &FIXED)
    }

    pub(super) fn parse(file: &Document) -> Result<Self, Refusal> {
        file.check(&FIXED)?;
        let config: Self = file.get(&[])?;
        check_sizes(file, &config)?;
        config.check(file)?;
        Ok(config)
    }

    /// Checks the relations between the fields.
    fn check(&self, file: &Document) -> Result<(), Refusal> {
        let (text, vision) = (&self.text, &self.vision);
        for (name, id) in [
            ("image_token_id", self.image_token_id),
            ("video_token_id", self.video_token_id),
            ("vision_start_token_id", self.vision_start_token_id),
            ("vision_end_token_id", self.vision_end_token_id),
        ] {
            let wanted = format_args!("expected a number below vocab_size {}", text.vocab_size);
            file.need(id < text.vocab_size, &[name], wanted)?;
        }
        let part = "text_config";
        let (half, heads) = (text.head_dim / 2, text.num_attention_heads);
        let wanted = "expected an even number";
        file.need(text.head_dim % 2 == 0, &[part, "head_dim"], wanted)?;
        let wanted = format!("expected a divisor of {heads} heads");
        let holds = heads % text.num_key_value_heads == 0;
        file.need(holds, &[part, "num_key_value_heads"], wanted)?;
        let wanted = format!("expected numbers whose sum is {half} (half of head_dim)");
        let holds = text.rope_scaling.mrope_section.iter().sum::<i64>() == half;
        file.need(holds, &[part, "rope_scaling", "mrope_section"], wanted)?;

        let part = "vision_config";
        let (width, heads, depth) = (vision.hidden_size, vision.num_heads, vision.depth);
        let wanted = format!("expected heads of a multiple of 4 out of width {width}");
        let holds = width % heads == 0 && width / heads % 4 == 0;
        file.need(holds, &[part, "num_heads"], wanted)?;
        let (rows, wanted) = (vision.num_position_embeddings, "expected a square number");
        let holds = rows.isqrt().pow(2) == rows;
        file.need(holds, &[part, "num_position_embeddings"], wanted)?;
        let blocks = &vision.deepstack_visual_indexes;
        let wanted = format!("expected ascending blocks below depth {depth}");
        let is_ascending = blocks.is_sorted_by(|one, next| one < next);
        let holds = is_ascending && blocks.iter().all(|&at| at < depth);
        file.need(holds, &[part, "deepstack_visual_indexes"], wanted)?;
        let wanted = format!("expected text_config.hidden_size {}", text.hidden_size);
        let holds = vision.out_hidden_size == text.hidden_size;
        file.need(holds, &[part, "out_hidden_size"], wanted)
    }
}

impl VisionConfig {
    /// Returns the width of a merge block: four patches side by side.
    pub fn merged_size(&self) -> i64 {
        self.hidden_size * self.spatial_merge_size.pow(2)
    }
}
