//! The rules for when an episode ends, and with which outcome. Pure: no I/O.

use jobs::episode::End;
use jobs::job::Rollout;

use crate::env::{EnvSpec, Step};
use crate::record::EpisodeEnd;

/// The rules of one job for the end of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    ignores_terminations: bool,
    ends_on_success: bool,
    /// Maximum number of steps of an episode, whatever the environment reports.
    limit: u64,
}

/// The facts about one step that can end an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// The success predicate holds now, or held before in this episode.
    pub success: bool,
    /// The environment terminated the episode.
    pub terminated: bool,
    /// The environment truncated the episode at its time limit.
    pub truncated: bool,
    /// Number of steps so far, including this one.
    pub length: u64,
}

impl Signs {
    /// Returns the signs of `step`; `was_solved` says whether the success predicate held before in
    /// this episode.
    pub fn of(step: &Step, length: u64, was_solved: bool) -> Self {
        let Step {
            success,
            terminated,
            truncated,
            ..
        } = *step;
        Self {
            success: success || was_solved,
            terminated,
            truncated,
            length,
        }
    }
}

/// How an episode ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedEpisode {
    /// The outcome in the journal.
    pub end: End,
    /// The outcome in the dataset.
    pub recorded: EpisodeEnd,
}

impl EndedEpisode {
    /// Returns the outcome of an episode that ends with `step`.
    pub fn of(end: End, step: &Step) -> Self {
        Self {
            end,
            recorded: EpisodeEnd {
                success: end == End::Success,
                terminated: step.terminated,
                truncated: step.truncated || end == End::TimeLimit,
            },
        }
    }
}

impl Ending {
    /// Returns the rules of a job for an environment.
    pub fn new(rollout: &Rollout, env: &EnvSpec) -> Self {
        Self::of(rollout, env.max_episode_steps, env.ends_on_success)
    }

    fn of(rollout: &Rollout, max_episode_steps: u32, ends_on_success: bool) -> Self {
        // An environment may not truncate after a termination that was ignored, so its limit is
        // enforced here as well.
        let own = if rollout.ignore_terminations {
            u64::from(max_episode_steps)
        } else {
            u64::MAX
        };
        Self {
            ignores_terminations: rollout.ignore_terminations,
            ends_on_success,
            limit: rollout.episode_limit().unwrap_or(u64::MAX).min(own),
        }
    }

    /// Returns the outcome of the episode if it ends with this step. A success is remembered and
    /// becomes the outcome when something else ends the episode (RLinf: `success_once`). The
    /// environment decides whether a success itself ends the episode. An ignored termination ends
    /// nothing.
    pub fn after(&self, signs: Signs) -> Option<End> {
        let is_over = signs.truncated || signs.length >= self.limit;
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

    fn after(ending: Ending, length: u64, words: &str) -> Option<End> {
        let has = |word: &str| words.contains(word);
        let (success, terminated, truncated) =
            (has("success"), has("terminated"), has("truncated"));
        ending.after(Signs {
            success,
            terminated,
            truncated,
            length,
        })
    }

    fn rules(ignore_terminations: bool, epoch: Option<u64>, auto_reset: bool) -> Ending {
        let rollout = Rollout {
            ignore_terminations,
            auto_reset,
            max_steps_per_rollout_epoch: epoch,
            ..Rollout::default()
        };
        Ending::of(&rollout, 10, true)
    }

    #[test]
    fn an_episode_ends_with_its_task_or_its_time() {
        let usual = rules(false, None, false);
        assert_eq!(after(usual, 3, ""), None);
        assert_eq!(after(usual, 3, "success terminated"), Some(End::Success));
        assert_eq!(after(usual, 3, "terminated"), Some(End::Terminated));
        assert_eq!(after(usual, 10, "truncated"), Some(End::TimeLimit));
        assert_eq!(
            after(usual, 10, ""),
            None,
            "the environment itself says when its time is over"
        );
    }

    #[test]
    fn an_environment_that_goes_on_after_a_success_has_it_remembered() {
        let goes_on = Ending::of(&Rollout::default(), 10, false);
        assert_eq!(after(goes_on, 3, "success"), None);
        assert_eq!(after(goes_on, 5, "success terminated"), Some(End::Success));
        assert_eq!(after(goes_on, 10, "success truncated"), Some(End::Success));
        assert_eq!(after(goes_on, 5, "terminated"), Some(End::Terminated));
        assert_eq!(after(goes_on, 10, "truncated"), Some(End::TimeLimit));
    }

    #[test]
    fn an_ignored_end_is_remembered_until_the_time_is_over() {
        let patient = rules(true, None, false);
        assert_eq!(after(patient, 3, "success terminated"), None);
        assert_eq!(after(patient, 3, "terminated"), None);
        assert_eq!(after(patient, 10, "success terminated"), Some(End::Success));
        assert_eq!(after(patient, 10, "terminated"), Some(End::TimeLimit));
        assert_eq!(after(patient, 7, "truncated success"), Some(End::Success));
    }

    #[test]
    fn without_auto_reset_an_episode_is_no_longer_than_its_epoch() {
        assert_eq!(
            after(rules(false, Some(5), false), 5, ""),
            Some(End::TimeLimit)
        );
        assert_eq!(
            after(rules(false, Some(5), true), 5, ""),
            None,
            "an epoch is not the end of it"
        );
        assert_eq!(
            after(rules(true, Some(5), false), 5, "success"),
            Some(End::Success)
        );
    }
}
