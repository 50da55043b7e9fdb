//! A group of environments that step and infer together: a stage of the pipeline.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use crate::clock::now;
use crate::env::{Answer, EnvIndex};
use crate::eval::rollout::episode::LiveEpisode;
use crate::eval::rollout::schedule::Schedule;

/// The place of an answer among those of a turn: first the answers to commands, then the first
/// observations of episodes that environments have begun by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnswerKey {
    /// False for the answer to a command.
    pub follows: bool,
    /// The environment.
    pub env: EnvIndex,
}

/// A group of environments that step and infer together.
pub struct EnvGroup<'l> {
    /// Indices of the group's environments.
    pub envs: Range<usize>,
    /// The next command of each environment.
    pub schedule: Schedule<'l>,
    /// Environments for which the policy runs inference.
    pub thinking: Vec<EnvIndex>,
    /// Number of answers of environments that have not arrived yet.
    pub outstanding: usize,
    /// Answers, in the order in which they are processed.
    pub answers: BTreeMap<AnswerKey, Answer>,
    /// Actions that were sent to environments, kept until the answer is processed.
    pub actions: BTreeMap<EnvIndex, Vec<f32>>,
    /// Time at which the commands were sent.
    pub since: Instant,
}

impl<'l> EnvGroup<'l> {
    /// Creates a group without commands or inferences under way.
    pub fn new(envs: Range<usize>, schedule: Schedule<'l>) -> Self {
        let (answers, actions) = (BTreeMap::new(), BTreeMap::new());
        Self {
            envs,
            schedule,
            thinking: Vec::new(),
            outstanding: 0,
            answers,
            actions,
            since: now(),
        }
    }

    /// Returns whether the policy or an environment still has to answer.
    pub fn is_waiting(&self) -> bool {
        self.outstanding > 0 || !self.thinking.is_empty()
    }

    /// Takes an answer. Returns true if it was the last of the turn.
    pub fn answered(&mut self, env: EnvIndex, answer: Answer) -> bool {
        // The reset of an episode that the environment begins by itself is answered, too.
        if !matches!(answer, Answer::Last { .. }) {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        let key = |follows| AnswerKey { follows, env };
        let follows = self.answers.contains_key(&key(false));
        self.answers.insert(key(follows), answer);
        self.outstanding == 0
    }

    /// Returns a description of what the group waits for, for the message about a stall.
    pub fn waits_for(&self, live: &BTreeMap<EnvIndex, LiveEpisode>) -> String {
        if !self.thinking.is_empty() {
            let envs: Vec<_> = self.thinking.iter().map(|env| env.0.to_string()).collect();
            return format!("the policy infers for environments {}", envs.join(", "));
        }
        let silent = self.envs.clone().map(EnvIndex).filter_map(|env| {
            let answer = |follows| self.answers.get(&AnswerKey { follows, env });
            if let (Some(Answer::Last { next, .. }), None) = (answer(false), answer(true)) {
                return Some(format!(
                    "environment {} is reset (episode {next}, step 0)",
                    env.0
                ));
            }
            let live = live.get(&env).filter(|_| answer(false).is_none())?;
            let doing = if self.actions.contains_key(&env) {
                "steps"
            } else {
                "is reset"
            };
            Some(format!(
                "environment {} {doing} (episode {}, step {})",
                env.0, live.episode, live.length
            ))
        });
        silent.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{EnvError, Observation};
    use crate::eval::rollout::schedule::WaitingEpisodes;

    #[test]
    fn whoever_has_not_answered_is_named_with_its_step() {
        let schedule = Schedule::new(WaitingEpisodes::Anyone(Box::new(0..2)), 2..4, 1, None);
        let mut group = EnvGroup::new(2..4, schedule);
        let live = BTreeMap::from([
            (EnvIndex(2), LiveEpisode::new(0, 7)),
            (
                EnvIndex(3),
                LiveEpisode {
                    length: 17,
                    ..LiveEpisode::new(1, 8)
                },
            ),
        ]);
        assert!(!group.is_waiting());
        group.outstanding = 2;
        group.actions.insert(EnvIndex(3), vec![0.0]);
        let observation = Ok::<Observation, EnvError>(Observation::empty());
        assert!(!group.answered(EnvIndex(2), Answer::Reset(observation)));
        assert!(group.is_waiting());
        assert_eq!(
            group.waits_for(&live),
            "environment 3 steps (episode 1, step 17)"
        );
        let step = Err(EnvError::Setup("x".to_owned()));
        assert!(!group.answered(EnvIndex(3), Answer::Last { step, next: 9 }));
        assert_eq!(
            group.waits_for(&live),
            "environment 3 is reset (episode 9, step 0)"
        );
        assert!(group.answered(EnvIndex(3), Answer::Reset(Ok(Observation::empty()))));
        let order = group.answers.keys().map(|key| (key.follows, key.env.0));
        assert_eq!(
            order.collect::<Vec<_>>(),
            [(false, 2), (false, 3), (true, 3)]
        );
        group.thinking = vec![EnvIndex(2), EnvIndex(3)];
        assert_eq!(
            group.waits_for(&live),
            "the policy infers for environments 2, 3"
        );
    }
}
