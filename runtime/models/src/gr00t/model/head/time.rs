//! Embeddings of the flow time, and the layer norms whose scale and shift depend on it.

use tch::{Device, Kind, Tensor};

use crate::gr00t::model::head::PREFIX;
use crate::nn::layers::{Linear, plain_norm};
use crate::weights::Weights;

/// Channels of the sinusoid at the input of the time embedding.
const CHANNELS: i64 = 256;

/// Longest period of both sinusoids.
const MAX_PERIOD: f64 = 10_000.0;

/// Returns the time of step `k` of `steps` for `rows` samples: trunc(k / steps · buckets),
/// `[rows]`.
pub(super) fn bucket(k: i64, steps: i64, buckets: i64, (rows, device): (i64, Device)) -> Tensor {
    let bucket = (k as f64 / steps as f64 * buckets as f64) as i64;
    Tensor::full([rows], bucket, (Kind::Int64, device))
}

/// Returns (sin, cos) of `bucket` `[B]` at `width / 2` frequencies: `[B, width]`, computed in
/// float32.
pub(super) fn sinusoid(bucket: &Tensor, width: i64, kind: Kind) -> Tensor {
    let half = width / 2;
    let options = (Kind::Float, bucket.device());
    let step = Tensor::full([1], MAX_PERIOD, options).log() / half as f64;
    let frequencies = (Tensor::arange(half, options).neg() * step).exp();
    let angles = bucket.to_kind(Kind::Float).unsqueeze(-1) * frequencies;
    Tensor::cat(&[angles.sin(), angles.cos()], -1).to_kind(kind)
}

/// The time embedding of the DiT (diffusers: `get_timestep_embedding`, `TimestepEmbedding`).
pub(super) struct TimeEmbedding {
    linear_1: Linear,
    linear_2: Linear,
}

impl TimeEmbedding {
    pub fn take(weights: &mut Weights, width: i64) -> Self {
        let name = |part: &str| format!("{PREFIX}.model.timestep_encoder.timestep_embedder.{part}");
        Self {
            linear_1: Linear::take(weights, &name("linear_1"), CHANNELS, width),
            linear_2: Linear::take(weights, &name("linear_2"), width, width),
        }
    }

    /// Maps `[B]` to `[B, width]`, in the order (cos, sin), with the lowest frequency last.
    pub fn forward(&self, bucket: &Tensor, kind: Kind) -> Tensor {
        let half = CHANNELS / 2;
        let exponent = Tensor::arange(half, (Kind::Float, bucket.device())) * -MAX_PERIOD.ln()
            / (half - 1) as f64;
        let angles = bucket.to_kind(Kind::Float).unsqueeze(-1) * exponent.exp();
        let wave = Tensor::cat(&[angles.cos(), angles.sin()], -1).to_kind(kind);
        self.linear_2.forward(&self.linear_1.forward(&wave).silu())
    }
}

/// The parameters of LN(x)·(1 + scale) + shift over the last axis.
pub(super) enum Modulation {
    /// One scale and shift per sample, each `[B, 1, width]`.
    Rows { scale: Tensor, shift: Tensor },
    /// The same values for all samples, as weight (1 + scale) and bias of a layer norm, `[width]`.
    Shared { weight: Tensor, bias: Tensor },
}

/// All modulations at one flow time.
pub(super) struct TimeModulation {
    /// One modulation per block.
    pub blocks: Vec<Modulation>,
    /// The modulation before the output layer.
    pub out: Modulation,
}

impl Modulation {
    /// Builds a modulation from scale and shift, each `[B, width]`.
    pub fn of_rows(scale: &Tensor, shift: &Tensor) -> Self {
        Self::Rows {
            scale: scale.unsqueeze(1),
            shift: shift.unsqueeze(1),
        }
    }

    /// Builds a modulation for any batch from scale and shift, each `[1, width]`.
    pub fn shared(scale: &Tensor, shift: &Tensor) -> Self {
        Self::Shared {
            weight: (scale + 1.0).view(-1),
            bias: shift.contiguous().view(-1),
        }
    }

    /// Normalises and modulates rows `[B·n, width]`; the shape stays the same.
    pub fn apply(&self, x: &Tensor, rows: i64, eps: f64) -> Tensor {
        match self {
            Self::Rows { scale, shift } => {
                let width = x.size()[1];
                let normed = plain_norm(&x.view([rows, -1, width]), width, eps);
                (normed * (scale + 1.0) + shift).view([-1, width])
            }
            Self::Shared { weight, bias } => {
                x.layer_norm(weight.size(), Some(weight), Some(bias), eps, false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_steps_are_quarters_of_a_thousand() {
        let at = |k| bucket(k, 4, 1000, (1, Device::Cpu)).int64_value(&[0]);
        assert_eq!([0, 1, 2, 3].map(at), [0, 250, 500, 750]);
    }

    #[test]
    fn sines_come_before_cosines() {
        let zero = Tensor::from_slice(&[0i64]);
        assert_eq!(
            Vec::<f32>::try_from(sinusoid(&zero, 4, Kind::Float).view(-1)).unwrap(),
            [0.0, 0.0, 1.0, 1.0]
        );
    }

    #[test]
    fn a_shared_modulation_equals_one_per_row() {
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu));
        let (scale, shift, x) = (random(&[1, 8]), random(&[1, 8]), random(&[6, 8]));
        let [rows, shared] = [Modulation::of_rows, Modulation::shared]
            .map(|of| of(&scale, &shift).apply(&x, 1, 1e-5));
        assert!((shared - rows).abs().max().double_value(&[]) < 1e-5);
    }
}
