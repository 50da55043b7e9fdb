//! Embeddings of the flow time, and the layer norms whose scale and shift depend on it.

use tch::{Device, Kind, Tensor};

use crate::gr00t::model::head::PREFIX;
use crate::nn::layers::Linear;
use crate::weights::Weights;

/// Channels of the sinusoid at the input of the time embedding.
const CHANNELS: i64 = 256;

/// Longest period of both sinusoids.
const MAX_PERIOD: f64 = 10_000.0;

/// Returns the time of step `k` of `steps`: trunc(k / steps · buckets), `[1]`.
pub(super) fn bucket(k: i64, steps: i64, buckets: i64, device: Device) -> Tensor {
    let bucket = (k as f64 / steps as f64 * buckets as f64) as i64;
    Tensor::full([1], bucket, (Kind::Int64, device))
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

/// The parameters of LN(x)·(1 + scale) + shift over the last axis, as weight (1 + scale) and bias
/// of a layer norm, `[width]`.
pub(super) struct Modulation {
    weight: Tensor,
    bias: Tensor,
}

/// All modulations at one flow time.
pub(super) struct TimeModulation {
    /// One modulation per block.
    pub blocks: Vec<Modulation>,
    /// The modulation before the output layer.
    pub out: Modulation,
}

impl Modulation {
    /// Builds a modulation from scale and shift, each `[1, width]`.
    pub fn new(scale: &Tensor, shift: &Tensor) -> Self {
        Self {
            weight: (scale + 1.0).view(-1),
            bias: shift.contiguous().view(-1),
        }
    }

    /// Normalises and modulates the last axis; the shape stays the same.
    pub fn apply(&self, x: &Tensor, eps: f64) -> Tensor {
        let Self { weight, bias } = self;
        x.layer_norm(weight.size(), Some(weight), Some(bias), eps, false)
    }
}
