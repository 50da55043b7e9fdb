//! The layers from which all parts of the network are built, on activations `[rows, width]`.

use tch::{Device, Kind, Tensor};

use crate::weights::Weights;
use c10d::operators;

/// Epsilon of the layer norms in the action head (torch's default).
pub(super) const HEAD_EPS: f64 = 1e-5;

/// A linear layer x·Wᵀ + b, with W stored as `[out, in]`.
#[derive(Debug)]
pub(super) struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    /// Whether a following sum or activation may be fused into the matrix product. The fused form
    /// rounds once where two operators round twice.
    is_fused: bool,
}

impl Linear {
    /// Takes `{name}.weight` and `{name}.bias`.
    pub fn take(weights: &mut Weights, name: &str, inputs: i64, outputs: i64) -> Self {
        let bias = Some(weights.take(&format!("{name}.bias"), &[outputs]));
        Self {
            bias,
            ..Self::take_unbiased(weights, name, inputs, outputs)
        }
    }

    /// Takes `{name}.weight`.
    pub fn take_unbiased(weights: &mut Weights, name: &str, inputs: i64, outputs: i64) -> Self {
        Self {
            weight: weights.take(&format!("{name}.weight"), &[outputs, inputs]),
            bias: None,
            is_fused: false,
        }
    }

    /// Builds the layer from tensors that were taken from the checkpoint in another shape.
    pub fn of(weight: Tensor, bias: Tensor) -> Self {
        Self {
            weight,
            bias: Some(bias),
            is_fused: false,
        }
    }

    /// Fuses a following sum or activation into the product from now on.
    pub fn make_lean(&mut self) {
        self.is_fused = true;
    }

    /// Maps `[rows, in]` to `[rows, out]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_ref())
    }

    /// Returns `sum` plus the result of [`Self::forward`], `[rows, out]`; a fused layer may
    /// overwrite `sum`.
    pub fn add_to(&self, sum: Tensor, x: &Tensor) -> Tensor {
        if self.is_fused {
            return operators::add_linear(sum, x, &self.weight, self.bias.as_ref());
        }
        let mut out = self.forward(x);
        out += sum;
        out
    }

    /// As [`Self::add_to`], but into a new tensor.
    pub fn plus(&self, sum: &Tensor, x: &Tensor) -> Tensor {
        operators::linear_plus(sum, x, &self.weight, self.bias.as_ref())
    }

    /// Returns the tanh-approximated GELU of the result of [`Self::forward`].
    pub fn gelu(&self, x: &Tensor) -> Tensor {
        match &self.bias {
            Some(bias) if self.is_fused => operators::linear_gelu(x, &self.weight, bias),
            _ => self.forward(x).gelu("tanh"),
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
            is_fused: self.is_fused,
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

/// Several linear layers with the same input. Their results lie side by side:
/// `[rows, out₀ + out₁ + …]`.
#[derive(Debug)]
pub(super) enum Joint {
    /// Separate layers, as in the checkpoint.
    Apart(Vec<Linear>),
    /// All layers in one matrix.
    Fused(Linear),
}

impl Joint {
    /// Returns all results, in the order of the layers.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::Apart(parts) => Tensor::cat(
                &parts.iter().map(|part| part.forward(x)).collect::<Vec<_>>(),
                -1,
            ),
            Self::Fused(joint) => joint.forward(x),
        }
    }

    /// Joins the layers into one matrix.
    pub fn make_lean(&mut self) {
        let Self::Apart(parts) = self else { return };
        let weight = Tensor::cat(
            &parts.iter().map(|part| &part.weight).collect::<Vec<_>>(),
            0,
        );
        let biases: Option<Vec<_>> = parts.iter().map(|part| part.bias.as_ref()).collect();
        let bias = biases.map(|biases| Tensor::cat(&biases, 0));
        *self = Self::Fused(Linear {
            weight,
            bias,
            is_fused: true,
        });
    }
}

/// A layer norm with weight and bias.
#[derive(Debug)]
pub(super) struct LayerNorm {
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
pub(super) fn plain_norm(x: &Tensor, width: i64, eps: f64) -> Tensor {
    x.layer_norm([width], None::<&Tensor>, None, eps, false)
}

/// A root-mean-square norm over the last axis: statistics in float32, weight in the dtype of the
/// model.
#[derive(Debug)]
pub(super) struct RmsNorm {
    weight: Tensor,
    eps: f64,
    fused: Option<FusedRms>,
}

/// The fused form x / ‖(x, √(D·eps))‖ · (√D·w): the same value in four operators instead of seven.
#[derive(Debug)]
struct FusedRms {
    weight: Tensor,
    offset: Tensor,
    /// The weight as in the checkpoint.
    plain: Tensor,
    eps: f64,
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
            fused: None,
        }
    }

    /// Normalises over the last axis; the shape stays the same.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        match &self.fused {
            Some(fused) => fused.forward(x),
            None => scaled_rms(x, &self.weight, self.eps),
        }
    }

    /// Precomputes everything that depends only on the weight.
    pub fn make_lean(&mut self) {
        let width = *self
            .weight
            .size()
            .last()
            .expect("a norm has a weight per channel") as f64;
        let weight = self.weight.to_kind(Kind::Float) * width.sqrt();
        let offset = Tensor::from((width * self.eps).sqrt() as f32).to_device(weight.device());
        self.fused = Some(FusedRms {
            weight,
            offset,
            plain: self.weight.shallow_clone(),
            eps: self.eps,
        });
    }
}

impl FusedRms {
    /// A GPU has one operator for both the norm and its weight.
    fn forward(&self, x: &Tensor) -> Tensor {
        if x.device().is_cuda() {
            return x.rms_norm(self.plain.size(), Some(&self.plain), self.eps);
        }
        let length = x
            .norm_scalaropt_dim_dtype(2.0, [-1], true, Kind::Float)
            .hypot(&self.offset);
        ((x / length) * &self.weight).to_kind(x.kind())
    }
}

/// Computes the norm as transformers does.
pub(super) fn scaled_rms(x: &Tensor, weight: &Tensor, eps: f64) -> Tensor {
    let wide = x.to_kind(Kind::Float);
    let mean = wide.square().mean_dim([-1].as_slice(), true, Kind::Float);
    (wide * (mean + eps).rsqrt()).to_kind(x.kind()) * weight
}

/// A feed-forward layer: linear, tanh-approximated GELU, linear.
#[derive(Debug)]
pub(super) struct FeedForward {
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

    /// Fuses the activation and the following sum into the products from now on.
    pub fn make_lean(&mut self) {
        self.up.make_lean();
        self.down.make_lean();
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
    fn the_lean_norm_equals_the_plain_one() {
        tch::manual_seed(1);
        let weight = Tensor::randn([24], (Kind::Float, tch::Device::Cpu));
        let x = Tensor::randn([5, 24], (Kind::Float, tch::Device::Cpu)) * 1e-3;
        let mut norm = RmsNorm::of(weight, 1e-6);
        let plain = norm.forward(&x);
        norm.make_lean();
        assert!((norm.forward(&x) - plain).abs().max().double_value(&[]) < 1e-6);
    }

    #[test]
    fn a_joint_layer_keeps_the_order_of_its_parts() {
        let ones = |value: f64| Linear {
            weight: Tensor::full([1, 2], value, (Kind::Float, tch::Device::Cpu)),
            bias: Some(Tensor::from_slice(&[value as f32])),
            is_fused: false,
        };
        let mut joint = Joint::Apart(vec![ones(1.0), ones(2.0)]);
        let x = Tensor::from_slice(&[1.0f32, 1.0]).view([1, 2]);
        let apart = joint.forward(&x);
        joint.make_lean();
        assert_eq!(
            (apart, joint.forward(&x)),
            (
                Tensor::from_slice(&[3.0f32, 6.0]).view([1, 2]),
                Tensor::from_slice(&[3.0f32, 6.0]).view([1, 2])
            )
        );
    }
}
