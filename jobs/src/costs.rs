//! What a job has cost: counts, waits and peaks, which add up over its attempts and ranks.

use serde::{Deserialize, Serialize};

/// What a job, or all jobs of a rank, have cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Number of steps, over all environments.
    pub env_steps: u64,
    /// Number of frames rendered for these steps, over all cameras.
    pub frames: u64,
    /// Number of policy calls.
    pub policy_calls: u64,
    /// Number of episodes that were started again because the process of their environment was
    /// lost.
    pub env_restarts: u64,
    /// How often the loop waited for files to be written.
    pub record_waits: u64,
    /// Seconds that the loop waited for files to be written.
    pub record_wait_s: f64,
    /// Peak resident memory of a rank up to the end of the job, in bytes.
    pub peak_rss_bytes: u64,
    /// Peak GPU memory that libtorch had reserved up to the end of the job, in bytes; `null`
    /// without a GPU.
    pub peak_vram_bytes: Option<u64>,
    /// Peak GPU memory in tensors, which is part of the reserved memory, in bytes.
    pub peak_vram_allocated_bytes: Option<u64>,
    /// Peak memory of all environment processes of a rank together, in bytes, as sampled; `null` if
    /// the environments have no processes of their own.
    pub peak_env_bytes: Option<u64>,
    /// Peak GPU memory of these processes together, in bytes.
    pub peak_env_vram_bytes: Option<u64>,
    /// Whether `peak_env_vram_bytes` is an estimate, because the driver does not report memory by
    /// process: what the GPU held in addition to libtorch's memory and to what it held before the
    /// environments started.
    pub env_vram_is_estimate: bool,
    /// Number of inferences that ran out of memory and were tried again.
    pub out_of_memory: u64,
    /// Batch size that remained after running out of memory, perhaps in an earlier job of the same
    /// checkpoint; 0 if not even one row fitted.
    pub out_of_memory_batch: Option<u64>,
}

impl Costs {
    /// Adds those of another job, attempt or rank. A journal may come from another user, so that no
    /// sum may overflow.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.env_steps, other.env_steps),
            (&mut self.frames, other.frames),
            (&mut self.policy_calls, other.policy_calls),
            (&mut self.env_restarts, other.env_restarts),
            (&mut self.record_waits, other.record_waits),
            (&mut self.out_of_memory, other.out_of_memory),
        ] {
            *sum = sum.saturating_add(part);
        }
        self.record_wait_s += other.record_wait_s;
        self.peak_rss_bytes = self.peak_rss_bytes.max(other.peak_rss_bytes);
        for (peak, part) in [
            (&mut self.peak_vram_bytes, other.peak_vram_bytes),
            (
                &mut self.peak_vram_allocated_bytes,
                other.peak_vram_allocated_bytes,
            ),
            (&mut self.peak_env_bytes, other.peak_env_bytes),
            (&mut self.peak_env_vram_bytes, other.peak_env_vram_bytes),
        ] {
            *peak = (*peak).max(part);
        }
        self.env_vram_is_estimate |= other.env_vram_is_estimate;
        let batches = [self.out_of_memory_batch, other.out_of_memory_batch];
        self.out_of_memory_batch = batches.into_iter().flatten().min();
    }
}

impl<'a> FromIterator<&'a Self> for Costs {
    fn from_iter<I: IntoIterator<Item = &'a Self>>(all: I) -> Self {
        let mut sum = Self::default();
        all.into_iter().for_each(|costs| sum.add(costs));
        sum
    }
}
