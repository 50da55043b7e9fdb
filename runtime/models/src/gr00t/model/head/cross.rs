//! Keys and values of the cross-attention, computed once per inference.

use tch::Tensor;

use crate::gr00t::config::ModelConfig;
use crate::gr00t::model::head::PREFIX;
use crate::gr00t::model::prompt::{PositionSubset, PromptConstants};
use crate::nn::attention::{Heads, VisibleKeys, attend};
use crate::nn::layers::Linear;
use crate::weights::Weights;

/// The tokens that a cross-attention block attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// Text tokens only.
    Text,
    /// Image tokens only.
    Image,
    /// All positions, including padding.
    Everywhere,
}

impl Looks {
    /// Returns the tokens for block `i`; `None` if it is a self-attention block.
    pub fn of(i: i64, config: &ModelConfig) -> Option<Self> {
        if config.diffusion_model_cfg.interleave_self_attention && i % 2 == 1 {
            return None;
        }
        Some(match config.use_alternate_vl_dit {
            true if i % (2 * config.attend_text_every_n_blocks) == 0 => Self::Text,
            true => Self::Image,
            false => Self::Everywhere,
        })
    }

    fn part(self, prompt: &PromptConstants) -> Option<&PositionSubset> {
        match self {
            Self::Text => Some(&prompt.text),
            Self::Image => Some(&prompt.image),
            Self::Everywhere => None,
        }
    }
}

/// Keys and values of one block, `[B, heads, n, d]`, and which of them are visible.
pub(super) struct CrossKeys {
    k: Tensor,
    v: Tensor,
    mask: Option<Tensor>,
}

impl CrossKeys {
    /// Attends from queries `[B, heads, T, d]` and returns rows `[B·T, heads·d]`.
    pub fn attend(&self, q: &Tensor) -> Tensor {
        attend(
            q,
            &self.k,
            &self.v,
            self.mask
                .as_ref()
                .map_or(VisibleKeys::All, VisibleKeys::Where),
        )
    }
}

/// The key and value layers of all blocks that attend to the same tokens.
pub(super) struct CrossGroup {
    looks: Looks,
    blocks: Vec<usize>,
    /// Keys and values of the first block, then of the next, and so on.
    layers: Linear,
}

impl CrossGroup {
    /// Takes `to_k` and `to_v` of the blocks; returns `None` if there are none.
    pub fn take(
        weights: &mut Weights,
        looks: Looks,
        config: &ModelConfig,
        heads: Heads,
    ) -> Option<Self> {
        let blocks: Vec<_> = (0..config.diffusion_model_cfg.num_layers)
            .filter(|&i| Looks::of(i, config) == Some(looks))
            .collect();
        let name = |i, part| format!("{PREFIX}.model.transformer_blocks.{i}.attn1.{part}");
        let names = blocks
            .iter()
            .flat_map(|&i| [name(i, "to_k"), name(i, "to_v")]);
        let width = config.backbone_embedding_dim;
        let layers: Vec<_> = names.map(|name| (name, heads.inner())).collect();
        (!blocks.is_empty()).then(|| Self {
            looks,
            layers: Linear::joint(weights, &layers, width),
            blocks: blocks.into_iter().map(|i| i as usize).collect(),
        })
    }

    /// Returns the keys and values of `vl` (rows `[B·S, H]`) for each block. If every sample has
    /// the same number of visible tokens, they cover only those; otherwise they cover all tokens,
    /// with a mask.
    pub fn keys(
        &self,
        vl: &Tensor,
        prompt: &PromptConstants,
        heads: Heads,
    ) -> Vec<(usize, CrossKeys)> {
        let (seen, mask) = match self.looks.part(prompt) {
            None => (vl.shallow_clone(), None),
            Some(PositionSubset {
                picked: Some(picked),
                ..
            }) => (vl.index_select(0, picked), None),
            Some(part) => (
                vl.shallow_clone(),
                Some(part.mask.expand([-1, heads.count, -1, -1], false)),
            ),
        };
        let blocks = self.blocks.len() as i64;
        let joint = self.layers.forward(&seen).view([
            prompt.rows,
            -1,
            2 * blocks,
            heads.count,
            heads.width,
        ]);
        let layers = joint.permute([2, 0, 3, 1, 4]);
        let keys = |j: i64| CrossKeys {
            k: layers.get(2 * j),
            v: layers.get(2 * j + 1),
            mask: mask.as_ref().map(Tensor::shallow_clone),
        };
        (0..)
            .zip(&self.blocks)
            .map(|(j, &block)| (block, keys(j)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_blocks_look_at_text_and_images_in_turn() {
        let config = ModelConfig::released();
        let looks: Vec<_> = (0..6).map(|i| Looks::of(i, &config)).collect();
        let (text, image) = (Some(Looks::Text), Some(Looks::Image));
        assert_eq!(looks, [text, None, image, None, text, None]);
    }

    #[test]
    fn a_plain_dit_looks_everywhere() {
        let config = ModelConfig {
            use_alternate_vl_dit: false,
            ..ModelConfig::released()
        };
        assert_eq!(
            [0, 1, 2].map(|i| Looks::of(i, &config)),
            [Some(Looks::Everywhere), None, Some(Looks::Everywhere)]
        );
    }
}
