//! Reads and checks `config.json`: sizes and switches of the network.
//!
//! The reference writes only the fields that differ from the defaults of its class. A missing field
//! therefore means the class default, not the value of the released model.

use std::path::Path;

use jobs::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::field;
use crate::json::Fixed::{IfGiven, Needed, Written};
use crate::json::{Document, Fixed, written};
pub use vlm::{RopeScaling, TextConfig, VisionConfig, VlmConfig};

mod vlm;

/// Upper limit of sizes, so that the product of three fits into 64 bits.
const MAX_SIZE: i64 = 1 << 20;
/// Upper limit of layer counts, so that a hostile file cannot ask for a list of tensors that fills
/// the memory.
const MAX_LAYERS: i64 = 1 << 10;

const FIXED: [Fixed; 12] = [
    Needed("/model_type", r#""Gr00tN1d7""#),
    Written("/architectures", r#"["Gr00tN1d7"]"#),
    Written("/backbone_model_type", r#""qwen""#),
    // The class default would be a sinusoidal table, which no release uses.
    Needed("/diffusion_model_cfg/positional_embeddings", "null"),
    IfGiven("/diffusion_model_cfg/norm_type", r#""ada_norm""#),
    IfGiven(
        "/diffusion_model_cfg/activation_fn",
        r#""gelu-approximate""#,
    ),
    Written("/diffusion_model_cfg/dropout", "0.2"),
    Written("/diffusion_model_cfg/final_dropout", "true"),
    Needed("/vl_self_attention_cfg/positional_embeddings", "null"),
    IfGiven(
        "/vl_self_attention_cfg/activation_fn",
        r#""gelu-approximate""#,
    ),
    Written("/vl_self_attention_cfg/dropout", "0.2"),
    Written("/vl_self_attention_cfg/final_dropout", "true"),
];

/// The sizes and switches that inference needs; the rest of `config.json` is about training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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

/// Configuration of the action transformer (DiT).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffusionConfig {
    /// Number of blocks.
    pub num_layers: i64,
    /// Number of attention heads.
    pub num_attention_heads: i64,
    /// Width of one attention head.
    pub attention_head_dim: i64,
    /// Width of the output.
    pub output_dim: i64,
    /// Whether odd blocks are self-attention blocks over the state and action tokens.
    pub interleave_self_attention: bool,
}

/// Configuration of the self-attention over the backbone's features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlSelfAttention {
    /// Number of blocks, at least one.
    pub num_layers: i64,
    /// Number of attention heads.
    pub num_attention_heads: i64,
    /// Width of one attention head.
    pub attention_head_dim: i64,
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

impl Default for DiffusionConfig {
    fn default() -> Self {
        Self {
            num_layers: 16,
            num_attention_heads: 32,
            attention_head_dim: 48,
            output_dim: 1024,
            interleave_self_attention: true,
        }
    }
}

impl ModelConfig {
    /// Reads and checks a `config.json`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the field.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        Self::parse(Document::read(path)?)
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
        written(self, &FIXED)
    }

    fn parse(mut file: Document) -> Result<Self, Refusal> {
        if let Value::Object(fields) = &mut file.value {
            fields.retain(|name, value| match name.as_str() {
                "diffusion_model_cfg" => !value.is_null(),
                "vl_self_attention_cfg" => value["num_layers"] != 0,
                _ => true,
            });
        }
        file.check(&FIXED)?;
        let config: Self = file.get(&[])?;
        check_sizes(&file, &config)?;
        config.check(&file)?;
        Ok(config)
    }

    /// Checks the relations between the fields.
    fn check(&self, file: &Document) -> Result<(), Refusal> {
        let (dit, own) = (&self.diffusion_model_cfg, &self.vl_self_attention_cfg);
        let (width, embedding) = (
            dit.num_attention_heads * dit.attention_head_dim,
            self.input_embedding_dim,
        );
        let wanted = format!(
            "expected {width} (heads times head width of diffusion_model_cfg), an even number"
        );
        let holds = embedding == width && width % 2 == 0;
        file.need(holds, &["input_embedding_dim"], wanted)?;
        let wanted = format!("expected diffusion_model_cfg.output_dim {}", dit.output_dim);
        file.need(self.hidden_size == dit.output_dim, &["hidden_size"], wanted)?;
        let wanted = format!("expected at most max_seq_len {}", self.max_seq_len);
        let holds = !self.add_pos_embed || self.action_horizon <= self.max_seq_len;
        file.need(holds, &["action_horizon"], wanted)?;
        let wanted = "it requires interleave_self_attention";
        let holds = !self.use_alternate_vl_dit || dit.interleave_self_attention;
        file.need(holds, &["use_alternate_vl_dit"], wanted)?;
        let Some(own) = own else { return Ok(()) };
        let width = own.num_attention_heads * own.attention_head_dim;
        let wanted = format!("expected {width} (heads times head width of vl_self_attention_cfg)");
        let holds = self.backbone_embedding_dim == width;
        file.need(holds, &["backbone_embedding_dim"], wanted)
    }

    /// Checks the relations between this configuration and the backbone's.
    ///
    /// # Errors
    /// Returns [`Refusal`] for the configuration at `path`.
    pub fn check_backbone(&self, path: &Path, vlm: &VlmConfig) -> Result<(), Refusal> {
        let (width, layers) = (vlm.text.hidden_size, vlm.text.num_hidden_layers);
        let (found, selected) = (self.backbone_embedding_dim, self.select_layer);
        if found != width {
            let wanted = format!("expected the backbone's hidden_size {width}");
            return Err(field(path, "backbone_embedding_dim", found, wanted));
        }
        if selected > layers {
            let wanted = format!("the backbone has {layers} layers");
            return Err(field(path, "select_layer", selected, wanted));
        }
        Ok(())
    }
}

/// Checks that every number of a configuration is in the range of its name.
fn check_sizes(file: &Document, config: &impl Serialize) -> Result<(), Refusal> {
    check_range(file, &[], &written(config, &[]))
}

fn check_range(file: &Document, names: &[&str], value: &Value) -> Result<(), Refusal> {
    let range = match names.last() {
        Some(&("select_layer" | "num_layers" | "num_hidden_layers" | "depth")) => 1..=MAX_LAYERS,
        Some(&("mrope_section" | "deepstack_visual_indexes")) => 0..=MAX_SIZE,
        Some(name) if name.ends_with("_token_id") => 0..=MAX_SIZE,
        _ => 1..=MAX_SIZE,
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .try_for_each(|(name, value)| check_range(file, &[names, &[name]].concat(), value)),
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| check_range(file, names, item)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(size), _) if !range.contains(&size) => {
                let (least, most) = range.into_inner();
                let wanted = format!("expected an integer from {least} to {most}");
                Err(file.refuse(names, wanted))
            }
            (None, Some(number)) if number <= 0.0 => {
                Err(file.refuse(names, "expected a number above 0"))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
