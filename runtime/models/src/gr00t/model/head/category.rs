//! Layers with one set of weights for each embodiment.

use tch::{Device, Kind, Tensor};

use crate::weights::Weights;
use torchlib::operators;

/// The weights of a linear layer for all embodiments, `[embodiments, in, out]`.
#[derive(Debug)]
pub(super) struct CategoryLinear {
    weight: Tensor,
    bias: Tensor,
}

impl CategoryLinear {
    /// Takes `{name}.W` and `{name}.b`.
    pub fn take(
        weights: &mut Weights,
        name: &str,
        embodiments: i64,
        [inputs, outputs]: [i64; 2],
    ) -> Self {
        Self {
            weight: weights.take(&format!("{name}.W"), &[embodiments, inputs, outputs]),
            bias: weights.take(&format!("{name}.b"), &[embodiments, outputs]),
        }
    }

    /// Returns dtype and device of the weights.
    pub fn kind_and_device(&self) -> (Kind, Device) {
        (self.weight.kind(), self.weight.device())
    }

    /// Returns whether the weights are trained.
    pub fn is_trained(&self) -> bool {
        self.weight.requires_grad()
    }

    /// Returns the layer of one embodiment; its tensors are views.
    pub fn of(&self, embodiment: i64) -> BoundLinear {
        BoundLinear {
            weight: self.weight.get(embodiment),
            bias: self.bias.get(embodiment),
        }
    }
}

/// A linear layer x·W + b, with W `[in, out]`.
#[derive(Debug)]
pub(super) struct BoundLinear {
    /// `[in, out]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Tensor,
}

impl BoundLinear {
    /// Maps `[B, n, in]` to `[B, n, out]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let (rows, n, inputs) = x.size3().expect("activations are [B, n, in]");
        let x = x.reshape([rows * n, inputs]);
        // A CPU computes it as the reference does: a product and a sum, each of which rounds.
        let out = if x.device().is_cuda() {
            self.bias.addmm(&x, &self.weight)
        } else {
            x.mm(&self.weight) + &self.bias
        };
        out.view([rows, n, -1])
    }

    /// Returns the ReLU of the result of [`Self::forward`].
    fn relu(&self, x: &Tensor) -> Tensor {
        if !x.device().is_cuda() {
            return self.forward(x).relu();
        }
        let (rows, n, inputs) = x.size3().expect("activations are [B, n, in]");
        let x = x.reshape([rows * n, inputs]);
        operators::linear_relu(&x, &self.weight.tr(), &self.bias).view([rows, n, -1])
    }
}

/// Two layers with a ReLU between them.
#[derive(Debug)]
pub(super) struct CategoryMlp {
    layer1: CategoryLinear,
    layer2: CategoryLinear,
}

impl CategoryMlp {
    /// Takes `{name}.layer1` and `{name}.layer2`.
    pub fn take(
        weights: &mut Weights,
        name: &str,
        embodiments: i64,
        [inputs, hidden, outputs]: [i64; 3],
    ) -> Self {
        let mut layer = |part: &str, widths: [i64; 2]| {
            CategoryLinear::take(weights, &format!("{name}.{part}"), embodiments, widths)
        };
        Self {
            layer1: layer("layer1", [inputs, hidden]),
            layer2: layer("layer2", [hidden, outputs]),
        }
    }

    /// Returns the layers of one embodiment.
    pub fn of(&self, embodiment: i64) -> BoundMlp {
        BoundMlp {
            layer1: self.layer1.of(embodiment),
            layer2: self.layer2.of(embodiment),
        }
    }
}

/// The two layers of one embodiment.
#[derive(Debug)]
pub(super) struct BoundMlp {
    /// The layer before the ReLU.
    pub layer1: BoundLinear,
    /// The layer after the ReLU.
    pub layer2: BoundLinear,
}

impl BoundMlp {
    /// Maps `[B, n, in]` to `[B, n, out]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.layer2.forward(&self.layer1.relu(x))
    }
}
