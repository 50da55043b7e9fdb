//! Environments that take their turns together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use crate::env::{Answer, EnvIndex};
use crate::eval::live::Live;
use crate::eval::now;
use crate::eval::schedule::Schedule;

/// Environments that take their turns together.
pub struct Group {
    /// Which.
    pub envs: Range<usize>,
    /// What each has to do.
    pub schedule: Schedule,
    /// Environments that the policy infers for.
    pub thinking: Vec<EnvIndex>,
    /// Commands that are not answered yet.
    pub outstanding: usize,
    /// Answers to the others.
    pub answers: BTreeMap<EnvIndex, Answer>,
    /// Actions that were taken, until their answer is worked off.
    pub actions: BTreeMap<EnvIndex, Vec<f32>>,
    /// When the commands were sent.
    pub since: Instant,
}

impl Group {
    /// Nothing has been asked of anyone.
    pub fn new(envs: Range<usize>, schedule: Schedule) -> Self {
        let (answers, actions) = (BTreeMap::new(), BTreeMap::new());
        Self { envs, schedule, thinking: Vec::new(), outstanding: 0, answers, actions, since: now() }
    }

    /// Whether an answer of the policy or of an environment is to come.
    pub fn is_waiting(&self) -> bool {
        self.outstanding > 0 || !self.thinking.is_empty()
    }

    /// Who is waited for, and what each is doing.
    pub fn waits_for(&self, live: &BTreeMap<EnvIndex, Live>) -> String {
        if !self.thinking.is_empty() {
            let envs: Vec<_> = self.thinking.iter().map(|env| env.0.to_string()).collect();
            return format!("the policy infers for environments {}", envs.join(", "));
        }
        let silent = self.envs.clone().map(EnvIndex).filter(|env| !self.answers.contains_key(env));
        let silent = silent.filter_map(|env| {
            let live = live.get(&env)?;
            let doing = if self.actions.contains_key(&env) { "steps" } else { "is reset" };
            Some(format!("environment {} {doing} (episode {}, step {})", env.0, live.episode, live.length))
        });
        silent.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{EnvError, Observation};
    use crate::eval::schedule::Waiting;

    #[test]
    fn whoever_has_not_answered_is_named_with_its_step() {
        let schedule = Schedule::new(Waiting::Anyone(Box::new(0..2)), 2..4, 1, None);
        let mut group = Group::new(2..4, schedule);
        let live =
            BTreeMap::from([(EnvIndex(2), Live::new(0, 7)), (EnvIndex(3), Live { length: 17, ..Live::new(1, 8) })]);
        assert!(!group.is_waiting());
        group.outstanding = 1;
        group.actions.insert(EnvIndex(3), vec![0.0]);
        group.answers.insert(EnvIndex(2), Answer::Reset(Ok::<Observation, EnvError>(Observation::empty())));
        assert!(group.is_waiting());
        assert_eq!(group.waits_for(&live), "environment 3 steps (episode 1, step 17)");
        group.thinking = vec![EnvIndex(2), EnvIndex(3)];
        assert_eq!(group.waits_for(&live), "the policy infers for environments 2, 3");
    }
}
