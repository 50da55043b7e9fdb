//! Keeps past observations, for checkpoints whose inputs include earlier steps.

use std::collections::{BTreeMap, VecDeque};

use crate::env::{EnvIndex, Observation};

/// The last observations of each environment.
#[derive(Debug)]
pub struct ObservationHistory {
    /// Number of past steps that are kept; 0 if only the current one counts.
    steps: usize,
    seen: BTreeMap<EnvIndex, VecDeque<Observation>>,
}

impl ObservationHistory {
    /// Creates a history as long as the most negative of `deltas` requires.
    pub fn new(deltas: impl IntoIterator<Item = i64>) -> Self {
        let back = deltas
            .into_iter()
            .map(|delta| usize::try_from(-delta).unwrap_or(0))
            .max();
        Self {
            steps: back.unwrap_or(0),
            seen: BTreeMap::new(),
        }
    }

    /// Returns how many past steps are kept.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Forgets the observations of an environment.
    pub fn forget(&mut self, env: EnvIndex) {
        self.seen.remove(&env);
    }

    /// Records the current observation of an environment.
    pub fn see(&mut self, env: EnvIndex, observation: &Observation) {
        if self.steps == 0 {
            return;
        }
        let seen = self.seen.entry(env).or_default();
        if seen.len() > self.steps {
            seen.pop_front();
        }
        seen.push_back(observation.clone());
    }

    /// Returns the observation at each of `deltas` steps from now, where 0 is `now`. Steps before
    /// the episode's first observation repeat that first one, as the reference's `MultiStepWrapper`
    /// does.
    pub fn at<'a>(
        &'a self,
        env: EnvIndex,
        now: &'a Observation,
        deltas: &[i64],
    ) -> Vec<&'a Observation> {
        let seen = self.seen.get(&env);
        let back = |steps: usize| {
            let seen = seen.filter(|seen| !seen.is_empty())?;
            seen.get((seen.len() - 1).saturating_sub(steps))
        };
        let at = |delta: &i64| match usize::try_from(-*delta) {
            Ok(steps) if steps > 0 => back(steps).unwrap_or(now),
            _ => now,
        };
        deltas.iter().map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(step: f32) -> Observation {
        let mut observation = Observation::empty();
        observation.state.insert("step".to_owned(), vec![step]);
        observation
    }

    fn steps(history: &ObservationHistory, now: f32, deltas: &[i64]) -> Vec<f32> {
        let now = observation(now);
        history
            .at(EnvIndex(0), &now, deltas)
            .iter()
            .map(|seen| seen.state["step"][0])
            .collect()
    }

    #[test]
    fn before_the_first_observation_there_is_the_first() {
        let mut history = ObservationHistory::new([-3, 0]);
        history.see(EnvIndex(0), &observation(0.0));
        history.see(EnvIndex(0), &observation(1.0));
        assert_eq!(steps(&history, 1.0, &[-3, -1, 0]), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn no_more_is_kept_than_is_looked_at() {
        let mut history = ObservationHistory::new([-3, 0]);
        (0..10).for_each(|step| history.see(EnvIndex(0), &observation(step as f32)));
        assert_eq!(steps(&history, 9.0, &[-3, -2, 0]), [6.0, 7.0, 9.0]);
        assert_eq!(history.seen[&EnvIndex(0)].len(), 4);
        history.forget(EnvIndex(0));
        assert_eq!(steps(&history, 5.0, &[-3]), [5.0]);
    }

    #[test]
    fn a_checkpoint_that_looks_at_now_keeps_nothing() {
        let mut history = ObservationHistory::new([0]);
        history.see(EnvIndex(0), &observation(0.0));
        assert!(history.seen.is_empty() && history.steps() == 0);
    }
}
