//! One block of the vision tower: attention within each image, then a feed-forward layer.

use tch::{Device, Kind, Tensor};

use crate::gr00t::config::VisionConfig;
use crate::gr00t::model::vision::EPS;
use crate::gr00t::model::vision::grid::PatchTables;
use crate::nn::attention::{Heads, VisibleKeys, attend};
use crate::nn::layers::{FeedForward, LayerNorm, Linear};
use crate::weights::Weights;

/// A block: norm, attention, norm, feed-forward layer.
pub(super) struct VisionBlock {
    norm1: LayerNorm,
    /// The projections to queries, keys and values, one after the other.
    qkv: Linear,
    /// Whether the projection repeats the first half of each query and key head after it.
    repeats_halves: bool,
    proj: Linear,
    norm2: LayerNorm,
    mlp: FeedForward,
    heads: Heads,
}

impl VisionBlock {
    pub fn take(weights: &mut Weights, name: &str, config: &VisionConfig) -> Self {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let mlp = ["linear_fc1", "linear_fc2"].map(|part| format!("{name}.mlp.{part}"));
        let mut block = Self {
            norm1: LayerNorm::take(weights, &format!("{name}.norm1"), width, EPS),
            qkv: Linear::take(weights, &format!("{name}.attn.qkv"), width, 3 * width),
            repeats_halves: false,
            proj: Linear::take(weights, &format!("{name}.attn.proj"), width, width),
            norm2: LayerNorm::take(weights, &format!("{name}.norm2"), width, EPS),
            mlp: FeedForward::take(weights, [&mlp[0], &mlp[1]], width, inner),
            heads: Heads {
                count: config.num_heads,
                width: width / config.num_heads,
            },
        };
        let device = block.qkv.device();
        if device.is_cuda() {
            block.repeat_halves(device);
        }
        block
    }

    /// Maps `[P, D]` to the same shape.
    pub fn forward(&self, x: Tensor, layout: &PatchTables) -> Tensor {
        let attended = self.attend(&self.norm1.forward(&x), layout);
        let x = self.proj.add_to(x, &attended);
        let normed = self.norm2.forward(&x);
        self.mlp.add_to(x, &normed)
    }

    /// Lets the projection repeat the first halves, so that swapped halves are a view, whereas
    /// rolling them takes a launch. On a CPU the larger product would cost more than it saves.
    fn repeat_halves(&mut self, device: Device) {
        let Heads { count, width } = self.heads;
        let rows =
            Tensor::arange(3 * count * width, (Kind::Int64, device)).view([3 * count, width]);
        let turned = rows.narrow(0, 0, 2 * count);
        let turned = Tensor::cat(&[&turned, &turned.narrow(1, 0, width / 2)], 1);
        let values = rows.narrow(0, 2 * count, count);
        self.qkv = self.qkv.picked(&Tensor::cat(
            &[turned.reshape([-1]), values.reshape([-1])],
            0,
        ));
        self.repeats_halves = true;
    }

    /// Returns rotated queries, rotated keys, and values: `[P, heads, width]` each.
    fn turned(&self, x: &Tensor, layout: &PatchTables) -> [Tensor; 3] {
        let Heads { count, width } = self.heads;
        let qkv = self.qkv.forward(x);
        if !self.repeats_halves {
            let qkv = qkv.view([-1, 3, count, width]);
            let qk = layout.turn.apply(&qkv.narrow(1, 0, 2)).to_kind(x.kind());
            return [qk.select(1, 0), qk.select(1, 1), qkv.select(1, 2)];
        }
        let repeated = width / 2 * 3;
        let qk = qkv
            .narrow(1, 0, 2 * count * repeated)
            .view([-1, 2, count, repeated]);
        let qk = layout
            .turn
            .apply_swapped(&qk.narrow(3, 0, width), &qk.narrow(3, width / 2, width));
        let v = qkv
            .narrow(1, 2 * count * repeated, count * width)
            .view([-1, count, width]);
        [qk.select(1, 0), qk.select(1, 1), v]
    }

    fn attend(&self, x: &Tensor, layout: &PatchTables) -> Tensor {
        let [q, k, v] = self.turned(x, layout);
        match layout.lengths[..] {
            [first, ref rest @ ..] if rest.iter().all(|&length| length == first) => {
                self.inside(&q, &k, &v, rest.len() as i64 + 1)
            }
            _ => self.image_by_image([q, k, v], &layout.lengths),
        }
    }

    /// Computes the attention within each of several images of the same size at once.
    fn inside(&self, q: &Tensor, k: &Tensor, v: &Tensor, images: i64) -> Tensor {
        let split = |x: &Tensor| self.heads.split(x, images);
        attend(&split(q), &split(k), &split(v), VisibleKeys::All)
    }

    fn image_by_image(&self, qkv: [Tensor; 3], lengths: &[i64]) -> Tensor {
        let [q, k, v] = qkv.map(|x| x.split_with_sizes(lengths, 0));
        let images = q
            .iter()
            .zip(&k)
            .zip(&v)
            .map(|((q, k), v)| self.inside(q, k, v, 1));
        Tensor::cat(&images.collect::<Vec<_>>(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gr00t::config::VlmConfig;
    use crate::gr00t::model::vision::grid::PatchGrid;
    use crate::weights::tests::random;

    #[test]
    fn repeated_halves_turn_as_rolled_ones() {
        let config = VisionConfig {
            hidden_size: 32,
            num_heads: 2,
            intermediate_size: 64,
            ..VlmConfig::released().vision
        };
        let take = |weights: &mut Weights| drop(VisionBlock::take(weights, "block", &config));
        let mut weights = random(3, take);
        let mut block = VisionBlock::take(&mut weights, "block", &config);
        let layout = PatchTables::new(
            &[[1, 2, 4]],
            PatchGrid { side: 4, merge: 2 },
            &Tensor::from_slice(&[1.0f32, 0.1, 0.01, 0.001]),
            &Tensor::zeros([16, 1], (Kind::Float, Device::Cpu)),
        );
        let x = Tensor::randn([8, 32], (Kind::Float, Device::Cpu));
        let rolled = block.turned(&x, &layout);
        block.repeat_halves(Device::Cpu);
        for (repeated, rolled) in block.turned(&x, &layout).iter().zip(&rolled) {
            assert!((repeated - rolled).abs().max().double_value(&[]) < 1e-5);
        }
    }
}
