//! One block of the tower: attention inside each image, then a feed-forward layer.

use tch::Tensor;

use super::EPS;
use super::grid::Layout;
use crate::policy::gr00t::config::VisionConfig;
use crate::policy::gr00t::model::attention::{Heads, Visible, attend};
use crate::policy::gr00t::model::layers::{FeedForward, LayerNorm, Linear};
use crate::policy::gr00t::weights::Weights;

/// Norm, attention, norm, feed-forward.
#[derive(Debug)]
pub(super) struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    proj: Linear,
    norm2: LayerNorm,
    mlp: FeedForward,
    heads: Heads,
}

impl Block {
    pub fn take(weights: &mut Weights, name: &str, config: &VisionConfig) -> Self {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let mlp = ["linear_fc1", "linear_fc2"].map(|part| format!("{name}.mlp.{part}"));
        Self {
            norm1: LayerNorm::take(weights, &format!("{name}.norm1"), width, EPS),
            qkv: Linear::take(weights, &format!("{name}.attn.qkv"), width, 3 * width),
            proj: Linear::take(weights, &format!("{name}.attn.proj"), width, width),
            norm2: LayerNorm::take(weights, &format!("{name}.norm2"), width, EPS),
            mlp: FeedForward::take(weights, [&mlp[0], &mlp[1]], width, inner),
            heads: Heads { count: config.num_heads, width: width / config.num_heads },
        }
    }

    /// `[P, D]`, same shape.
    pub fn forward(&self, x: Tensor, layout: &Layout) -> Tensor {
        let attended = self.attend(&self.norm1.forward(&x), layout);
        let x = self.proj.add_to(x, &attended);
        let normed = self.norm2.forward(&x);
        self.mlp.add_to(x, &normed)
    }

    fn attend(&self, x: &Tensor, layout: &Layout) -> Tensor {
        let qkv = self.qkv.forward(x).view([-1, 3, self.heads.count, self.heads.width]);
        let qk = layout.turn.apply(&qkv.narrow(1, 0, 2)).to_kind(x.kind());
        let (q, k, v) = (qk.select(1, 0), qk.select(1, 1), qkv.select(1, 2));
        match layout.lengths[..] {
            [first, ref rest @ ..] if rest.iter().all(|&length| length == first) => {
                self.inside(&q, &k, &v, rest.len() as i64 + 1)
            }
            _ => self.image_by_image([q, k, v], &layout.lengths),
        }
    }

    /// Images of one size, all at once.
    fn inside(&self, q: &Tensor, k: &Tensor, v: &Tensor, images: i64) -> Tensor {
        let split = |x: &Tensor| self.heads.split(x, images);
        attend(&split(q), &split(k), &split(v), Visible::All)
    }

    fn image_by_image(&self, qkv: [Tensor; 3], lengths: &[i64]) -> Tensor {
        let [q, k, v] = qkv.map(|x| x.split_with_sizes(lengths, 0));
        let images = q.iter().zip(&k).zip(&v).map(|((q, k), v)| self.inside(q, k, v, 1));
        Tensor::cat(&images.collect::<Vec<_>>(), 0)
    }
}
