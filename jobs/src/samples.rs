//! Sample values for tests, here and in other crates, which change them as they need.

use crate::episode::{End, Episode};
use crate::job::JobIndex;

/// Returns the solved episode `number` of the job at `index`: ten steps on rank 0, nothing
/// recorded, no end time.
pub fn episode(index: usize, job: &str, number: u64) -> Episode {
    Episode {
        job: job.to_owned(),
        job_index: JobIndex(index),
        episode: number,
        seed: 1,
        rank: 0,
        env: 0,
        rebuild: 0,
        success: Some(true),
        success_at_end: None,
        end: End::Success,
        length: 10,
        return_: 2.0,
        max_reward: None,
        language_instruction: String::new(),
        wall_s: 1.0,
        infer_calls: 1,
        actions_out_of_bounds: 0,
        latency: None,
        ended: String::new(),
        error: None,
        dataset: None,
        video: None,
        episode_video: None,
        metrics: Default::default(),
    }
}
