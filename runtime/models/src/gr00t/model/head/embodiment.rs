//! Layers with one set of weights for each embodiment.

use tch::Tensor;

use crate::gr00t::model::head::PREFIX;
use crate::gr00t::model::head::time::sinusoid;
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
    fn take(weights: &mut Weights, name: &str, count: i64, [inputs, outputs]: [i64; 2]) -> Self {
        Self {
            weight: weights.take(&format!("{name}.W"), &[count, inputs, outputs]),
            bias: weights.take(&format!("{name}.b"), &[count, outputs]),
        }
    }

    /// Returns W, `[in, out]`, and b, `[out]`, of an embodiment, as views.
    pub fn of(&self, embodiment: i64) -> (Tensor, Tensor) {
        (self.weight.get(embodiment), self.bias.get(embodiment))
    }

    /// Maps `[B, n, in]` to `[B, n, out]`.
    fn forward(&self, embodiment: i64, x: &Tensor) -> Tensor {
        // A CPU computes it as the reference does: a product and a sum, each of which rounds.
        self.mapped(embodiment, x, |x, weight, bias| {
            if x.device().is_cuda() {
                bias.addmm(x, weight)
            } else {
                x.mm(weight) + bias
            }
        })
    }

    /// Returns the ReLU of the result of [`Self::forward`].
    fn relu(&self, embodiment: i64, x: &Tensor) -> Tensor {
        if !x.device().is_cuda() {
            return self.forward(embodiment, x).relu();
        }
        self.mapped(embodiment, x, |x, weight, bias| {
            operators::linear_relu(x, &weight.tr(), bias)
        })
    }

    /// Maps rows by the weights of an embodiment.
    fn mapped(
        &self,
        embodiment: i64,
        x: &Tensor,
        map: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        let (rows, n, inputs) = x.size3().expect("activations are [B, n, in]");
        let (weight, bias) = self.of(embodiment);
        map(&x.reshape([rows * n, inputs]), &weight, &bias).view([rows, n, -1])
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
        let [first, second] = &self.layers;
        second.forward(embodiment, &first.relu(embodiment, x))
    }
}

/// Encodes noisy actions and their flow time as tokens, in three layers: from `max_action_dim` to
/// E, from 2·E (action and time) to E, and from E to E.
pub(super) struct ActionEncoder {
    pub layers: [CategoryLinear; 3],
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

    /// Maps `actions` `[B, T, max_action_dim]` at times `bucket` `[B]` to tokens `[B, T, E]`.
    pub fn forward(&self, embodiment: i64, actions: &Tensor, bucket: &Tensor) -> Tensor {
        let [w1, w2, w3] = &self.layers;
        let action = w1.forward(embodiment, actions);
        let width = action.size()[2];
        let time = sinusoid(bucket, width, action.kind())
            .unsqueeze(1)
            .expand_as(&action);
        let mixed = w2.forward(embodiment, &Tensor::cat(&[&action, &time], -1));
        w3.forward(embodiment, &(&mixed * mixed.sigmoid()))
    }
}
