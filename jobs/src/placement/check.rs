//! Checks that environments can be divided evenly. The checks are those of RLinf for an evaluation;
//! each error names the nearest values that pass.
//!
//! Source: rlinf/config.py, a3816b596. RLinf checks `total % W % S == 0` but means `(total / W) % S
//! == 0`; this module checks the latter.

use crate::refusal::Refusal;

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
}

impl Division {
    /// Checks the division.
    ///
    /// # Errors
    /// Refuses the first rule that is broken, with the nearest values that pass all of them.
    pub fn check(self) -> Result<(), Refusal> {
        let Self {
            total,
            workers,
            ranks,
            stages,
        } = self;
        if total == 0 {
            let least = self.unit();
            return Err(Refusal::new(format_args!(
                "total_num_envs is 0, expected at least {least}"
            )));
        }
        let fitting = list(&self.nearest());
        let of_worker = total / workers.max(1);
        let reason = if !total.is_multiple_of(workers) {
            format!(
                "total_num_envs is {total}, which cannot be divided evenly among {workers} \
                 environment workers; {fitting} can"
            )
        } else if !total.is_multiple_of(ranks) {
            format!(
                "total_num_envs is {total}, which cannot be divided evenly among {ranks} rollout \
                 workers; {fitting} can"
            )
        } else if !of_worker.is_multiple_of(stages) {
            format!(
                "pipeline_stage_num is {stages}, but an environment worker has {of_worker} of \
                 {total} environments; total_num_envs {fitting} or pipeline_stage_num {} fit",
                list(&nearest(stages, of_worker, |number| of_worker
                    .is_multiple_of(*number)))
            )
        } else {
            return Ok(());
        };
        Err(Refusal::new(reason))
    }

    /// Returns the totals nearest to this one that can be divided, ascending.
    pub fn nearest(self) -> Vec<usize> {
        nearest_multiples(self.total, self.unit())
    }

    /// Returns the number that every valid total is a multiple of.
    pub fn unit(self) -> usize {
        let of_workers = self.workers.max(1).saturating_mul(self.stages.max(1));
        least_common_multiple(of_workers, self.ranks.max(1))
    }
}

/// Checks that an epoch ends with an action chunk.
///
/// # Errors
/// Refuses other steps, with the nearest ones that do.
pub fn check_steps(steps: usize, chunk: usize) -> Result<(), Refusal> {
    if chunk == 0 || steps.is_multiple_of(chunk) {
        return Ok(());
    }
    let nearest = list(&nearest_multiples(steps, chunk));
    Err(Refusal::new(format_args!(
        "max_steps_per_rollout_epoch is {steps}, which is not a multiple of num_action_chunks \
         {chunk}; {nearest} are"
    )))
}

/// Formats a list as `2`, `2 or 4` or `1, 2 or 4`.
pub(super) fn list(numbers: &[usize]) -> String {
    let texts: Vec<_> = numbers.iter().map(usize::to_string).collect();
    match texts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "none".to_owned(),
    }
}

/// Returns the multiples of `unit` equal or nearest to `value`, ascending, without 0.
fn nearest_multiples(value: usize, unit: usize) -> Vec<usize> {
    let below = value / unit * unit;
    let both = [below, below.saturating_add(unit)];
    both.into_iter().filter(|number| *number > 0).collect()
}

/// Returns the numbers from 1 to `last` that fit and are nearest to `wanted`, ascending.
pub(super) fn nearest(wanted: usize, last: usize, fits: impl Fn(&usize) -> bool) -> Vec<usize> {
    let below = (1..wanted.min(last + 1)).rev().find(&fits);
    let above = (wanted + 1..=last).find(&fits);
    below.into_iter().chain(above).collect()
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}
