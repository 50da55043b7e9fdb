//! Encodes noisy actions and their flow time as tokens.

use tch::{Device, Kind, Tensor};

use crate::gr00t::model::head::PREFIX;
use crate::gr00t::model::head::category::{BoundLinear, CategoryLinear};
use crate::gr00t::model::head::time::sinusoid;
use crate::weights::Weights;

/// The encoder's weights for all embodiments.
#[derive(Debug)]
pub(super) struct ActionEncoder {
    layers: [CategoryLinear; 3],
}

impl ActionEncoder {
    pub fn take(weights: &mut Weights, embodiments: i64, [action, width]: [i64; 2]) -> Self {
        let mut layer = |part: &str, widths: [i64; 2]| {
            let name = format!("{PREFIX}.action_encoder.{part}");
            CategoryLinear::take(weights, &name, embodiments, widths)
        };
        Self {
            layers: [
                layer("W1", [action, width]),
                layer("W2", [2 * width, width]),
                layer("W3", [width, width]),
            ],
        }
    }

    /// Returns dtype and device of the weights.
    pub fn kind_and_device(&self) -> (Kind, Device) {
        self.layers[0].kind_and_device()
    }

    /// Returns whether the weights are trained.
    pub fn is_trained(&self) -> bool {
        self.layers[0].is_trained()
    }

    /// Returns the layers of one embodiment.
    pub fn of(&self, embodiment: i64) -> BoundEncoder {
        let [w1, w2, w3] = self.layers.each_ref().map(|layer| layer.of(embodiment));
        BoundEncoder { w1, w2, w3 }
    }
}

/// Three layers; the second one gets the time as an additional input.
#[derive(Debug)]
pub(super) struct BoundEncoder {
    /// From `max_action_dim` to E.
    pub w1: BoundLinear,
    /// From 2·E (action and time) to E.
    pub w2: BoundLinear,
    /// From E to E.
    pub w3: BoundLinear,
}

impl BoundEncoder {
    /// Maps `actions` `[B, T, max_action_dim]` at times `bucket` `[B]` to tokens `[B, T, E]`.
    pub fn forward(&self, actions: &Tensor, bucket: &Tensor) -> Tensor {
        let action = self.w1.forward(actions);
        let width = self.w3.bias.size()[0];
        let time = sinusoid(bucket, width, action.kind())
            .unsqueeze(1)
            .expand_as(&action);
        let mixed = self.w2.forward(&Tensor::cat(&[&action, &time], -1));
        self.w3.forward(&(&mixed * mixed.sigmoid()))
    }
}
