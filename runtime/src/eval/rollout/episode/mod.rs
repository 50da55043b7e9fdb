//! The state of a running episode.

pub mod ending;

use std::sync::Arc;
use std::time::Instant;

use jobs::episode::FeltLatency;

use crate::clock::now;
use crate::env::Observation;
use crate::eval::rollout::schedule::action_queue::ActionQueue;
use crate::policy::Window;

/// A running episode.
pub struct LiveEpisode {
    /// Episode number within the job.
    pub episode: u64,
    /// Seed of its reset, which is set when that is sent.
    pub seed: u64,
    /// The actions that the policy has chosen.
    pub actions: ActionQueue,
    /// The latest observations.
    pub window: Window,
    /// Number of steps so far.
    pub length: u64,
    /// Sum of the rewards.
    pub return_: f64,
    /// Largest reward of a step; `None` before the first step.
    pub max_reward: Option<f64>,
    /// True if the success predicate held after any step.
    pub solved_once: bool,
    /// True if the success predicate held after the last step.
    pub solved_now: bool,
    /// Time at which the reset was sent.
    pub started: Instant,
    /// Number of action chunks inferred for it.
    pub infer_calls: u64,
    /// Number of actions with a value out of bounds.
    pub out_of_bounds: u64,
    /// The inferences during which the episode went on, if its job has a latency.
    pub latency: FeltLatency,
}

impl LiveEpisode {
    /// Creates an episode without an observation.
    pub fn new(episode: u64) -> Self {
        Self {
            episode,
            seed: 0,
            actions: ActionQueue::default(),
            window: Window::new(Arc::new(Observation::default())),
            length: 0,
            return_: 0.0,
            max_reward: None,
            solved_once: false,
            solved_now: false,
            started: now(),
            infer_calls: 0,
            out_of_bounds: 0,
            latency: FeltLatency::default(),
        }
    }

    /// Adds the reward of a step.
    pub fn reward(&mut self, reward: f32) {
        let reward = f64::from(reward);
        self.return_ += reward;
        self.max_reward = Some(self.max_reward.map_or(reward, |most| most.max(reward)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_reward_may_be_negative_and_is_none_before_the_first_step() {
        let mut live = LiveEpisode::new(0);
        assert_eq!((live.return_, live.max_reward), (0.0, None));
        [-2.0, -0.5, -1.0]
            .into_iter()
            .for_each(|reward| live.reward(reward));
        assert_eq!((live.return_, live.max_reward), (-3.5, Some(-0.5)));
    }
}
