//! Checks that environments can be divided evenly. The checks are those of RLinf for an evaluation;
//! each error names the nearest values that pass.
//!
//! Source: rlinf/config.py, a3816b596. RLinf checks `total % W % S == 0` but means `(total / W) % S
//! == 0`; this module checks the latter.

use crate::placement::error::list;

/// How the environments of a job are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Number of environments, `total_num_envs`.
    pub total: usize,
    /// Number of processes of `env`.
    pub workers: usize,
    /// Number of processes of `rollout`.
    pub ranks: usize,
    /// `pipeline_stage_num`, 1 if it is not given.
    pub stages: usize,
    /// `group_size`, 1 if it is not given: the number of environments with the same task that stay
    /// together.
    pub group_size: usize,
}

/// Why environments cannot be divided evenly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DivisionError {
    /// `total_num_envs` is 0; the value is the smallest valid number.
    #[error("total_num_envs is 0, expected at least {0}")]
    None(usize),
    /// `total_num_envs` is not a multiple of the workers.
    #[error("total_num_envs is {total}, which cannot be divided evenly among {workers} environment \
        workers; {} can", list(.nearest))]
    Workers {
        /// `total_num_envs`.
        total: usize,
        /// Number of processes of `env`.
        workers: usize,
        /// Nearest totals that pass every check.
        nearest: Vec<usize>,
    },
    /// `total_num_envs` is not a multiple of the ranks.
    #[error("total_num_envs is {total}, which cannot be divided evenly among {ranks} rollout \
        workers; {} can", list(.nearest))]
    Ranks {
        /// `total_num_envs`.
        total: usize,
        /// Number of processes of `rollout`.
        ranks: usize,
        /// Nearest totals that pass every check.
        nearest: Vec<usize>,
    },
    /// The environments of a worker are not a multiple of the stages.
    #[error(
        "pipeline_stage_num is {stages}, but an environment worker has {each} of {total} environments; total_num_envs {} \
         or pipeline_stage_num {} fit", list(.nearest), list(.stage_nums)
    )]
    Stages {
        /// `pipeline_stage_num`.
        stages: usize,
        /// Number of environments of a worker.
        each: usize,
        /// `total_num_envs`.
        total: usize,
        /// Nearest totals that pass every check.
        nearest: Vec<usize>,
        /// Numbers of stages that divide `each`.
        stage_nums: Vec<usize>,
    },
    /// A group of environments would be split.
    #[error(
        "group_size is {group_size}, but a stage of an environment worker has {each} environments; total_num_envs {} or \
         group_size {} fit", list(.nearest), list(.sizes)
    )]
    Groups {
        /// `group_size`.
        group_size: usize,
        /// Number of environments of a stage.
        each: usize,
        /// Nearest totals that pass every check.
        nearest: Vec<usize>,
        /// Group sizes that divide `each`.
        sizes: Vec<usize>,
    },
    /// The steps of an epoch end within an action chunk.
    #[error(
        "max_steps_per_rollout_epoch is {steps}, which is not a multiple of num_action_chunks {chunk}; {} are", list(.nearest)
    )]
    Steps {
        /// `max_steps_per_rollout_epoch`.
        steps: usize,
        /// `num_action_chunks`.
        chunk: usize,
        /// Nearest multiples of `num_action_chunks`.
        nearest: Vec<usize>,
    },
}

impl Division {
    /// Checks the division.
    ///
    /// # Errors
    /// Returns the first check that fails.
    pub fn check(self) -> Result<(), DivisionError> {
        let Self {
            total,
            workers,
            ranks,
            stages,
            group_size,
        } = self;
        if total == 0 {
            return Err(DivisionError::None(self.unit()));
        }
        let nearest = nearest_multiples(total, self.unit());
        if !total.is_multiple_of(workers) {
            return Err(DivisionError::Workers {
                total,
                workers,
                nearest,
            });
        }
        if !total.is_multiple_of(ranks) {
            return Err(DivisionError::Ranks {
                total,
                ranks,
                nearest,
            });
        }
        let each = total / workers.max(1);
        if !each.is_multiple_of(stages) {
            let stage_nums = nearest_divisors(each, stages);
            return Err(DivisionError::Stages {
                stages,
                each,
                total,
                nearest,
                stage_nums,
            });
        }
        let each = each / stages.max(1);
        if !each.is_multiple_of(group_size) {
            let sizes = nearest_divisors(each, group_size);
            return Err(DivisionError::Groups {
                group_size,
                each,
                nearest,
                sizes,
            });
        }
        Ok(())
    }

    /// Returns the number that every valid total is a multiple of.
    pub fn unit(self) -> usize {
        let of_workers = self
            .workers
            .max(1)
            .saturating_mul(self.stages.max(1))
            .saturating_mul(self.group_size.max(1));
        least_common_multiple(of_workers, self.ranks.max(1))
    }
}

/// Checks that an epoch ends with an action chunk.
///
/// # Errors
/// Returns [`DivisionError::Steps`].
pub fn check_steps(steps: usize, chunk: usize) -> Result<(), DivisionError> {
    if chunk == 0 || steps.is_multiple_of(chunk) {
        return Ok(());
    }
    Err(DivisionError::Steps {
        steps,
        chunk,
        nearest: nearest_multiples(steps, chunk),
    })
}

/// Returns the multiples of `unit` equal or nearest to `value`, ascending, without 0.
fn nearest_multiples(value: usize, unit: usize) -> Vec<usize> {
    let below = value / unit * unit;
    let above = below.saturating_add(unit);
    [below, above]
        .into_iter()
        .filter(|number| *number > 0)
        .collect()
}

/// Returns the divisors of `value` nearest to `wanted`, ascending.
fn nearest_divisors(value: usize, wanted: usize) -> Vec<usize> {
    let divides = |number: &usize| value.is_multiple_of(*number);
    let below = (1..wanted.min(value + 1)).rev().find(divides);
    let above = (wanted + 1..=value).find(divides);
    below.into_iter().chain(above).collect()
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}
