//! What Brax's PPO asks of its sizes, and the nearest ones that it accepts.
//!
//! brax/training/agents/ppo/train.py: `batch_size * num_minibatches % num_envs == 0`, `num_envs % device_count == 0`.

use std::fmt::{Display, Formatter};

use serde::Serialize;

/// Sizes that have to divide each other; each at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Environments of all devices.
    pub num_envs: u64,
    /// Unrolls of a minibatch.
    pub batch_size: u64,
    /// Minibatches of an update.
    pub num_minibatches: u64,
    /// Devices that share the environments.
    pub devices: u64,
}

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Unrolls that do not come out even.
    #[error(
        "batch_size {batch_size} × num_minibatches {num_minibatches} = {} is no multiple of num_envs {num_envs}",
        .batch_size * .num_minibatches
    )]
    Unrolls {
        /// Environments.
        num_envs: u64,
        /// Unrolls of a minibatch.
        batch_size: u64,
        /// Minibatches.
        num_minibatches: u64,
    },
    /// Environments that cannot be shared out.
    #[error("num_envs {num_envs} is no multiple of the {devices} devices")]
    Devices {
        /// Environments.
        num_envs: u64,
        /// Devices.
        devices: u64,
    },
}

/// Other sizes: those that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What is changed.
    pub from: Sizes,
    /// What is accepted.
    pub to: Sizes,
}

impl Sizes {
    /// Checks both rules.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn check(self) -> Result<(), Violation> {
        let Self { num_envs, batch_size, num_minibatches, devices } = self;
        if !num_envs.is_multiple_of(devices) {
            return Err(Violation::Devices { num_envs, devices });
        }
        if !(batch_size * num_minibatches).is_multiple_of(num_envs) {
            return Err(Violation::Unrolls { num_envs, batch_size, num_minibatches });
        }
        Ok(())
    }

    /// Accepted sizes near these, nearest first: one size changed, by as small a factor as it goes (of equal ones
    /// `num_minibatches` before `batch_size` before `num_envs`); if no single one helps, `num_envs` and `num_minibatches`.
    pub fn nearest(self) -> Vec<Change> {
        let Self { num_envs, batch_size, num_minibatches, devices } = self;
        let of_minibatches = num_envs / gcd(num_envs, batch_size);
        let of_batch = num_envs / gcd(num_envs, num_minibatches);
        let product = batch_size * num_minibatches;
        let minibatches = around(num_minibatches, of_minibatches).map(|n| Self { num_minibatches: n, ..self });
        let batches = around(batch_size, of_batch).map(|n| Self { batch_size: n, ..self });
        let envs = beside(num_envs, divisors(product).filter(|n| n.is_multiple_of(devices)));
        let envs = envs.map(|n| Self { num_envs: n, ..self });
        let mut all: Vec<_> = minibatches.chain(batches).chain(envs).filter(|sizes| sizes.check().is_ok()).collect();
        if all.is_empty() {
            // A multiple of batch and devices takes few minibatches.
            let both = devices / gcd(devices, batch_size) * batch_size;
            let near = around(num_envs, devices).chain(around(num_envs, both));
            all = near.filter_map(|num_envs| self.with_minibatches(num_envs)).collect();
        }
        // The sort is stable, so of equals the first of the list stays first.
        all.sort_by_key(|sizes| self.distance(*sizes));
        all.dedup();
        all.into_iter().map(|to| Change { from: self, to }).collect()
    }

    /// As many environments with the nearest number of minibatches that is accepted.
    pub fn with_minibatches(self, num_envs: u64) -> Option<Self> {
        let unit = num_envs / gcd(num_envs, self.batch_size);
        let fitting = around(self.num_minibatches, unit).map(|n| Self { num_envs, num_minibatches: n, ..self });
        let fitting = fitting.filter(|sizes| sizes.check().is_ok());
        fitting.min_by_key(|sizes| self.distance(*sizes))
    }

    /// The largest accepted number of environments up to `most`, with batch and minibatches as they are.
    pub fn largest_envs(self, most: u64) -> Option<u64> {
        let product = self.batch_size * self.num_minibatches;
        divisors(product).filter(|n| *n <= most && n.is_multiple_of(self.devices)).max()
    }

    /// Logarithm of the factors between two sizes, in millionths, so that a half is as far as the double.
    fn distance(self, other: Self) -> u64 {
        let factor = |a: u64, b: u64| (a as f64 / b as f64).ln().abs();
        let all = factor(self.num_envs, other.num_envs)
            + factor(self.batch_size, other.batch_size)
            + factor(self.num_minibatches, other.num_minibatches);
        (all * 1e6).round() as u64
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { from, to } = self;
        let pairs = [
            ("num_minibatches", from.num_minibatches, to.num_minibatches),
            ("batch_size", from.batch_size, to.batch_size),
            ("num_envs", from.num_envs, to.num_envs),
        ];
        let changed = pairs.iter().filter(|(_, from, to)| from != to).map(|(name, _, to)| format!("{name} {to}"));
        f.write_str(&changed.collect::<Vec<_>>().join(" and "))
    }
}

/// The multiples of `unit` at or next to `value`, without 0.
fn around(value: u64, unit: u64) -> impl Iterator<Item = u64> {
    let below = value / unit * unit;
    let above = if below == value { None } else { Some(below + unit) };
    [Some(below), above].into_iter().flatten().filter(|number| *number > 0)
}

/// The next of `numbers` below and above `value`, or `value` itself.
fn beside(value: u64, numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let (below, above): (Vec<u64>, Vec<u64>) = numbers.partition(|number| *number <= value);
    below.into_iter().max().into_iter().chain(above.into_iter().min())
}

/// All divisors, in pairs. The root of the largest product is 2^24.
fn divisors(product: u64) -> impl Iterator<Item = u64> {
    let small = (1..).take_while(move |n| n * n <= product).filter(move |n| product.is_multiple_of(*n));
    small.flat_map(move |n| if n * n == product { vec![n] } else { vec![n, product / n] })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
