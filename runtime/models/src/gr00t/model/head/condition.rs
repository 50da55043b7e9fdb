//! Processes the features of the backbone before the action tokens attend to them.

use tch::Tensor;

use crate::gr00t::config::ModelConfig;
use crate::gr00t::model::head::PREFIX;
use crate::nn::attention::{Heads, SelfAttention};
use crate::nn::layers::{FeedForward, HEAD_EPS, LayerNorm};
use crate::nn::note;
use crate::weights::Weights;

/// An optional norm and optional self-attention blocks. Nothing is masked, so padding takes part.
pub(super) struct Condition {
    norm: Option<LayerNorm>,
    blocks: Vec<ConditionBlock>,
}

struct ConditionBlock {
    norm1: LayerNorm,
    attention: SelfAttention,
    norm3: LayerNorm,
    ff: FeedForward,
}

impl Condition {
    pub fn take(weights: &mut Weights, config: &ModelConfig) -> Self {
        let width = config.backbone_embedding_dim;
        let vlln = format!("{PREFIX}.vlln");
        let norm = config
            .use_vlln
            .then(|| LayerNorm::take(weights, &vlln, width, HEAD_EPS));
        let mut blocks = Vec::new();
        if let Some(attention) = &config.vl_self_attention_cfg {
            let heads = Heads {
                count: attention.num_attention_heads,
                width: attention.attention_head_dim,
            };
            for i in 0..attention.num_layers {
                let name = format!("{PREFIX}.vl_self_attention.transformer_blocks.{i}");
                blocks.push(ConditionBlock::take(weights, &name, width, heads));
            }
        }
        Self { norm, blocks }
    }

    /// Maps `[B, S, H]` to rows `[B·S, H]`.
    pub fn forward(&self, features: &Tensor) -> Tensor {
        let (rows, _, width) = features.size3().expect("features are [B, S, H]");
        let shape = features.size();
        let features = features.view([-1, width]);
        let mut x = match &self.norm {
            Some(norm) => norm.forward(&features),
            // The blocks overwrite their input.
            None => features.copy(),
        };
        if self.norm.is_some() {
            note(format_args!("head.vlln"), &x, Some(&shape));
        }
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, rows);
            note(format_args!("head.vl_self_attention.{i}"), &x, Some(&shape));
        }
        x
    }
}

impl ConditionBlock {
    fn take(weights: &mut Weights, name: &str, width: i64, heads: Heads) -> Self {
        Self {
            norm1: LayerNorm::take(weights, &format!("{name}.norm1"), width, HEAD_EPS),
            attention: SelfAttention::take(weights, &format!("{name}.attn1"), width, heads),
            norm3: LayerNorm::take(weights, &format!("{name}.norm3"), width, HEAD_EPS),
            ff: FeedForward::take_diffusers(weights, &format!("{name}.ff"), width),
        }
    }

    fn forward(&self, x: Tensor, rows: i64) -> Tensor {
        let normed = self.norm1.forward(&x);
        let x = self.attention.add_to(x, &normed, rows);
        let normed = self.norm3.forward(&x);
        self.ff.add_to(x, &normed)
    }
}
