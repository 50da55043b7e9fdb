//! Collects the answers of commands that were sent together, so that the evaluation loop wakes up
//! once for all of them. Pure: no I/O and no clock of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::env::{Answer, AnswerBatch, EnvIndex};

/// Longest time for which an answer is kept back. The loop can do nothing before the last answer
/// but tell the user who has not answered.
const LONGEST: Duration = Duration::from_millis(100);

/// Commands that were sent together.
#[derive(Debug, Default)]
struct Round {
    /// Number of answers that have not arrived.
    waiting: usize,
    arrived: AnswerBatch,
    /// Time at which the first of `arrived` came.
    since: Option<Instant>,
}

/// The rounds whose answers have not all arrived.
#[derive(Debug, Default)]
pub struct Rounds {
    open: BTreeMap<u64, Round>,
    /// The round of each copy that has a command.
    of: BTreeMap<EnvIndex, u64>,
    next: u64,
}

impl Rounds {
    /// Opens a round with one command for each of these copies.
    pub fn begin(&mut self, envs: impl IntoIterator<Item = EnvIndex>) {
        let mut round = Round::default();
        for env in envs {
            round.waiting += 1;
            let before = self.of.insert(env, self.next);
            if let Some(before) = before.and_then(|number| self.open.get_mut(&number)) {
                before.waiting = before.waiting.saturating_sub(1);
            }
        }
        self.open.insert(self.next, round);
        self.next += 1;
    }

    /// Takes an answer. Returns those of its round if it is the last of them.
    pub fn on(&mut self, env: EnvIndex, answer: Answer, now: Instant) -> AnswerBatch {
        let number = self.of.get(&env).copied();
        let Some((number, round)) =
            number.and_then(|number| Some((number, self.open.get_mut(&number)?)))
        else {
            return vec![(env, answer)];
        };
        // The episode that the copy begins by itself is answered, too.
        if !matches!(answer, Answer::Last { .. }) {
            round.waiting = round.waiting.saturating_sub(1);
            self.of.remove(&env);
        }
        round.arrived.push((env, answer));
        round.since.get_or_insert(now);
        if round.waiting > 0 {
            return Vec::new();
        }
        self.open
            .remove(&number)
            .map_or_else(Vec::new, |round| round.arrived)
    }

    /// Returns when [`Rounds::overdue`] has to be called; `None` if no answer is kept back.
    pub fn due(&self) -> Option<Instant> {
        let since = self.open.values().filter_map(|round| round.since);
        since.min().map(|since| since + LONGEST)
    }

    /// Returns the answers that were kept back for too long.
    pub fn overdue(&mut self, now: Instant) -> AnswerBatch {
        let is_late = |since: Instant| now.saturating_duration_since(since) >= LONGEST;
        let mut late = Vec::new();
        for round in self.open.values_mut() {
            if round.since.is_some_and(is_late) {
                late.append(&mut round.arrived);
                round.since = None;
            }
        }
        self.open.retain(|_, round| round.waiting > 0);
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::env::EnvError;

    fn answer() -> Answer {
        Answer::Reset(Err(EnvError::Setup(String::new())))
    }

    fn last(next: u64) -> Answer {
        Answer::Last {
            step: Err(EnvError::Setup(String::new())),
            next,
        }
    }

    fn envs(batch: &AnswerBatch) -> Vec<usize> {
        batch.iter().map(|(env, _)| env.0).collect()
    }

    #[test]
    fn the_last_answer_brings_the_others_of_its_round() {
        let (mut rounds, at) = (Rounds::default(), now());
        rounds.begin([0, 2].map(EnvIndex));
        rounds.begin([1].map(EnvIndex));
        let mut on = |env, answer| envs(&rounds.on(EnvIndex(env), answer, at));
        assert!(on(2, answer()).is_empty());
        assert_eq!(on(1, answer()), [1]);
        let ended = on(0, last(7));
        assert!(ended.is_empty(), "the reset of episode 7 is to come");
        assert_eq!(on(0, answer()), [2, 0, 0]);
        assert_eq!(on(0, answer()), [0], "nobody waits for it");
        assert_eq!(rounds.due(), None);
    }

    #[test]
    fn an_answer_is_not_kept_back_for_long() {
        let (mut rounds, start) = (Rounds::default(), now());
        rounds.begin([0, 1].map(EnvIndex));
        rounds.on(EnvIndex(1), answer(), start);
        assert_eq!(rounds.due(), Some(start + LONGEST));
        assert!(rounds.overdue(start).is_empty());
        assert_eq!(envs(&rounds.overdue(start + LONGEST)), [1]);
        assert_eq!(rounds.due(), None);
        assert_eq!(envs(&rounds.on(EnvIndex(0), answer(), start)), [0]);
    }

    #[test]
    fn a_second_command_ends_the_wait_for_the_first() {
        let (mut rounds, at) = (Rounds::default(), now());
        rounds.begin([0, 1].map(EnvIndex));
        rounds.begin([1].map(EnvIndex));
        assert_eq!(envs(&rounds.on(EnvIndex(1), answer(), at)), [1]);
        assert_eq!(envs(&rounds.on(EnvIndex(0), answer(), at)), [0]);
    }
}
