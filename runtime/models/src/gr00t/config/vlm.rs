//! Reads and checks `vlm/config.json`: sizes of the backbone, Qwen3-VL.

use std::path::Path;

use jobs::refusal::Refusal;
use serde_json::{Map, Value, json};

use crate::gr00t::config::fields::{ConfigFields, read_object};

/// Sizes of the backbone, from the `config.json` of the repository that `model_name` names.
#[derive(Clone, Debug, PartialEq)]
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
    pub text: TextConfig,
    /// Sizes of the vision tower.
    pub vision: VisionConfig,
}

/// Sizes of the language model.
#[derive(Clone, Debug, PartialEq)]
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
    /// Number of rotary frequencies of the temporal, height and width axis; their sum is half of
    /// `head_dim`.
    pub mrope_section: [i64; 3],
    /// Number of rows of the token embedding table.
    pub vocab_size: i64,
}

/// Sizes of the vision tower.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        Self::parse(path, &read_object(path)?)
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
                mrope_section: [24, 20, 20],
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
        json!({
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            "image_token_id": self.image_token_id,
            "video_token_id": self.video_token_id,
            "vision_start_token_id": self.vision_start_token_id,
            "vision_end_token_id": self.vision_end_token_id,
            "tie_word_embeddings": true,
            "text_config": self.text.to_json(),
            "vision_config": self.vision.to_json(),
        })
    }

    pub(super) fn parse(path: &Path, map: &Map<String, Value>) -> Result<Self, Refusal> {
        let fields = ConfigFields::new(path, map);
        let text = TextConfig::parse(&fields.need_object("text_config")?)?;
        let vision = VisionConfig::parse(&fields.need_object("vision_config")?)?;
        let token = |name| {
            let id = fields.count(name, None)?;
            fields.check(
                id < text.vocab_size,
                name,
                format!("expected a number below vocab_size {}", text.vocab_size),
            )?;
            Ok(id)
        };
        let config = Self {
            image_token_id: token("image_token_id")?,
            video_token_id: token("video_token_id")?,
            vision_start_token_id: token("vision_start_token_id")?,
            vision_end_token_id: token("vision_end_token_id")?,
            text,
            vision,
        };
        let (out, hidden) = (config.vision.out_hidden_size, config.text.hidden_size);
        let wanted = format!("expected text_config.hidden_size {hidden}");
        fields
            .need_object("vision_config")?
            .check(out == hidden, "out_hidden_size", wanted)?;
        Ok(config)
    }
}

impl TextConfig {
    fn parse(fields: &ConfigFields) -> Result<Self, Refusal> {
        fields.only("attention_bias", &json!(false))?;
        fields.only("hidden_act", &json!("silu"))?;
        let rope = fields.need_object("rope_scaling")?;
        rope.only("rope_type", &json!("default"))?;
        rope.need_only("mrope_interleaved", &json!(true))?;
        let section = rope.counts("mrope_section")?;
        let config = Self {
            hidden_size: fields.size("hidden_size", None)?,
            num_hidden_layers: fields.layers("num_hidden_layers", None)?,
            num_attention_heads: fields.size("num_attention_heads", None)?,
            num_key_value_heads: fields.size("num_key_value_heads", None)?,
            head_dim: fields.size("head_dim", None)?,
            intermediate_size: fields.size("intermediate_size", None)?,
            rms_norm_eps: fields.positive("rms_norm_eps")?,
            rope_theta: fields.positive("rope_theta")?,
            mrope_section: section[..].try_into().unwrap_or_default(),
            vocab_size: fields.size("vocab_size", None)?,
        };
        let (heads, groups, half) = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim / 2,
        );
        fields.check(
            config.head_dim % 2 == 0,
            "head_dim",
            "expected an even number",
        )?;
        fields.check(
            heads % groups == 0,
            "num_key_value_heads",
            format!("expected a divisor of {heads} heads"),
        )?;
        let fits = section.len() == 3 && section.iter().sum::<i64>() == half;
        rope.check(
            fits,
            "mrope_section",
            format!("expected three numbers whose sum is {half} (half of head_dim)"),
        )?;
        Ok(config)
    }

    fn to_json(&self) -> Value {
        json!({
            "model_type": "qwen3_vl_text",
            "attention_bias": false,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": {
                "rope_type": "default",
                "mrope_interleaved": true,
                "mrope_section": self.mrope_section,
            },
            "vocab_size": self.vocab_size,
            "tie_word_embeddings": true,
        })
    }
}

impl VisionConfig {
    fn parse(fields: &ConfigFields) -> Result<Self, Refusal> {
        fields.only("hidden_act", &json!("gelu_pytorch_tanh"))?;
        let config = Self {
            depth: fields.layers("depth", None)?,
            hidden_size: fields.size("hidden_size", None)?,
            num_heads: fields.size("num_heads", None)?,
            intermediate_size: fields.size("intermediate_size", None)?,
            patch_size: fields.size("patch_size", None)?,
            temporal_patch_size: fields.size("temporal_patch_size", None)?,
            spatial_merge_size: fields.size("spatial_merge_size", None)?,
            in_channels: fields.size("in_channels", None)?,
            num_position_embeddings: fields.size("num_position_embeddings", None)?,
            out_hidden_size: fields.size("out_hidden_size", None)?,
            deepstack_visual_indexes: fields.counts("deepstack_visual_indexes")?,
        };
        let (width, heads) = (config.hidden_size, config.num_heads);
        let fits = width % heads == 0 && width / heads % 4 == 0;
        fields.check(
            fits,
            "num_heads",
            format!("expected heads of a multiple of 4 out of width {width}"),
        )?;
        let square =
            config.num_position_embeddings.isqrt().pow(2) == config.num_position_embeddings;
        fields.check(
            square,
            "num_position_embeddings",
            "expected a square number",
        )?;
        // The patches of the image processor: 3 colour channels, two frames of 16 × 16 pixels,
        // merged 2 × 2.
        let fixed = [
            ("in_channels", 3),
            ("temporal_patch_size", 2),
            ("patch_size", 16),
            ("spatial_merge_size", 2),
        ];
        fixed
            .iter()
            .try_for_each(|(name, wanted)| fields.need_only(name, &json!(wanted)))?;
        let indexes = &config.deepstack_visual_indexes;
        let ascending = indexes.is_sorted_by(|one, next| one < next)
            && indexes.iter().all(|&at| at < config.depth);
        let wanted = format!("expected ascending blocks below depth {}", config.depth);
        fields.check(ascending, "deepstack_visual_indexes", wanted)?;
        Ok(config)
    }

    /// Returns the width of a merge block: four patches side by side.
    pub fn merged_size(&self) -> i64 {
        self.hidden_size * self.spatial_merge_size.pow(2)
    }

    fn to_json(&self) -> Value {
        json!({
            "model_type": "qwen3_vl",
            "hidden_act": "gelu_pytorch_tanh",
            "depth": self.depth,
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "intermediate_size": self.intermediate_size,
            "patch_size": self.patch_size,
            "temporal_patch_size": self.temporal_patch_size,
            "spatial_merge_size": self.spatial_merge_size,
            "in_channels": self.in_channels,
            "num_position_embeddings": self.num_position_embeddings,
            "out_hidden_size": self.out_hidden_size,
            "deepstack_visual_indexes": self.deepstack_visual_indexes,
        })
    }
}
