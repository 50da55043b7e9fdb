//! Checks the rules of Brax's PPO for its sizes, and finds the nearest valid sizes.
//!
//! The rules in brax/training/agents/ppo/train.py are `batch_size * num_minibatches % num_envs ==
//! 0` and `num_envs % device_count == 0`.

use std::fmt::{Display, Formatter};

use serde::Serialize;

/// Sizes that must divide each other; each is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PpoSizes {
    /// Number of environments over all devices.
    pub num_envs: u64,
    /// Number of unrolls in a minibatch.
    pub batch_size: u64,
    /// Number of minibatches in an update.
    pub num_minibatches: u64,
    /// Number of devices that share the environments.
    pub devices: u64,
}

/// A rule that the sizes break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenRule {
    /// The unrolls of an update are not a multiple of the environments.
    #[error(
        "batch_size {batch_size} × num_minibatches {num_minibatches} = {} is not a multiple of \
         num_envs {num_envs}",
        .batch_size * .num_minibatches
    )]
    Unrolls {
        /// Number of environments.
        num_envs: u64,
        /// Number of unrolls in a minibatch.
        batch_size: u64,
        /// Number of minibatches.
        num_minibatches: u64,
    },
    /// The environments are not a multiple of the devices.
    #[error("num_envs {num_envs} is not a multiple of the {devices} devices")]
    Devices {
        /// Number of environments.
        num_envs: u64,
        /// Number of devices.
        devices: u64,
    },
}

/// A change from one set of sizes to another; displays the sizes that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeChange {
    /// The current sizes.
    pub from: PpoSizes,
    /// The valid sizes.
    pub to: PpoSizes,
}

impl PpoSizes {
    /// Checks both rules.
    ///
    /// # Errors
    /// Returns the first [`BrokenRule`].
    pub fn check(self) -> Result<(), BrokenRule> {
        let Self {
            num_envs,
            batch_size,
            num_minibatches,
            devices,
        } = self;
        if !num_envs.is_multiple_of(devices) {
            return Err(BrokenRule::Devices { num_envs, devices });
        }
        if !(batch_size * num_minibatches).is_multiple_of(num_envs) {
            return Err(BrokenRule::Unrolls {
                num_envs,
                batch_size,
                num_minibatches,
            });
        }
        Ok(())
    }

    /// Returns valid sizes near these, the nearest first. One size is changed by the smallest
    /// possible factor (for equal factors, `num_minibatches` before `batch_size` before
    /// `num_envs`). If no single change helps, `num_envs` and `num_minibatches` change together.
    pub fn nearest(self) -> Vec<SizeChange> {
        let Self {
            num_envs,
            batch_size,
            num_minibatches,
            devices,
        } = self;
        let of_minibatches = num_envs / gcd(num_envs, batch_size);
        let of_batch = num_envs / gcd(num_envs, num_minibatches);
        let product = batch_size * num_minibatches;
        let minibatches = around(num_minibatches, of_minibatches).map(|n| Self {
            num_minibatches: n,
            ..self
        });
        let batches = around(batch_size, of_batch).map(|n| Self {
            batch_size: n,
            ..self
        });
        let envs = beside(
            num_envs,
            divisors(product).filter(|n| n.is_multiple_of(devices)),
        );
        let envs = envs.map(|n| Self {
            num_envs: n,
            ..self
        });
        let mut all: Vec<_> = minibatches
            .chain(batches)
            .chain(envs)
            .filter(|sizes| sizes.check().is_ok())
            .collect();
        if all.is_empty() {
            // A common multiple of the batch size and the number of devices needs few minibatches.
            let both = devices / gcd(devices, batch_size) * batch_size;
            let near = around(num_envs, devices).chain(around(num_envs, both));
            all = near
                .filter_map(|num_envs| self.with_minibatches(num_envs))
                .collect();
        }
        // The sort is stable, so equally near sizes keep their order.
        all.sort_by_key(|sizes| self.distance(*sizes));
        all.dedup();
        all.into_iter()
            .map(|to| SizeChange { from: self, to })
            .collect()
    }

    /// Returns these sizes with `num_envs` environments and the nearest valid number of
    /// minibatches.
    pub fn with_minibatches(self, num_envs: u64) -> Option<Self> {
        let unit = num_envs / gcd(num_envs, self.batch_size);
        let fitting = around(self.num_minibatches, unit).map(|n| Self {
            num_envs,
            num_minibatches: n,
            ..self
        });
        let fitting = fitting.filter(|sizes| sizes.check().is_ok());
        fitting.min_by_key(|sizes| self.distance(*sizes))
    }

    /// Returns the largest valid number of environments up to `most`, with the batch size and
    /// minibatches unchanged.
    pub fn largest_envs(self, most: u64) -> Option<u64> {
        let product = self.batch_size * self.num_minibatches;
        divisors(product)
            .filter(|n| *n <= most && n.is_multiple_of(self.devices))
            .max()
    }

    /// Returns the logarithm of the factors between two sizes, in millionths, so that half and
    /// double are equally far.
    fn distance(self, other: Self) -> u64 {
        let factor = |a: u64, b: u64| (a as f64 / b as f64).ln().abs();
        let all = factor(self.num_envs, other.num_envs)
            + factor(self.batch_size, other.batch_size)
            + factor(self.num_minibatches, other.num_minibatches);
        (all * 1e6).round() as u64
    }
}

impl Display for SizeChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { from, to } = self;
        let pairs = [
            ("num_minibatches", from.num_minibatches, to.num_minibatches),
            ("batch_size", from.batch_size, to.batch_size),
            ("num_envs", from.num_envs, to.num_envs),
        ];
        let changed = pairs
            .iter()
            .filter(|(_, from, to)| from != to)
            .map(|(name, _, to)| format!("{name} {to}"));
        f.write_str(&changed.collect::<Vec<_>>().join(" and "))
    }
}

/// Returns the multiples of `unit` equal or nearest to `value`, without 0.
fn around(value: u64, unit: u64) -> impl Iterator<Item = u64> {
    let below = value / unit * unit;
    let above = if below == value {
        None
    } else {
        Some(below + unit)
    };
    [Some(below), above]
        .into_iter()
        .flatten()
        .filter(|number| *number > 0)
}

/// Returns the nearest of `numbers` below and above `value`, or `value` itself.
fn beside(value: u64, numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let (below, above): (Vec<u64>, Vec<u64>) = numbers.partition(|number| *number <= value);
    below
        .into_iter()
        .max()
        .into_iter()
        .chain(above.into_iter().min())
}

/// Returns all divisors, in pairs. The square root of the largest product is 2^24.
fn divisors(product: u64) -> impl Iterator<Item = u64> {
    let small = (1..)
        .take_while(move |n| n * n <= product)
        .filter(move |n| product.is_multiple_of(*n));
    small.flat_map(move |n| {
        if n * n == product {
            vec![n]
        } else {
            vec![n, product / n]
        }
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
