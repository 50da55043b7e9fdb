//! Encodes noisy actions and their flow time as tokens.

use tch::{Device, Kind, Tensor};

use crate::model::head::PREFIX;
use crate::model::head::category::{CategoryLinear, Embodiments};
use crate::model::head::time::sinusoid;
use crate::weights::Weights;

/// Three layers; the second one gets the time as an additional input.
#[derive(Debug)]
pub(super) struct ActionEncoder {
    /// From `max_action_dim` to E.
    pub w1: CategoryLinear,
    /// From 2·E (action and time) to E.
    pub w2: CategoryLinear,
    /// From E to E.
    pub w3: CategoryLinear,
    /// The width E of a token.
    pub width: i64,
}

impl ActionEncoder {
    pub fn take(weights: &mut Weights, embodiments: i64, [action, width]: [i64; 2]) -> Self {
        let mut layer = |part: &str, widths: [i64; 2]| {
            CategoryLinear::take(
                weights,
                &format!("{PREFIX}.action_encoder.{part}"),
                embodiments,
                widths,
            )
        };
        Self {
            w1: layer("W1", [action, width]),
            w2: layer("W2", [2 * width, width]),
            w3: layer("W3", [width, width]),
            width,
        }
    }

    /// Returns dtype and device of the weights.
    pub fn kind_and_device(&self) -> (Kind, Device) {
        self.w1.kind_and_device()
    }

    /// Maps `actions` `[B, T, max_action_dim]` at times `bucket` `[B]` to tokens `[B, T, E]`.
    pub fn forward(&self, actions: &Tensor, bucket: &Tensor, embodiments: &Embodiments) -> Tensor {
        let action = self.w1.forward(actions, embodiments);
        let time = sinusoid(bucket, self.width, action.kind())
            .unsqueeze(1)
            .expand_as(&action);
        let mixed = self
            .w2
            .forward(&Tensor::cat(&[&action, &time], -1), embodiments);
        self.w3.forward(&(&mixed * mixed.sigmoid()), embodiments)
    }
}
