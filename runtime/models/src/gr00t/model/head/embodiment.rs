//! Layers with one set of weights for each embodiment.

use tch::Tensor;

use crate::gr00t::model::head::PREFIX;
use crate::weights::Weights;
use torchlib::operators;

/// A linear layer x·W + b for each embodiment.
pub(super) struct CategoryLinear {
    /// `[embodiments, in, out]`.
    pub weight: Tensor,
    /// `[embodiments, out]`.
    bias: Tensor,
}

impl CategoryLinear {
    /// Takes `{name}.W` and `{name}.b`.
    pub fn take(
        weights: &mut Weights,
        name: &str,
        count: i64,
        [inputs, outputs]: [i64; 2],
    ) -> Self {
        Self {
            weight: weights.take(&format!("{name}.W"), &[count, inputs, outputs]),
            bias: weights.take(&format!("{name}.b"), &[count, outputs]),
        }
    }

    /// Returns W, `[in, out]`, and b, `[out]`, of an embodiment, as views.
    pub fn of(&self, embodiment: i64) -> (Tensor, Tensor) {
        (self.weight.get(embodiment), self.bias.get(embodiment))
    }
}

/// Two layers with a ReLU between them.
pub(super) struct CategoryMlp {
    pub layers: [CategoryLinear; 2],
}

impl CategoryMlp {
    /// Takes `{part}.layer1` and `{part}.layer2`.
    pub fn take(
        weights: &mut Weights,
        part: &str,
        embodiments: i64,
        [inputs, hidden, outputs]: [i64; 3],
    ) -> Self {
        let mut layer = |number: u8, widths: [i64; 2]| {
            let name = format!("{PREFIX}.{part}.layer{number}");
            CategoryLinear::take(weights, &name, embodiments, widths)
        };
        Self {
            layers: [layer(1, [inputs, hidden]), layer(2, [hidden, outputs])],
        }
    }

    /// Maps `[B, n, in]` to `[B, n, out]`.
    pub fn forward(&self, embodiment: i64, x: &Tensor) -> Tensor {
        let (rows, n, inputs) = x.size3().expect("activations are [B, n, in]");
        let x = x.reshape([rows * n, inputs]);
        let [(w1, b1), (w2, b2)] = self.layers.each_ref().map(|layer| layer.of(embodiment));
        let out = if x.device().is_cuda() {
            b2.addmm(&operators::linear_relu(&x, &w1.tr(), &b1), &w2)
        } else {
            // As the reference: a product and a sum, each of which rounds.
            (x.mm(&w1) + b1).relu().mm(&w2) + b2
        };
        out.view([rows, n, -1])
    }
}
