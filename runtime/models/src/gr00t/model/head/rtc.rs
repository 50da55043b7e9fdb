//! Real-time chunking: predicts a new chunk that continues one that is being executed
//! (in-painting).

use tch::Tensor;

/// The previous chunk, and how much of it to keep.
#[derive(Clone, Copy, Debug)]
pub struct Rtc<'a> {
    /// The previous chunk, normalised: `[…, at least action_horizon, max_action_dim]`.
    pub previous: &'a Tensor,
    /// Number of steps of the previous chunk that count.
    pub action_horizon: i64,
    /// Number of its last steps with which the new chunk begins.
    pub overlap_steps: i64,
    /// Number of those overlapping steps, from the first on, that do not change.
    pub frozen_steps: i64,
    /// Rate at which the remaining overlapping steps become free to change.
    pub ramp_rate: f64,
}

/// The starting point of the sampler.
pub struct SamplerStart {
    /// Initial actions, `[…, T, max_action_dim]`.
    pub actions: Tensor,
    /// Factor by which each step of the chunk follows the velocity, `[…, T, 1]`; `None` means 1 for
    /// all steps.
    pub strength: Option<Tensor>,
}

impl SamplerStart {
    /// Starts from noise alone.
    pub fn at(noise: Tensor) -> Self {
        Self {
            actions: noise,
            strength: None,
        }
    }

    /// Starts from noise, `[…, T, max_action_dim]`, and from the end of the previous chunk.
    ///
    /// # Panics
    /// Panics with libtorch's error if the two chunks cannot overlap like that.
    pub fn after(noise: &Tensor, rtc: &Rtc<'_>) -> Self {
        let (kind, device) = (noise.kind(), noise.device());
        let overlap = rtc.overlap_steps;
        let kept = rtc
            .previous
            .narrow(-2, rtc.action_horizon - overlap, overlap)
            .to_device(device)
            .to_kind(kind);
        let horizon = noise.size()[noise.dim() - 2];
        let strength = Tensor::from_slice(&rtc.strength(horizon)).view([horizon, 1]);
        Self {
            actions: Tensor::cat(&[&kept, &noise.narrow(-2, overlap, horizon - overlap)], -2),
            strength: Some(strength.to_device(device).to_kind(kind)),
        }
    }
}

impl Rtc<'_> {
    /// Returns the factor of each step: 0 for frozen steps, an exponential ramp over the rest of
    /// the overlap, and 1 after it.
    fn strength(&self, horizon: i64) -> Vec<f32> {
        let between = self.overlap_steps - self.frozen_steps;
        let full = (1.0 - (-self.ramp_rate).exp()).max(1e-8);
        let ramp = |i: i64| {
            ((1.0 - (-self.ramp_rate * i as f64 / (between + 1) as f64).exp()) / full) as f32
        };
        let frozen = (0..self.frozen_steps).map(|_| 0.0);
        let free = (self.overlap_steps..horizon).map(|_| 1.0);
        frozen.chain((1..=between).map(ramp)).chain(free).collect()
    }
}
