//! When an episode ends, and as what.

use jobs::episode::End;
use jobs::job::Rollout;

use crate::env::{EnvSpec, Step};

/// The rules of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    ignores_terminations: bool,
    ends_on_success: bool,
    /// Steps after which an episode is cut, whatever the environment says.
    limit: u64,
}

/// What of a step bears on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// The success predicate holds, or has held before in this episode.
    pub success: bool,
    /// The task ended.
    pub terminated: bool,
    /// The environment's time limit.
    pub truncated: bool,
    /// Steps taken so far, this one counted.
    pub length: u64,
}

impl Signs {
    /// Those of a step, in an episode that may have been solved before.
    pub fn of(step: &Step, length: u64, was_solved: bool) -> Self {
        let Step { success, terminated, truncated, .. } = *step;
        Self { success: success || was_solved, terminated, truncated, length }
    }
}

impl Ending {
    /// The rules of a job in an environment.
    pub fn new(rollout: &Rollout, env: &EnvSpec) -> Self {
        Self::of(rollout, env.max_episode_steps, env.ends_on_success)
    }

    fn of(rollout: &Rollout, max_episode_steps: u32, ends_on_success: bool) -> Self {
        // An environment may not count on beyond an end that is ignored: its limit is kept here, too.
        let own = if rollout.ignore_terminations { u64::from(max_episode_steps) } else { u64::MAX };
        Self {
            ignores_terminations: rollout.ignore_terminations,
            ends_on_success,
            limit: rollout.episode_limit().unwrap_or(u64::MAX).min(own),
        }
    }

    /// How the episode ends with this step, if it does. A success is remembered, and is the episode's when something
    /// else ends it (RLinf: `success_once`); whether it is an end itself is for the environment to say. What is ignored
    /// ends nothing.
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
        let (success, terminated, truncated) = (has("success"), has("terminated"), has("truncated"));
        ending.after(Signs { success, terminated, truncated, length })
    }

    fn rules(ignore_terminations: bool, epoch: Option<u64>, auto_reset: bool) -> Ending {
        let rollout =
            Rollout { ignore_terminations, auto_reset, max_steps_per_rollout_epoch: epoch, ..Rollout::default() };
        Ending::of(&rollout, 10, true)
    }

    #[test]
    fn an_episode_ends_with_its_task_or_its_time() {
        let usual = rules(false, None, false);
        assert_eq!(after(usual, 3, ""), None);
        assert_eq!(after(usual, 3, "success terminated"), Some(End::Success));
        assert_eq!(after(usual, 3, "terminated"), Some(End::Terminated));
        assert_eq!(after(usual, 10, "truncated"), Some(End::TimeLimit));
        assert_eq!(after(usual, 10, ""), None, "the environment itself says when its time is over");
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
        assert_eq!(after(rules(false, Some(5), false), 5, ""), Some(End::TimeLimit));
        assert_eq!(after(rules(false, Some(5), true), 5, ""), None, "an epoch is not the end of it");
        assert_eq!(after(rules(true, Some(5), false), 5, "success"), Some(End::Success));
    }
}
