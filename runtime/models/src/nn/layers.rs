//! The layers from which all parts of the network are built, on activations `[rows, width]`.

use std::cell::OnceCell;

use tch::{Device, Kind, Tensor};

use crate::weights::Weights;
use torchlib::operators;

/// Epsilon of the layer norms in the action head (torch's default).
pub(crate) const HEAD_EPS: f64 = 1e-5;

/// A linear layer x·Wᵀ + b, with W stored as `[out, in]`.
pub(crate) struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// Takes `{name}.weight` and `{name}.bias`.
    pub fn take(weights: &mut Weights, name: &str, inputs: i64, outputs: i64) -> Self {
        Self::joint(weights, &[(name.to_owned(), outputs)], inputs)
    }

    /// Takes `{name}.weight`.
    pub fn take_unbiased(weights: &mut Weights, name: &str, inputs: i64, outputs: i64) -> Self {
        Self::joint_unbiased(weights, &[(name.to_owned(), outputs)], inputs)
    }

    /// Takes layers with the same input, given by name and number of outputs. Their results lie
    /// side by side: `[rows, out₀ + out₁ + …]`.
    pub fn joint(weights: &mut Weights, layers: &[(String, i64)], inputs: i64) -> Self {
        let bias = |(name, outputs): &(String, i64)| (format!("{name}.bias"), vec![*outputs]);
        let biases: Vec<_> = layers.iter().map(bias).collect();
        let layer = Self::joint_unbiased(weights, layers, inputs);
        Self::of(layer.weight, weights.joint(&biases))
    }

    /// As [`Self::joint`], for layers without a bias.
    pub fn joint_unbiased(weights: &mut Weights, layers: &[(String, i64)], inputs: i64) -> Self {
        let weight = |(name, outputs): &(String, i64)| {
            let shape = vec![*outputs, inputs];
            (format!("{name}.weight"), shape)
        };
        let specs: Vec<_> = layers.iter().map(weight).collect();
        Self {
            weight: weights.joint(&specs),
            bias: None,
        }
    }

    /// Builds the layer from tensors that were taken from the checkpoint in another shape.
    pub fn of(weight: Tensor, bias: Tensor) -> Self {
        Self {
            weight,
            bias: Some(bias),
        }
    }

    /// Maps `[rows, in]` to `[rows, out]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_ref())
    }

    /// Returns `sum` plus the result of [`Self::forward`], `[rows, out]`; may overwrite `sum`.
    pub fn add_to(&self, sum: Tensor, x: &Tensor) -> Tensor {
        operators::add_linear(sum, x, &self.weight, self.bias.as_ref())
    }

    /// As [`Self::add_to`], but into a new tensor.
    pub fn plus(&self, sum: &Tensor, x: &Tensor) -> Tensor {
        operators::linear_plus(sum, x, &self.weight, self.bias.as_ref())
    }

    /// Returns the tanh-approximated GELU of the result of [`Self::forward`].
    pub fn gelu(&self, x: &Tensor) -> Tensor {
        match &self.bias {
            Some(bias) => operators::linear_gelu(x, &self.weight, bias),
            None => self.forward(x).gelu("tanh"),
        }
    }

    /// Returns a layer that computes only the outputs with these indices, `[any number]`, in their
    /// order; an index may occur several times.
    #[must_use]
    pub fn picked(&self, outputs: &Tensor) -> Self {
        let pick = |x: &Tensor| x.index_select(0, outputs);
        Self {
            weight: pick(&self.weight),
            bias: self.bias.as_ref().map(pick),
        }
    }

    /// Returns the device of the weight.
    pub fn device(&self) -> Device {
        self.weight.device()
    }

    /// Returns the transposed weight, `[in, out]`, and the bias.
    pub fn parts(&self) -> (Tensor, Option<&Tensor>) {
        (self.weight.tr(), self.bias.as_ref())
    }
}

/// A layer norm with weight and bias.
pub(crate) struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl LayerNorm {
    /// Takes `{name}.weight` and `{name}.bias`.
    pub fn take(weights: &mut Weights, name: &str, width: i64, eps: f64) -> Self {
        let weight = weights.take(&format!("{name}.weight"), &[width]);
        Self {
            weight,
            bias: weights.take(&format!("{name}.bias"), &[width]),
            eps,
        }
    }

    /// Normalises over the last axis; the shape stays the same.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm(
            self.weight.size(),
            Some(&self.weight),
            Some(&self.bias),
            self.eps,
            false,
        )
    }
}

/// Applies a layer norm without parameters over the last axis.
pub(crate) fn plain_norm(x: &Tensor, width: i64, eps: f64) -> Tensor {
    x.layer_norm([width], None::<&Tensor>, None, eps, false)
}

/// A root-mean-square norm over the last axis.
///
/// A GPU has one operator for both the norm and its weight. A CPU computes the same value as
/// x / ‖(x, √(D·eps))‖ · (√D·w), in four operators and in float32.
pub(crate) struct RmsNorm {
    weight: Tensor,
    eps: f64,
    /// √D·w and √(D·eps).
    scaled: OnceCell<[Tensor; 2]>,
}

impl RmsNorm {
    /// Takes `{name}.weight`.
    pub fn take(weights: &mut Weights, name: &str, width: i64, eps: f64) -> Self {
        Self::of(weights.take(&format!("{name}.weight"), &[width]), eps)
    }

    /// Builds the norm from a weight whose last axis is the one to normalise.
    pub fn of(weight: Tensor, eps: f64) -> Self {
        Self {
            weight,
            eps,
            scaled: OnceCell::new(),
        }
    }

    /// Normalises over the last axis; the shape stays the same.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if x.device().is_cuda() {
            return x.rms_norm(self.weight.size(), Some(&self.weight), self.eps);
        }
        normed(x, self.scaled.get_or_init(|| self.scaled()))
    }

    fn scaled(&self) -> [Tensor; 2] {
        let width = self.weight.size().last().copied().unwrap_or(1) as f64;
        let offset = Tensor::from((width * self.eps).sqrt() as f32);
        let weight = self.weight.to_kind(Kind::Float) * width.sqrt();
        [weight, offset.to_device(self.weight.device())]
    }
}

fn normed(x: &Tensor, [weight, offset]: &[Tensor; 2]) -> Tensor {
    let length = x
        .norm_scalaropt_dim_dtype(2.0, [-1], true, Kind::Float)
        .hypot(offset);
    ((x / length) * weight).to_kind(x.kind())
}

/// A feed-forward layer: linear, tanh-approximated GELU, linear.
pub(crate) struct FeedForward {
    up: Linear,
    down: Linear,
}

impl FeedForward {
    /// Takes the linear layers `{name}.{up}` and `{name}.{down}`.
    pub fn take(weights: &mut Weights, [up, down]: [&str; 2], width: i64, inner: i64) -> Self {
        Self {
            up: Linear::take(weights, up, width, inner),
            down: Linear::take(weights, down, inner, width),
        }
    }

    /// Takes the layers under the names that diffusers gives them.
    pub fn take_diffusers(weights: &mut Weights, name: &str, width: i64) -> Self {
        Self::take(
            weights,
            [&format!("{name}.net.0.proj"), &format!("{name}.net.2")],
            width,
            4 * width,
        )
    }

    /// Returns `sum` plus the result for `x`, both `[rows, width]`.
    pub fn add_to(&self, sum: Tensor, x: &Tensor) -> Tensor {
        self.down.add_to(sum, &self.up.gelu(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_is_that_of_transformers() {
        tch::manual_seed(1);
        let weight = Tensor::randn([24], (Kind::Float, Device::Cpu));
        let x = Tensor::randn([5, 24], (Kind::Float, Device::Cpu)) * 1e-3;
        let mean = x.square().mean_dim([-1].as_slice(), true, Kind::Float);
        let wanted = &x * (mean + 1e-6).rsqrt() * &weight;
        let found = RmsNorm::of(weight, 1e-6).forward(&x);
        assert!((found - wanted).abs().max().double_value(&[]) < 1e-6);
    }
}
