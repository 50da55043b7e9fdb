//! Configurations of the two transformers of the action head.

use jobs::refusal::Refusal;
use serde_json::{Value, json};

use crate::gr00t::config::fields::ConfigFields;

/// Configuration of the action transformer (DiT).
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlSelfAttention {
    /// Number of blocks, at least one.
    pub num_layers: i64,
    /// Number of attention heads.
    pub num_attention_heads: i64,
    /// Width of one attention head.
    pub attention_head_dim: i64,
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

impl DiffusionConfig {
    pub(super) fn parse(model: &ConfigFields) -> Result<Self, Refusal> {
        let Some(fields) = model.object("diffusion_model_cfg")? else {
            return Ok(Self::default());
        };
        // The class default would be a sinusoidal table, which no release uses.
        fields.need_only("positional_embeddings", &Value::Null)?;
        fields.only("norm_type", &json!("ada_norm"))?;
        fields.only("activation_fn", &json!("gelu-approximate"))?;
        Ok(Self {
            num_layers: fields.layers("num_layers", None)?,
            num_attention_heads: fields.size("num_attention_heads", None)?,
            attention_head_dim: fields.size("attention_head_dim", None)?,
            output_dim: fields.size("output_dim", None)?,
            interleave_self_attention: fields.flag("interleave_self_attention", None)?,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "num_layers": self.num_layers,
            "num_attention_heads": self.num_attention_heads,
            "attention_head_dim": self.attention_head_dim,
            "output_dim": self.output_dim,
            "interleave_self_attention": self.interleave_self_attention,
            "norm_type": "ada_norm",
            "positional_embeddings": null,
            "dropout": 0.2,
            "final_dropout": true,
        })
    }
}

impl VlSelfAttention {
    pub(super) fn parse(model: &ConfigFields) -> Result<Option<Self>, Refusal> {
        let Some(fields) = model.object("vl_self_attention_cfg")? else {
            return Ok(None);
        };
        if fields.count("num_layers", None)? == 0 {
            return Ok(None);
        }
        fields.need_only("positional_embeddings", &Value::Null)?;
        fields.only("activation_fn", &json!("gelu-approximate"))?;
        Ok(Some(Self {
            num_layers: fields.layers("num_layers", None)?,
            num_attention_heads: fields.size("num_attention_heads", None)?,
            attention_head_dim: fields.size("attention_head_dim", None)?,
        }))
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "num_layers": self.num_layers,
            "num_attention_heads": self.num_attention_heads,
            "attention_head_dim": self.attention_head_dim,
            "positional_embeddings": null,
            "dropout": 0.2,
            "final_dropout": true,
        })
    }
}
