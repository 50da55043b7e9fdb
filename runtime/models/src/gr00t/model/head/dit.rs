//! The diffusion transformer (DiT) over state and action tokens. The keys and values of its
//! cross-attention are computed once per inference.

use tch::Tensor;

use crate::gr00t::config::ModelConfig;
use crate::gr00t::model::head::PREFIX;
use crate::gr00t::model::head::time::{Modulation, TimeEmbedding, TimeModulation};
use crate::gr00t::model::prompt::{PositionSubset, PromptConstants};
use crate::nn::attention::{Heads, SelfAttention, VisibleKeys, attend};
use crate::nn::layers::{FeedForward, HEAD_EPS, Linear, plain_norm};
use crate::nn::note;
use crate::weights::Weights;

/// Epsilon of the norm before the output layer.
pub(super) const OUT_EPS: f64 = 1e-6;

/// The transformer: time embedding, blocks and output layer.
pub(super) struct Dit {
    /// Embedding of the flow time.
    pub time: TimeEmbedding,
    blocks: Vec<DitBlock>,
    groups: Vec<CrossGroup>,
    out_modulation: Linear,
    /// Output layer, to `hidden_size`.
    pub projection: Linear,
    heads: Heads,
}

struct DitBlock {
    modulation: Linear,
    attention: DitAttention,
    ff: FeedForward,
}

enum DitAttention {
    /// Self-attention over the tokens.
    Own(SelfAttention),
    /// Cross-attention over the tokens in [`CrossKeys`].
    Cross { q: Linear, out: Linear },
}

impl Dit {
    pub fn take(weights: &mut Weights, config: &ModelConfig) -> Self {
        let heads = dit_heads(config);
        let width = heads.inner();
        let name = |part: &str| format!("{PREFIX}.model.{part}");
        let groups = [Looks::Text, Looks::Image, Looks::Everywhere];
        Self {
            time: TimeEmbedding::take(weights, width),
            blocks: (0..config.diffusion_model_cfg.num_layers)
                .map(|i| DitBlock::take(weights, i, config))
                .collect(),
            groups: groups
                .into_iter()
                .filter_map(|looks| CrossGroup::take(weights, looks, config, heads))
                .collect(),
            out_modulation: Linear::take(weights, &name("proj_out_1"), width, 2 * width),
            projection: Linear::take(
                weights,
                &name("proj_out_2"),
                width,
                config.diffusion_model_cfg.output_dim,
            ),
            heads,
        }
    }

    /// Returns keys and values of the cross-attention blocks; `None` for self-attention blocks.
    pub fn keys(&self, vl: &Tensor, prompt: &PromptConstants) -> Vec<Option<CrossKeys>> {
        let mut keys: Vec<_> = self.blocks.iter().map(|_| None).collect();
        for group in &self.groups {
            for (block, found) in group.keys(vl, prompt, self.heads) {
                keys[block] = Some(found);
            }
        }
        keys
    }

    /// Returns the modulations for a time embedding `[1, width]`. The scale comes before the shift
    /// in the blocks, but after it at the output.
    pub fn times(&self, temb: &Tensor) -> TimeModulation {
        let active = temb.silu();
        let halves = |layer: &Linear| layer.forward(&active).chunk(2, -1);
        let blocks = self.blocks.iter().map(|block| halves(&block.modulation));
        let out = halves(&self.out_modulation);
        TimeModulation {
            blocks: blocks
                .map(|halves| Modulation::new(&halves[0], &halves[1]))
                .collect(),
            out: Modulation::new(&out[1], &out[0]),
        }
    }

    /// Runs all blocks over rows `[B·n, width]`; `at` holds the number of samples and the sampler's
    /// step.
    pub fn blocks(
        &self,
        mut x: Tensor,
        times: &TimeModulation,
        keys: &[Option<CrossKeys>],
        (rows, k): (i64, i64),
    ) -> Tensor {
        for (i, ((block, modulation), keys)) in
            self.blocks.iter().zip(&times.blocks).zip(keys).enumerate()
        {
            x = block.forward(x, modulation, keys.as_ref(), (rows, self.heads));
            note(
                format_args!("step{k}.dit_block.{i:02}"),
                &x,
                Some(&[rows, -1, self.heads.inner()]),
            );
        }
        x
    }
}

impl DitBlock {
    fn take(weights: &mut Weights, i: i64, config: &ModelConfig) -> Self {
        let heads = dit_heads(config);
        let width = heads.inner();
        let name = |part: &str| format!("{PREFIX}.model.transformer_blocks.{i}.{part}");
        let attention = match Looks::of(i, config) {
            None => DitAttention::Own(SelfAttention::take(weights, &name("attn1"), width, heads)),
            Some(_) => DitAttention::Cross {
                q: Linear::take(weights, &name("attn1.to_q"), width, width),
                out: Linear::take(weights, &name("attn1.to_out.0"), width, width),
            },
        };
        Self {
            modulation: Linear::take(weights, &name("norm1.linear"), width, 2 * width),
            attention,
            ff: FeedForward::take_diffusers(weights, &name("ff"), width),
        }
    }

    fn forward(
        &self,
        x: Tensor,
        modulation: &Modulation,
        keys: Option<&CrossKeys>,
        (rows, heads): (i64, Heads),
    ) -> Tensor {
        let normed = modulation.apply(&x, HEAD_EPS);
        let x = match (&self.attention, keys) {
            (DitAttention::Cross { q, out }, Some(keys)) => {
                out.add_to(x, &keys.attend(&heads.split(&q.forward(&normed), rows)))
            }
            (DitAttention::Own(attention), _) => attention.add_to(x, &normed, rows),
            (DitAttention::Cross { .. }, None) => {
                unreachable!("every cross-attention block is in a group of keys")
            }
        };
        let normed = plain_norm(&x, heads.inner(), HEAD_EPS);
        self.ff.add_to(x, &normed)
    }
}

/// The tokens that a cross-attention block attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    /// Text tokens only.
    Text,
    /// Image tokens only.
    Image,
    /// All positions, including padding.
    Everywhere,
}

impl Looks {
    /// Returns the tokens for block `i`; `None` if it is a self-attention block.
    fn of(i: i64, config: &ModelConfig) -> Option<Self> {
        if config.diffusion_model_cfg.interleave_self_attention && i % 2 == 1 {
            return None;
        }
        Some(match config.use_alternate_vl_dit {
            true if i % (2 * config.attend_text_every_n_blocks) == 0 => Self::Text,
            true => Self::Image,
            false => Self::Everywhere,
        })
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
    fn attend(&self, q: &Tensor) -> Tensor {
        let mask = self.mask.as_ref();
        let visible = mask.map_or(VisibleKeys::All, VisibleKeys::Where);
        attend(q, &self.k, &self.v, visible)
    }
}

/// The key and value layers of all blocks that attend to the same tokens.
struct CrossGroup {
    looks: Looks,
    blocks: Vec<usize>,
    /// Keys and values of the first block, then of the next, and so on.
    layers: Linear,
}

impl CrossGroup {
    /// Takes `to_k` and `to_v` of the blocks; returns `None` if there are none.
    fn take(
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
    fn keys(&self, vl: &Tensor, prompt: &PromptConstants, heads: Heads) -> Vec<(usize, CrossKeys)> {
        let part = match self.looks {
            Looks::Text => Some(&prompt.text),
            Looks::Image => Some(&prompt.image),
            Looks::Everywhere => None,
        };
        let (seen, mask) = match part {
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

/// Returns the attention heads of the DiT.
fn dit_heads(config: &ModelConfig) -> Heads {
    let dit = &config.diffusion_model_cfg;
    Heads {
        count: dit.num_attention_heads,
        width: dit.attention_head_dim,
    }
}
