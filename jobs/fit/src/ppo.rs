//! Checks the sizes of a PPO training with Brax, given by a YAML file of WildRobot: whether they
//! divide evenly, whether they fit into memory, and what would.
//!
//! `rrun` trains nothing; it finds such errors before a night of training is lost. The rule is
//! `batch_size * num_minibatches % num_envs == 0` (brax/training/agents/ppo/train.py). The memory
//! is the line through the table of WildRobot's GPU memory guide, for its scene and networks: 512
//! environments take about 6 GB, 1024 take 9, 1536 take 12 and 2048 take 15.

use std::fmt::{Display, Formatter};
use std::path::Path;

use jobs::bytes::ByteSize;
use jobs::refusal::Refusal;
use jobs::table::Table;
use jobs::tree;
use serde::Serialize;
use serde_json::Value;

/// Maximum size that is accepted, so that products of two fit into 64 bits with a large margin.
const MOST: u64 = 1 << 24;

/// Bytes without an environment: JAX, XLA, the compiled steps and the networks.
const BASE: u64 = 3_000_000_000;

/// Bytes of 512 environments, which avoids a fraction for one.
const OF_512: u64 = 3_000_000_000;

/// Sizes that must divide each other; each is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct PpoSizes {
    num_envs: u64,
    /// Number of unrolls in a minibatch.
    batch_size: u64,
    num_minibatches: u64,
}

/// A change of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct SizeChange {
    setting: &'static str,
    value: u64,
}

/// The result for a training; also the output of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PpoResult {
    schema: &'static str,
    sizes: PpoSizes,
    valid: bool,
    /// What makes the sizes valid and lets them fit, the nearest change first.
    nearest: Vec<SizeChange>,
    memory: ByteSize,
    gpu_memory: Option<ByteSize>,
    fits: Option<bool>,
    /// Largest number of environments that is valid and fits, with the same other sizes.
    largest_num_envs: Option<u64>,
}

impl PpoResult {
    /// Checks the training in a file, on a GPU with this much memory.
    ///
    /// # Errors
    /// Refuses a file without a training, and a size that is none.
    pub fn read(file: &Path, gpu: Option<ByteSize>) -> Result<Self, Refusal> {
        let config = tree::parse(file, &tree::read(file)?)?;
        let sizes = PpoSizes::of(&config).map_err(|err| Refusal::in_file(file, err))?;
        Ok(Self::new(sizes, gpu))
    }

    fn new(sizes: PpoSizes, gpu: Option<ByteSize>) -> Self {
        let fits = |num_envs: u64| gpu.is_none_or(|gpu| bytes(num_envs) <= gpu.0);
        let helps = |change: &SizeChange| match change.setting {
            "num_envs" => fits(change.value),
            _ => fits(sizes.num_envs),
        };
        let valid = sizes.is_valid();
        let nearest = if valid { Vec::new() } else { sizes.nearest() };
        let largest = gpu.and_then(|ByteSize(bytes)| {
            let most = bytes.checked_sub(BASE)?.saturating_mul(512) / OF_512;
            divisors(sizes.unrolls()).filter(|envs| *envs <= most).max()
        });
        Self {
            schema: "rrun/fit-ppo/1",
            sizes,
            valid,
            nearest: nearest.into_iter().filter(helps).collect(),
            memory: ByteSize(bytes(sizes.num_envs)),
            gpu_memory: gpu,
            fits: gpu.map(|_| fits(sizes.num_envs)),
            largest_num_envs: largest,
        }
    }

    /// Returns whether the training can run.
    pub fn is_good(&self) -> bool {
        self.valid && self.fits != Some(false)
    }

    /// Describes the result for a terminal.
    pub fn text(&self) -> String {
        let PpoSizes {
            num_envs,
            batch_size,
            num_minibatches,
        } = self.sizes;
        let sizes = [num_envs, batch_size, num_minibatches].map(|size| size.to_string());
        let [envs, batch, minibatches] = sizes;
        let valid = if self.valid { "yes" } else { "no" };
        let head = [
            "num_envs",
            "batch_size",
            "num_minibatches",
            "Memory",
            "Valid",
        ];
        let row = [envs, batch, minibatches, gb(self.memory), valid.to_owned()];
        let mut lines = vec![Table::new(head, [row]).grid()];
        if !self.valid {
            let nearest = self.nearest.iter();
            let nearest: Vec<_> = nearest.map(SizeChange::to_string).collect();
            let or = match nearest.len() {
                0 => "nothing near fits".to_owned(),
                _ => nearest.join(", or "),
            };
            lines.push(format!(
                "batch_size {batch_size} × num_minibatches {num_minibatches} = {} is not a multiple \
                 of num_envs {num_envs}; nearest first: {or}",
                self.sizes.unrolls()
            ));
        }
        if let (Some(gpu), Some(fits)) = (self.gpu_memory, self.fits) {
            let verdict = if fits { "fits" } else { "does not fit" };
            lines.push(format!(
                "about {} {verdict} into {}",
                gb(self.memory),
                gb(gpu)
            ));
            lines.push(match self.largest_num_envs {
                Some(most) => format!("largest num_envs that divides and fits: {most}"),
                None => "no num_envs that divides fits".to_owned(),
            });
        }
        lines.push(
            "memory by the formula of WildRobot's guide, 3 GB + 5.9 MB per environment; other \
             scenes differ"
                .to_owned(),
        );
        lines.join("\n")
    }
}

impl Display for SizeChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.setting, self.value)
    }
}

impl PpoSizes {
    /// Returns the sizes of a training, with Brax's defaults for those that are not set.
    fn of(config: &Value) -> Result<Self, Refusal> {
        let ppo = match config.get("ppo") {
            Some(ppo @ (Value::Object(_) | Value::Null)) => ppo,
            Some(other) => return Err(Refusal::found("ppo", other, "expected a mapping")),
            None => {
                return Err(Refusal::new(
                    "there is no section `ppo`, so it is not a PPO training of Brax; such a file \
                     starts with `ppo: {num_envs: …, batch_size: …, num_minibatches: …}`",
                ));
            }
        };
        let size = |name: &str, default: u64| match &ppo[name] {
            Value::Null => Ok(default),
            found => found
                .as_u64()
                .filter(|size| (1..=MOST).contains(size))
                .ok_or_else(|| {
                    let wanted = format!("expected a whole number from 1 to {MOST}");
                    Refusal::found(format_args!("ppo.{name}"), found, wanted)
                }),
        };
        Ok(Self {
            num_envs: size("num_envs", 1)?,
            batch_size: size("batch_size", 32)?,
            num_minibatches: size("num_minibatches", 16)?,
        })
    }

    /// Returns the number of unrolls of an update.
    fn unrolls(self) -> u64 {
        self.batch_size * self.num_minibatches
    }

    fn is_valid(self) -> bool {
        self.unrolls().is_multiple_of(self.num_envs)
    }

    /// Returns the changes of one size that make all valid, the nearest first: half and double are
    /// equally near.
    fn nearest(self) -> Vec<SizeChange> {
        let minibatches = self.num_envs / gcd(self.num_envs, self.batch_size);
        let batch = self.num_envs / gcd(self.num_envs, self.num_minibatches);
        let (fewer, more): (Vec<u64>, Vec<u64>) =
            divisors(self.unrolls()).partition(|envs| *envs <= self.num_envs);
        let envs = [fewer.into_iter().max(), more.into_iter().min()];
        let changes = [
            (
                "num_minibatches",
                self.num_minibatches,
                around(self.num_minibatches, minibatches),
            ),
            (
                "batch_size",
                self.batch_size,
                around(self.batch_size, batch),
            ),
            ("num_envs", self.num_envs, envs),
        ];
        let mut all = Vec::new();
        for (setting, from, choices) in changes {
            let factor =
                |value: u64| ((value as f64 / from as f64).ln().abs() * 1e6).round() as u64;
            let found = choices.into_iter().flatten();
            all.extend(found.map(|value| (factor(value), SizeChange { setting, value })));
        }
        // The sort is stable, so equally near changes keep their order.
        all.sort_by_key(|(factor, _)| *factor);
        all.into_iter().map(|(_, change)| change).collect()
    }
}

/// Returns the bytes of this many environments.
fn bytes(num_envs: u64) -> u64 {
    BASE + num_envs * OF_512 / 512
}

/// Returns the multiples of `unit` next to `value`, without 0.
fn around(value: u64, unit: u64) -> [Option<u64>; 2] {
    let below = value / unit * unit;
    [Some(below).filter(|size| *size > 0), Some(below + unit)]
}

/// Returns all divisors. The square root of the largest product is 2^24.
fn divisors(product: u64) -> impl Iterator<Item = u64> {
    let small = (1..).take_while(move |n| n * n <= product);
    let pair = move |n: u64| [n, product / n];
    small
        .filter(move |n| product.is_multiple_of(*n))
        .flat_map(pair)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Formats bytes in GB, the unit of the guide and of GPU names.
fn gb(ByteSize(bytes): ByteSize) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn sizes(num_envs: u64, batch_size: u64, num_minibatches: u64) -> PpoSizes {
        PpoSizes {
            num_envs,
            batch_size,
            num_minibatches,
        }
    }

    #[test]
    fn the_rule_refuses_two_rows_of_the_guide() {
        let rows = [
            (512, 128, 2),
            (1024, 256, 4),
            (1536, 384, 6),
            (2048, 512, 8),
        ];
        let found =
            rows.map(|(envs, batch, minibatches)| sizes(envs, batch, minibatches).is_valid());
        assert_eq!(found, [false, true, false, true]);
    }

    #[test]
    fn the_nearest_valid_sizes_are_proposed_first() {
        let nearest = |from: PpoSizes| {
            let nearest = from.nearest().into_iter();
            nearest
                .map(|change| change.to_string())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let wanted = "num_minibatches 4, batch_size 256, num_envs 256";
        assert_eq!(nearest(sizes(512, 128, 2)), wanted);
        let wanted = "num_minibatches 8, batch_size 512, num_envs 1152, num_minibatches 4, \
                      batch_size 256, num_envs 2304";
        assert_eq!(nearest(sizes(1536, 384, 6)), wanted);
    }

    #[test]
    fn memory_is_that_of_the_guide() {
        let found = [512, 1024, 1536, 2048].map(|envs| bytes(envs) / 1_000_000_000);
        assert_eq!(found, [6, 9, 12, 15]);
        let largest = |gib: u64| {
            PpoResult::new(sizes(2048, 512, 8), Some(ByteSize(gib << 30))).largest_num_envs
        };
        assert_eq!([1, 12, 24].map(largest), [None, Some(1024), Some(2048)]);
    }

    #[test]
    fn without_a_word_brax_has_its_own_defaults() {
        let found = PpoSizes::of(&json!({"ppo": null}));
        assert_eq!(found, Ok(sizes(1, 32, 16)));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for value in [
            json!("many"),
            json!(0),
            json!(-4),
            json!(1.5),
            json!(MOST + 1),
        ] {
            let refused = PpoSizes::of(&json!({"ppo": {"num_envs": value}})).unwrap_err();
            let told =
                format!("ppo.num_envs: found {value}, expected a whole number from 1 to 16777216");
            assert_eq!(refused.to_string(), told);
        }
    }

    proptest! {
        #[test]
        fn what_is_proposed_is_accepted_and_something_always_is(
            num_envs in 1_u64..5000, batch_size in 1_u64..2000, num_minibatches in 1_u64..64
        ) {
            let from = sizes(num_envs, batch_size, num_minibatches);
            let nearest = from.nearest();
            prop_assert!(!nearest.is_empty());
            for SizeChange { setting, value } in nearest {
                let to = match setting {
                    "num_minibatches" => sizes(num_envs, batch_size, value),
                    "batch_size" => sizes(num_envs, value, num_minibatches),
                    _ => sizes(value, batch_size, num_minibatches),
                };
                prop_assert!(to.is_valid());
            }
            let gpu = ByteSize(12 << 30);
            if let Some(largest) = PpoResult::new(from, Some(gpu)).largest_num_envs {
                prop_assert!(sizes(largest, batch_size, num_minibatches).is_valid());
                prop_assert!(bytes(largest) <= gpu.0);
            }
        }
    }
}
