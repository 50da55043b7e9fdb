//! The two policies that look at nothing: zero and random actions.

use std::collections::BTreeMap;

use crate::env::{ActionSpec, EnvIndex, Observation};
use crate::policy::{Chunk, EpisodeStart, Policy, PolicyError, PolicySpec};

/// Does nothing: zero in every dimension, or the bound that is nearest to zero.
#[derive(Debug)]
pub struct ZeroAction {
    action: Vec<f32>,
}

impl ZeroAction {
    /// For this action vector.
    pub fn new(action: &ActionSpec) -> Self {
        let nearest = |(low, high): (&f32, &f32)| 0.0f32.max(*low).min(*high);
        Self { action: action.low.iter().zip(&action.high).map(nearest).collect() }
    }
}

impl Policy for ZeroAction {
    fn spec(&self) -> PolicySpec {
        PolicySpec { action_horizon: 1, needs_video: false, looks_back: 0, num_episodes: None }
    }

    fn reset(&mut self, _: &[EpisodeStart]) {}

    fn act(&mut self, rows: &[(EnvIndex, &Observation)]) -> Result<Vec<Chunk>, PolicyError> {
        Ok(rows.iter().map(|_| Chunk::new(self.action.len(), self.action.clone())).collect())
    }
}

/// Uniform between the bounds; a function of the episode's seed and the step alone.
#[derive(Debug)]
pub struct RandomAction {
    action: ActionSpec,
    streams: BTreeMap<EnvIndex, u64>,
}

impl RandomAction {
    /// For this action vector.
    pub fn new(action: &ActionSpec) -> Self {
        Self { action: action.clone(), streams: BTreeMap::new() }
    }
}

impl Policy for RandomAction {
    fn spec(&self) -> PolicySpec {
        PolicySpec { action_horizon: 1, needs_video: false, looks_back: 0, num_episodes: None }
    }

    fn reset(&mut self, starts: &[EpisodeStart]) {
        self.streams.extend(starts.iter().map(|start| (start.env, start.seed)));
    }

    fn act(&mut self, rows: &[(EnvIndex, &Observation)]) -> Result<Vec<Chunk>, PolicyError> {
        let mut chunks = Vec::with_capacity(rows.len());
        for (env, _) in rows {
            let stream = self.streams.entry(*env).or_default();
            let bounds = self.action.low.iter().zip(&self.action.high);
            let action: Vec<_> = bounds.map(|(low, high)| low + (high - low) * uniform(stream)).collect();
            chunks.push(Chunk::new(action.len(), action));
        }
        Ok(chunks)
    }
}

/// In `[0, 1)`, by SplitMix64 (Steele, Lea, Flood 2014).
fn uniform(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::observation;

    fn spec() -> ActionSpec {
        ActionSpec { names: vec!["a".into(), "b".into()], low: vec![-1.0, 2.0], high: vec![1.0, 3.0] }
    }

    #[test]
    fn zero_stays_within_the_bounds() {
        let chunks = ZeroAction::new(&spec()).act(&[(EnvIndex(0), &observation())]).unwrap();
        assert_eq!(chunks[0].action(0), Some(&[0.0, 2.0][..]));
    }

    #[test]
    fn random_actions_follow_the_episode_and_not_the_environment() {
        let actions = |env: usize, others: usize| {
            let mut policy = RandomAction::new(&spec());
            policy.reset(&[EpisodeStart { env: EnvIndex(env), episode: 3, seed: 99 }]);
            let observation = observation();
            (0..5)
                .map(|_| {
                    let rows: Vec<_> = (0..=others).map(|index| (EnvIndex(env + index), &observation)).collect();
                    policy.act(&rows).unwrap().remove(0)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(actions(0, 0), actions(7, 3));
        assert!(actions(0, 0).windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn random_actions_stay_within_the_bounds() {
        let mut stream = 1;
        assert!((0..10_000).map(|_| uniform(&mut stream)).all(|value| (0.0..1.0).contains(&value)));
    }
}
