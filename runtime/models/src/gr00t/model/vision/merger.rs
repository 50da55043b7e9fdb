//! Merges 2×2 patches into one token of the language model.

use tch::Tensor;

use crate::gr00t::config::VisionConfig;
use crate::gr00t::model::vision::{EPS, PREFIX};
use crate::nn::layers::{LayerNorm, Linear};
use crate::weights::Weights;

/// A norm and a two-layer network over the patches of a token.
pub(super) struct Merger {
    norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    /// Width of all patches of a token together.
    grouped: i64,
    /// Whether the norm covers all patches of a token together rather than each patch alone.
    norms_grouped: bool,
}

impl Merger {
    /// Takes the merger that follows the last block, or a deepstack merger, which follows a block
    /// in the middle.
    pub fn take(weights: &mut Weights, part: &str, config: &VisionConfig, is_deep: bool) -> Self {
        let name = |layer: &str| format!("{PREFIX}.{part}.{layer}");
        let grouped = config.hidden_size * config.spatial_merge_size * config.spatial_merge_size;
        let normed = if is_deep { grouped } else { config.hidden_size };
        Self {
            norm: LayerNorm::take(weights, &name("norm"), normed, EPS),
            fc1: Linear::take(weights, &name("linear_fc1"), grouped, grouped),
            fc2: Linear::take(
                weights,
                &name("linear_fc2"),
                grouped,
                config.out_hidden_size,
            ),
            grouped,
            norms_grouped: is_deep,
        }
    }

    /// Maps `[P, D]` to `[P/4, H]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let grouped = if self.norms_grouped {
            self.norm.forward(&x.view([-1, self.grouped]))
        } else {
            self.norm.forward(x).view([-1, self.grouped])
        };
        self.fc2.forward(&self.fc1.forward(&grouped).gelu("none"))
    }
}
