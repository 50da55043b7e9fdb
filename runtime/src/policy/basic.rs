//! The two policies that ignore observations: zero and random actions.

use crate::env::ActionSpec;
use crate::policy::{Chunk, PerEpisode, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer};

/// Takes the action closest to zero: zero in every dimension, or the bound that is nearest to it.
#[derive(Debug)]
pub struct ZeroAction {
    action: Vec<f32>,
}

impl ZeroAction {
    /// Creates the policy for this action vector.
    pub fn new(action: &ActionSpec) -> Self {
        let nearest = |(low, high): (&f32, &f32)| 0.0f32.max(*low).min(*high);
        Self {
            action: action.low.iter().zip(&action.high).map(nearest).collect(),
        }
    }
}

impl Policy for ZeroAction {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: 1,
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let chunk = || Chunk::new(self.action.len(), self.action.clone());
        Ok(rows.iter().map(|_| RowAnswer::Chunk(chunk())).collect())
    }
}

/// Samples the action space as gymnasium's `Space.sample` does; the actions depend only on the
/// episode's seed and the step.
///
/// Between two bounds all values are equally likely; on a grid, both ends are included. With one
/// bound, the distance from it is exponentially distributed with mean 1. Without bounds, the value
/// is normally distributed with mean 0 and variance 1.
#[derive(Debug)]
pub struct RandomAction {
    action: ActionSpec,
    streams: PerEpisode<u64>,
}

impl RandomAction {
    /// Creates the policy for this action vector.
    pub fn new(action: &ActionSpec) -> Self {
        Self {
            action: action.clone(),
            streams: PerEpisode::default(),
        }
    }
}

impl Policy for RandomAction {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: 1,
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let mut answers = Vec::with_capacity(rows.len());
        for row in rows {
            let stream = self.streams.of(row, || row.seed);
            let range = self.action.low.iter().zip(&self.action.high).enumerate();
            let sample = |(at, (low, high)): (usize, (&f32, &f32))| {
                sample(*low, *high, self.action.grid_of(at), stream)
            };
            let action: Vec<_> = range.map(sample).collect();
            answers.push(RowAnswer::Chunk(Chunk::new(action.len(), action)));
        }
        Ok(answers)
    }
}

/// Samples one component of an action.
fn sample(low: f32, high: f32, grid: f32, stream: &mut u64) -> f32 {
    let (is_low, is_high) = (low.is_finite(), high.is_finite());
    let grid = f64::from(grid);
    let on_grid = |value: f64| {
        if grid > 0.0 {
            (value / grid).floor() * grid
        } else {
            value
        }
    };
    match (is_low, is_high) {
        (true, true) if grid > 0.0 => {
            let (low, high) = (f64::from(low), f64::from(high));
            // The tolerance of a millionth allows for the rounding of the bounds to float32.
            let values = ((high - low) / grid + 1e-6).floor() + 1.0;
            (low + (fine(stream) * values).floor() * grid) as f32
        }
        (true, true) if (high - low).is_finite() => low + (high - low) * uniform(stream),
        (true, true) => {
            let part = fine(stream);
            (f64::from(low) * (1.0 - part) + f64::from(high) * part) as f32
        }
        (true, false) => (f64::from(low) + on_grid(exponential(stream))) as f32,
        (false, true) => (f64::from(high) + on_grid(-exponential(stream))) as f32,
        (false, false) => on_grid(normal(stream)) as f32,
    }
}

/// Returns random bits from SplitMix64 (Steele, Lea, Flood 2014).
fn bits(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a uniform value in `[0, 1)`.
fn uniform(state: &mut u64) -> f32 {
    (bits(state) >> 40) as f32 / (1u64 << 24) as f32
}

/// Returns a uniform value in `[0, 1)` with a finer resolution.
fn fine(state: &mut u64) -> f64 {
    (bits(state) >> 11) as f64 / (1u64 << 53) as f64
}

fn exponential(state: &mut u64) -> f64 {
    -(1.0 - fine(state)).ln()
}

/// Returns a standard normal value by the Box–Muller transform (1958).
fn normal(state: &mut u64) -> f64 {
    let radius = (2.0 * exponential(state)).sqrt();
    radius * (std::f64::consts::TAU * fine(state)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::{chunks, observation, row};

    fn spec() -> ActionSpec {
        ActionSpec {
            names: vec!["a".into(), "b".into()],
            low: vec![-1.0, 2.0],
            high: vec![1.0, 3.0],
            grid: vec![],
        }
    }

    /// Returns samples of one dimension, from the streams of many episodes.
    fn samples(low: f32, high: f32, grid: f32) -> Vec<f64> {
        let mut actions = Vec::new();
        for seed in 0..200u64 {
            let mut stream = seed.wrapping_mul(0x9e37_79b9);
            actions.extend((0..100).map(|_| f64::from(sample(low, high, grid, &mut stream))));
        }
        actions
    }

    /// Asserts that counts which should be equal are plausible: Pearson's statistic must be below
    /// the value that one in a million draws exceeds (Wilson and Hilferty's approximation of the
    /// quantile).
    fn assert_alike(name: &str, counts: &[u64]) {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let statistic: f64 = counts
            .iter()
            .map(|count| (*count as f64 - expected).powi(2) / expected)
            .sum();
        let freedom = counts.len() as f64 - 1.0;
        let part = 2.0 / (9.0 * freedom);
        let limit = freedom * (1.0 - part + 4.75 * part.sqrt()).powi(3);
        assert!(
            statistic < limit,
            "{name}: {statistic:.1} is above {limit:.1}: {counts:?}"
        );
    }

    /// Counts the samples at each of `values` grid points from `low` on, all of which must occur.
    fn by_value(low: f64, grid: f64, values: usize, samples: &[f64]) -> Vec<u64> {
        let mut counts = vec![0; values];
        samples
            .iter()
            .for_each(|value| counts[((value - low) / grid).round() as usize] += 1);
        counts
    }

    /// Counts the samples in `parts` parts of equal probability.
    fn by_part(parts: usize, samples: &[f64], distribution: impl Fn(f64) -> f64) -> Vec<u64> {
        let mut counts = vec![0; parts];
        samples.iter().for_each(|value| {
            counts[((distribution(*value) * parts as f64) as usize).min(parts - 1)] += 1
        });
        counts
    }

    #[test]
    fn every_value_of_a_space_of_whole_numbers_is_as_likely_as_another() {
        let spaces = [
            ("Discrete(3)", 0.0, 3, 1.0),
            ("Discrete(5, start=-2)", -2.0, 5, 1.0),
            ("MultiDiscrete, one of 7", 0.0, 7, 1.0),
            ("MultiBinary", 0.0, 2, 1.0),
            ("Box of int8, 10 to 20", 10.0, 11, 1.0),
            ("Discrete(4) behind `scale: 4`", 0.0, 4, 0.25),
        ];
        for (name, low, values, grid) in spaces {
            let high = low + (values - 1) as f64 * grid;
            let samples = samples(low as f32, high as f32, grid as f32);
            let mut steps = samples.iter().map(|value| (value - low) / grid);
            assert!(steps.all(|step| step.fract() == 0.0), "{name}");
            assert_alike(name, &by_value(low, grid, values, &samples));
        }
    }

    #[test]
    fn a_range_is_sampled_evenly_one_bound_exponentially_and_none_normally() {
        let infinity = f32::INFINITY;
        let widest = f64::from(f32::MAX);
        type Distribution = fn(f64, f64) -> f64;
        let spaces: [(&str, f32, f32, Distribution); 4] = [
            ("-2 to 3", -2.0, 3.0, |x, _| (x + 2.0) / 5.0),
            ("all floats", f32::MIN, f32::MAX, |x, widest| {
                (x / widest + 1.0) / 2.0
            }),
            ("from 1", 1.0, infinity, |x, _| 1.0 - (1.0 - x).exp()),
            ("to 1", -infinity, 1.0, |x, _| (x - 1.0).exp()),
        ];
        for (name, low, high, distribution) in spaces {
            let samples = samples(low, high, 0.0);
            assert_alike(name, &by_part(50, &samples, |x| distribution(x, widest)));
        }
        // The quartiles of the normal distribution, at 0 and ±0.67449, divide it into four parts.
        let quartile = |x: f64| {
            [-0.674_489_750_196, 0.0, 0.674_489_750_196]
                .iter()
                .filter(|q| x >= **q)
                .count() as f64
                / 4.0
        };
        let normal = samples(-infinity, infinity, 0.0);
        assert_alike("unbounded", &by_part(4, &normal, quartile));
        let variance = normal.iter().map(|x| x * x).sum::<f64>() / normal.len() as f64;
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
    }

    #[test]
    fn whole_numbers_without_an_end_are_whole_and_finite() {
        for (low, high) in [
            (f32::NEG_INFINITY, f32::INFINITY),
            (3.0, f32::INFINITY),
            (f32::NEG_INFINITY, 3.0),
        ] {
            let range = f64::from(low)..=f64::from(high);
            for value in samples(low, high, 1.0) {
                assert!(value.is_finite() && value.fract() == 0.0, "{value}");
                assert!(range.contains(&value), "{value}");
            }
        }
    }

    #[test]
    fn zero_stays_within_the_bounds() {
        let chunks = chunks(ZeroAction::new(&spec()).act(&[row(0, observation())]));
        assert_eq!(chunks[0].action(0), Some(&[0.0, 2.0][..]));
    }

    #[test]
    fn random_actions_follow_the_episode_and_not_the_environment() {
        let actions = |env: usize, others: usize| {
            let mut policy = RandomAction::new(&spec());
            [0, 1, 2, 3, 4].map(|inference| {
                let row = |index| PolicyRow {
                    seed: 99,
                    inference,
                    ..row(env + index, observation())
                };
                let rows: Vec<_> = (0..=others).map(row).collect();
                policy.act(&rows).unwrap().remove(0)
            })
        };
        assert_eq!(actions(0, 0), actions(7, 3));
        assert!(actions(0, 0).windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn random_actions_stay_within_the_bounds() {
        let mut stream = 1;
        assert!(
            (0..10_000)
                .map(|_| uniform(&mut stream))
                .all(|value| (0.0..1.0).contains(&value))
        );
    }
}
