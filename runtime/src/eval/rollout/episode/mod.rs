//! The state of a running episode, and the journal line that it becomes.

pub mod ending;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use jobs::episode::{End, Episode, FeltLatency};
use jobs::job::Job;
use jobs::time::rfc3339;

use crate::clock::now;
use crate::env::{EnvIndex, Observation};
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

/// Where an episode ran: rank, environment and build.
#[derive(Clone, Copy, Debug)]
pub struct EpisodePlace {
    /// Global rank.
    pub rank: usize,
    /// Index of the environment within the rank.
    pub env: EnvIndex,
    /// Number of the build of the environment.
    pub rebuild: u64,
}

impl LiveEpisode {
    /// Creates an episode without an observation.
    pub fn new(episode: u64) -> Self {
        Self {
            episode,
            seed: 0,
            actions: ActionQueue::default(),
            window: Window::new(Arc::new(Observation::empty())),
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

    /// Returns the journal line of an episode that ended with `end`.
    pub fn ended(self, job: &Job, at: EpisodePlace, end: End) -> Episode {
        let is_scored = end != End::Error;
        Episode {
            job: job.name.clone(),
            job_index: job.index,
            episode: self.episode,
            seed: self.seed,
            rank: at.rank,
            env: at.env.0,
            rebuild: at.rebuild,
            success: is_scored.then_some(end == End::Success),
            success_at_end: is_scored.then_some(self.solved_now),
            end,
            length: self.length,
            return_: self.return_,
            max_reward: self.max_reward,
            language_instruction: self.window.now().language.to_string(),
            wall_s: self.started.elapsed().as_secs_f64(),
            infer_calls: self.infer_calls,
            actions_out_of_bounds: self.out_of_bounds,
            latency: job.latency.is_some().then_some(self.latency),
            ended: rfc3339(SystemTime::now()),
            error: None,
            dataset: None,
            video: None,
            episode_video: None,
            metrics: BTreeMap::new(),
        }
    }

    /// Returns the journal line of an episode that an error ended.
    pub fn errored(self, job: &Job, at: EpisodePlace, reason: String) -> Episode {
        Episode {
            error: Some(reason),
            ..self.ended(job, at, End::Error)
        }
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
