//! Reads and checks `config.json`: sizes and switches of the network.
//!
//! The reference writes only the fields that differ from the defaults of its class. A missing field
//! therefore means the class default, not the value of the released model.

use std::path::Path;

use jobs::refusal::Refusal;
use serde_json::{Map, Value, json};

use fields::ConfigFields;

use crate::error::field;
pub(crate) use fields::read_object;
pub use transformer::{DiffusionConfig, VlSelfAttention};
pub use vlm::{TextConfig, VisionConfig, VlmConfig};

mod fields;
mod transformer;
mod vlm;

/// The `model_type` of GR00T N1.7.
const MODEL_TYPE: &str = "Gr00tN1d7";

/// The sizes and switches that inference needs; the rest of `config.json` is about training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// Hugging Face repository of the backbone.
    pub model_name: String,
    /// Number of decoder layers kept.
    pub select_layer: i64,
    /// Hidden width of the language model.
    pub backbone_embedding_dim: i64,
    /// Width to which a state is padded.
    pub max_state_dim: i64,
    /// Width to which an action is padded.
    pub max_action_dim: i64,
    /// Number of state rows in a sample.
    pub state_history_length: i64,
    /// Number of action steps that the network predicts.
    pub action_horizon: i64,
    /// Width of the embodiment-specific MLPs.
    pub hidden_size: i64,
    /// Width of the action transformer.
    pub input_embedding_dim: i64,
    /// Whether a learned position embedding is added to the action tokens.
    pub add_pos_embed: bool,
    /// Rows of the position embedding table.
    pub max_seq_len: i64,
    /// Whether the features of the backbone go through a layer norm.
    pub use_vlln: bool,
    /// Self-attention over the features of the backbone, if there is any.
    pub vl_self_attention_cfg: Option<VlSelfAttention>,
    /// Whether cross-attention alternates between text and image tokens.
    pub use_alternate_vl_dit: bool,
    /// One in this many cross-attention blocks attends to text.
    pub attend_text_every_n_blocks: i64,
    /// Configuration of the action transformer.
    pub diffusion_model_cfg: DiffusionConfig,
    /// Number of denoising steps of the sampler.
    pub num_inference_timesteps: i64,
    /// Number of discrete times into which the sampler's time is divided.
    pub num_timestep_buckets: i64,
    /// Number of sets of embodiment weights.
    pub max_num_embodiments: i64,
}

impl Default for ModelConfig {
    /// Returns the defaults of the reference's class; no released model uses them.
    fn default() -> Self {
        Self {
            model_name: "nvidia/Cosmos-Reason2-2B".to_owned(),
            select_layer: 12,
            backbone_embedding_dim: 2048,
            max_state_dim: 132,
            max_action_dim: 132,
            state_history_length: 1,
            action_horizon: 40,
            hidden_size: 1024,
            input_embedding_dim: 1536,
            add_pos_embed: true,
            max_seq_len: 1024,
            use_vlln: true,
            vl_self_attention_cfg: None,
            use_alternate_vl_dit: true,
            attend_text_every_n_blocks: 2,
            diffusion_model_cfg: DiffusionConfig::default(),
            num_inference_timesteps: 4,
            num_timestep_buckets: 1000,
            max_num_embodiments: 32,
        }
    }
}

impl ModelConfig {
    /// Reads and checks a `config.json`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the field.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        Self::parse(path, &read_object(path)?)
    }

    /// Returns the configuration of the released GR00T N1.7, 3 B.
    pub fn released() -> Self {
        Self {
            select_layer: 16,
            vl_self_attention_cfg: Some(VlSelfAttention {
                num_layers: 4,
                num_attention_heads: 32,
                attention_head_dim: 64,
            }),
            diffusion_model_cfg: DiffusionConfig {
                num_layers: 32,
                ..DiffusionConfig::default()
            },
            ..Self::default()
        }
    }

    /// Returns the JSON that [`ModelConfig::read`] reads, with every field.
    pub fn to_json(&self) -> Value {
        json!({
            "architectures": [MODEL_TYPE],
            "model_type": MODEL_TYPE,
            "model_name": self.model_name,
            "backbone_model_type": "qwen",
            "select_layer": self.select_layer,
            "backbone_embedding_dim": self.backbone_embedding_dim,
            "max_state_dim": self.max_state_dim,
            "max_action_dim": self.max_action_dim,
            "state_history_length": self.state_history_length,
            "action_horizon": self.action_horizon,
            "hidden_size": self.hidden_size,
            "input_embedding_dim": self.input_embedding_dim,
            "add_pos_embed": self.add_pos_embed,
            "max_seq_len": self.max_seq_len,
            "use_vlln": self.use_vlln,
            "vl_self_attention_cfg": self.vl_self_attention_cfg.as_ref().map(VlSelfAttention::to_json),
            "use_alternate_vl_dit": self.use_alternate_vl_dit,
            "attend_text_every_n_blocks": self.attend_text_every_n_blocks,
            "diffusion_model_cfg": self.diffusion_model_cfg.to_json(),
            "num_inference_timesteps": self.num_inference_timesteps,
            "num_timestep_buckets": self.num_timestep_buckets,
            "max_num_embodiments": self.max_num_embodiments,
        })
    }

    fn parse(path: &Path, map: &Map<String, Value>) -> Result<Self, Refusal> {
        let fields = ConfigFields::new(path, map);
        fields.need_only("model_type", &json!(MODEL_TYPE))?;
        let class = Self::default();
        let config = Self {
            model_name: fields.text("model_name", &class.model_name)?,
            select_layer: fields.layers("select_layer", class.select_layer)?,
            backbone_embedding_dim: fields
                .size("backbone_embedding_dim", class.backbone_embedding_dim)?,
            max_state_dim: fields.size("max_state_dim", class.max_state_dim)?,
            max_action_dim: fields.size("max_action_dim", class.max_action_dim)?,
            state_history_length: fields
                .size("state_history_length", class.state_history_length)?,
            action_horizon: fields.size("action_horizon", class.action_horizon)?,
            hidden_size: fields.size("hidden_size", class.hidden_size)?,
            input_embedding_dim: fields.size("input_embedding_dim", class.input_embedding_dim)?,
            add_pos_embed: fields.flag("add_pos_embed", class.add_pos_embed)?,
            max_seq_len: fields.size("max_seq_len", class.max_seq_len)?,
            use_vlln: fields.flag("use_vlln", class.use_vlln)?,
            vl_self_attention_cfg: VlSelfAttention::parse(&fields)?,
            use_alternate_vl_dit: fields
                .flag("use_alternate_vl_dit", class.use_alternate_vl_dit)?,
            attend_text_every_n_blocks: fields.size(
                "attend_text_every_n_blocks",
                class.attend_text_every_n_blocks,
            )?,
            diffusion_model_cfg: DiffusionConfig::parse(&fields)?,
            num_inference_timesteps: fields
                .size("num_inference_timesteps", class.num_inference_timesteps)?,
            num_timestep_buckets: fields
                .size("num_timestep_buckets", class.num_timestep_buckets)?,
            max_num_embodiments: fields.size("max_num_embodiments", class.max_num_embodiments)?,
        };
        config.check(&fields)?;
        Ok(config)
    }

    /// Checks the relations between the fields.
    fn check(&self, fields: &ConfigFields) -> Result<(), Refusal> {
        let dit = &self.diffusion_model_cfg;
        let width = dit.num_attention_heads * dit.attention_head_dim;
        let embedding = self.input_embedding_dim;
        let wanted = format!(
            "expected {width} (heads times head width of diffusion_model_cfg), an even number"
        );
        fields.check(
            embedding == width && embedding % 2 == 0,
            "input_embedding_dim",
            wanted,
        )?;
        let wanted = format!("expected diffusion_model_cfg.output_dim {}", dit.output_dim);
        fields.check(self.hidden_size == dit.output_dim, "hidden_size", wanted)?;
        let fits = !self.add_pos_embed || self.action_horizon <= self.max_seq_len;
        fields.check(
            fits,
            "action_horizon",
            format!("expected at most max_seq_len {}", self.max_seq_len),
        )?;
        let fits = !self.use_alternate_vl_dit || dit.interleave_self_attention;
        fields.check(
            fits,
            "use_alternate_vl_dit",
            "it requires interleave_self_attention",
        )?;
        let Some(attention) = &self.vl_self_attention_cfg else {
            return Ok(());
        };
        let width = attention.num_attention_heads * attention.attention_head_dim;
        let wanted = format!("expected {width} (heads times head width of vl_self_attention_cfg)");
        fields.check(
            self.backbone_embedding_dim == width,
            "backbone_embedding_dim",
            wanted,
        )
    }

    /// Checks the relations between this configuration and the backbone's.
    ///
    /// # Errors
    /// Returns [`Refusal`] for the configuration at `path`.
    pub fn check_backbone(&self, path: &Path, vlm: &VlmConfig) -> Result<(), Refusal> {
        let field = |name: &str, found: i64, wanted: String| field(path, name, found, wanted);
        let (width, layers) = (vlm.text.hidden_size, vlm.text.num_hidden_layers);
        if self.backbone_embedding_dim != width {
            let wanted = format!("expected the backbone's hidden_size {width}");
            return Err(field(
                "backbone_embedding_dim",
                self.backbone_embedding_dim,
                wanted,
            ));
        }
        if self.select_layer > layers {
            return Err(field(
                "select_layer",
                self.select_layer,
                format!("the backbone has {layers} layers"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
