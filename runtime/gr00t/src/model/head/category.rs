//! Layers with one set of weights for each embodiment.

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::inputs::integers;
use crate::weights::Weights;
use c10d::operators;

/// The embodiment of each row of a batch.
#[derive(Debug)]
pub(super) struct Embodiments {
    /// Embodiment ids, `[B]`, on the device.
    ids: Tensor,
    /// The id that all rows share, if they do.
    pub only: Option<i64>,
}

impl Embodiments {
    /// Checks `ids`, `[B]`: each must be below `count`.
    pub fn new(ids: &Tensor, count: i64, device: Device) -> Result<Self, Refusal> {
        let list = integers(ids);
        if let Some(&found) = list.iter().find(|id| !(0..count).contains(*id)) {
            return Err(Refusal::new(format_args!(
                "embodiment id is {found}, expected 0 to {}",
                count - 1
            )));
        }
        let only = list
            .first()
            .copied()
            .filter(|first| list.iter().all(|id| id == first));
        Ok(Self {
            ids: ids.to_device(device),
            only,
        })
    }
}

/// A linear layer x·W\[e\] + b\[e\] for embodiment e, with W `[embodiments, in, out]`.
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

    /// Maps `[B, n, in]` to `[B, n, out]`. Weights are gathered only if the rows have different
    /// embodiments.
    pub fn forward(&self, x: &Tensor, embodiments: &Embodiments) -> Tensor {
        if let Some(id) = embodiments.only {
            let (weight, bias) = self.of(id);
            let (rows, n, inputs) = x.size3().expect("activations are [B, n, in]");
            let x = x.reshape([rows * n, inputs]);
            // A CPU computes it as the reference does: a product and a sum, each of which rounds.
            let out = if x.device().is_cuda() {
                bias.addmm(&x, &weight)
            } else {
                x.mm(&weight) + bias
            };
            return out.view([rows, n, -1]);
        }
        let weight = self.weight.index_select(0, &embodiments.ids);
        x.bmm(&weight) + self.bias.index_select(0, &embodiments.ids).unsqueeze(1)
    }

    /// Returns dtype and device of the weights.
    pub fn kind_and_device(&self) -> (Kind, Device) {
        (self.weight.kind(), self.weight.device())
    }

    /// Returns the ReLU of the result of [`Self::forward`].
    pub fn relu(&self, x: &Tensor, embodiments: &Embodiments) -> Tensor {
        let Some(id) = embodiments.only.filter(|_| x.device().is_cuda()) else {
            return self.forward(x, embodiments).relu();
        };
        let (weight, bias) = self.of(id);
        let (rows, n, inputs) = x.size3().expect("activations are [B, n, in]");
        operators::linear_relu(&x.reshape([rows * n, inputs]), &weight.tr(), &bias)
            .view([rows, n, -1])
    }

    /// Returns the weight `[in, out]` and bias `[out]` of one embodiment, as views.
    pub fn of(&self, embodiment: i64) -> (Tensor, Tensor) {
        (self.weight.get(embodiment), self.bias.get(embodiment))
    }
}

/// Two layers with a ReLU between them.
#[derive(Debug)]
pub(super) struct CategoryMlp {
    /// The layer before the ReLU.
    pub layer1: CategoryLinear,
    /// The layer after the ReLU.
    pub layer2: CategoryLinear,
}

impl CategoryMlp {
    /// Takes `{name}.layer1` and `{name}.layer2`.
    pub fn take(
        weights: &mut Weights,
        name: &str,
        embodiments: i64,
        [inputs, hidden, outputs]: [i64; 3],
    ) -> Self {
        Self {
            layer1: CategoryLinear::take(
                weights,
                &format!("{name}.layer1"),
                embodiments,
                [inputs, hidden],
            ),
            layer2: CategoryLinear::take(
                weights,
                &format!("{name}.layer2"),
                embodiments,
                [hidden, outputs],
            ),
        }
    }

    /// Maps `[B, n, in]` to `[B, n, out]`.
    pub fn forward(&self, x: &Tensor, embodiments: &Embodiments) -> Tensor {
        self.layer2
            .forward(&self.layer1.relu(x, embodiments), embodiments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_embodiment_gives_what_gathered_weights_give() {
        let mut weights = Weights::random(3, Device::Cpu, Kind::Float);
        let layer = CategoryLinear::take(&mut weights, "layer", 3, [4, 5]);
        let x = Tensor::randn([2, 3, 4], (Kind::Float, Device::Cpu));
        let mut embodiments =
            Embodiments::new(&Tensor::from_slice(&[2i64, 2]), 3, Device::Cpu).unwrap();
        let one = layer.forward(&x, &embodiments);
        embodiments.only = None;
        assert!(
            (one - layer.forward(&x, &embodiments))
                .abs()
                .max()
                .double_value(&[])
                < 1e-6
        );
    }

    #[test]
    fn an_embodiment_without_weights_is_refused() {
        let text = Embodiments::new(&Tensor::from_slice(&[0i64, 3]), 3, Device::Cpu)
            .unwrap_err()
            .to_string();
        assert_eq!(text, "embodiment id is 3, expected 0 to 2");
    }
}
