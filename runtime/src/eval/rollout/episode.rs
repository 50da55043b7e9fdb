//! A running episode, and the rules for when it ends, and with which outcome.

use std::sync::Arc;
use std::time::Instant;

use jobs::episode::{End, Episode, FeltLatency};
use jobs::job::Rollout;

use crate::clock::now;
use crate::env::{EnvSpec, Observation};
use crate::eval::rollout::schedule::action_queue::ActionQueue;
use crate::policy::Window;
use crate::record::EpisodeEnd;

/// A running episode.
pub struct LiveEpisode {
    /// Its journal line as far as it is known: its number, and what its steps and inferences add
    /// to.
    pub line: Episode,
    /// The actions that the policy has chosen.
    pub actions: ActionQueue,
    /// The latest observations.
    pub window: Window,
    /// True if the success predicate held after any step.
    pub solved_once: bool,
    /// True if the success predicate held after the last step.
    pub solved_now: bool,
    /// Time at which the reset was sent.
    pub started: Instant,
    /// The inferences during which the episode went on, if its job has a latency.
    pub latency: FeltLatency,
}

impl LiveEpisode {
    /// Creates an episode without an observation.
    pub fn new(episode: u64) -> Self {
        Self {
            line: Episode {
                episode,
                ..Episode::default()
            },
            actions: ActionQueue::default(),
            window: Window::new(Arc::new(Observation::default())),
            solved_once: false,
            solved_now: false,
            started: now(),
            latency: FeltLatency::default(),
        }
    }

    /// Adds the reward of a step.
    pub fn reward(&mut self, reward: f32) {
        let reward = f64::from(reward);
        let most = self.line.max_reward;
        self.line.return_ += reward;
        self.line.max_reward = Some(most.map_or(reward, |most| most.max(reward)));
    }
}

/// The rules of one job for the end of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    ignores_terminations: bool,
    ends_on_success: bool,
    /// Maximum number of steps of an episode, whatever the environment reports.
    limit: u64,
}

impl Ending {
    /// Returns the rules of a job for an environment.
    pub fn new(rollout: &Rollout, env: &EnvSpec) -> Self {
        // An environment may not truncate after a termination that was ignored, so its limit is
        // enforced here as well.
        let own = if rollout.ignore_terminations {
            u64::from(env.max_episode_steps)
        } else {
            u64::MAX
        };
        Self {
            ignores_terminations: rollout.ignore_terminations,
            ends_on_success: env.ends_on_success,
            limit: rollout.episode_limit().unwrap_or(u64::MAX).min(own),
        }
    }

    /// Returns the outcome of the episode if it ends with step number `length`, from 1, after which
    /// the success predicate holds or has held before, and which the environment has terminated or
    /// truncated. A success is remembered and becomes the outcome when something else ends the
    /// episode (RLinf: `success_once`). The environment decides whether a success itself ends the
    /// episode. An ignored termination ends nothing.
    pub fn after(&self, signs: EpisodeEnd, length: u64) -> Option<End> {
        let is_over = signs.truncated || length >= self.limit;
        let ends = signs.terminated || (signs.success && self.ends_on_success);
        match (signs.success, ends && !self.ignores_terminations, is_over) {
            (true, true, _) | (true, _, true) => Some(End::Success),
            (false, true, _) => Some(End::Terminated),
            (false, false, true) => Some(End::TimeLimit),
            (_, false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_reward_may_be_negative_and_is_none_before_the_first_step() {
        let mut live = LiveEpisode::new(0);
        assert_eq!((live.line.return_, live.line.max_reward), (0.0, None));
        [-2.0, -0.5, -1.0]
            .into_iter()
            .for_each(|reward| live.reward(reward));
        assert_eq!(
            (live.line.return_, live.line.max_reward),
            (-3.5, Some(-0.5))
        );
    }

    /// Returns how an episode ends, if it does, after this many steps with these signs, under rules
    /// of which `goes on` is that of the environment; its time is 10 steps.
    fn end(given: &str) -> String {
        let (rules, signs) = given.split_once(": ").unwrap();
        let epoch = rules.split_once("epoch ").map(|(_, rest)| {
            let number = rest.split_whitespace().next().unwrap();
            number.parse().unwrap()
        });
        let rollout = Rollout {
            ignore_terminations: rules.contains("ignores"),
            auto_reset: rules.contains("resets"),
            max_steps_per_rollout_epoch: epoch,
            ..Rollout::default()
        };
        let mut env = crate::policy::tests::env_spec();
        (env.max_episode_steps, env.ends_on_success) = (10, !rules.contains("goes on"));
        let ending = Ending::new(&rollout, &env);
        let length = signs.split_whitespace().next().unwrap().parse().unwrap();
        let signs = EpisodeEnd {
            success: signs.contains("success"),
            terminated: signs.contains("terminated"),
            truncated: signs.contains("truncated"),
        };
        let end = ending.after(signs, length);
        format!("{end:?}")
    }

    #[test]
    fn an_episode_ends_with_its_task_or_its_time() {
        rig::cases::check("src/eval/rollout/episode.txt", end);
    }
}
