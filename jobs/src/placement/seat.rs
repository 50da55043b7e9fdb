//! Deals environments to ranks and workers in contiguous shares, as RLinf routes them.
//!
//! The global environments are `[0, total)`. With W workers, worker `w` has the w-th contiguous
//! share; with R ranks, rank `r` has the r-th. An environment is placed at its worker and run by
//! its rank: with W = 2, R = 4 and 8 environments, ranks 0 and 1 run the four environments of
//! worker 0. Source: rlinf/scheduler/worker/routing.py, a3816b596.
//!
//! What cannot be divided evenly is refused with the nearest values that can, as RLinf does for an
//! evaluation: rlinf/config.py, a3816b596. It checks `total % W % S == 0` but means `(total / W) % S ==
//! 0`; this module checks the latter.

use serde::{Deserialize, Serialize};

use crate::placement::{PlacedProcess, Placement};
use crate::refusal::Refusal;

/// The place of one environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seat {
    /// Number of its environment worker.
    pub worker: usize,
    /// The GPU that it renders on, as numbered by the placement.
    pub gpu: usize,
    /// Index of the environment within the worker.
    pub env: usize,
}

/// One rank's contiguous environments of a shared job: `first .. first + count` of `total`. One in a
/// journal may come from another user, with any numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Global index of the first environment.
    pub first: usize,
    /// Number of environments.
    pub count: usize,
    /// Number of environments over all ranks.
    pub total: usize,
}

impl Share {
    /// Returns the share of `rank`; `total` must be a multiple of `ranks`.
    pub fn of(rank: usize, ranks: usize, total: usize) -> Self {
        let count = total / ranks.max(1);
        Self {
            first: rank * count,
            count,
            total,
        }
    }

    /// Returns the index, within the share, of the environment that runs `episode`, or `None` if
    /// another rank runs it. Episode `e` belongs to the global environment `e % total`.
    pub fn slot(&self, episode: u64) -> Option<usize> {
        let env = usize::try_from(episode.checked_rem(self.total as u64)?).ok()?;
        env.checked_sub(self.first)
            .filter(|slot| *slot < self.count)
    }

    /// Returns the endless sequence of episode numbers of one environment, given by its index
    /// within the share, for a job in steps.
    pub fn numbers(&self, slot: usize) -> impl Iterator<Item = u64> + use<> {
        let (first, total) = ((self.first + slot) as u64, self.total.max(1) as u64);
        (0_u64..).map(move |nth| first + nth * total)
    }

    /// Returns the global indices of its environments.
    pub fn envs(&self) -> std::ops::Range<usize> {
        self.first..self.first.saturating_add(self.count)
    }
}

impl Placement {
    /// Returns the seats of the environments that `rank` has of a job with `total` environments.
    /// `total` must be a multiple of the number of workers and of the number of ranks.
    pub fn seats(&self, rank: usize, total: usize) -> Vec<Seat> {
        let each = (total / self.env.len().max(1)).max(1);
        let seat = |env: usize| {
            let (worker, index) = (env / each, env % each);
            Some(Seat {
                worker,
                gpu: gpu(self.env.get(worker)?, index, each),
                env: index,
            })
        };
        Share::of(rank, self.world_size(), total)
            .envs()
            .filter_map(seat)
            .collect()
    }

    /// Returns the seats of the `copies` environments of a job that `rank` runs alone, at the
    /// workers whose share the rank has.
    pub fn home(&self, rank: usize, copies: usize) -> Vec<Seat> {
        let workers = self.workers(rank);
        let (first, count) = (workers.start, workers.len().clamp(1, copies.max(1)));
        let seat = |copy: usize| {
            let nth = copy * count / copies;
            let begins = (nth * copies).div_ceil(count);
            let each = ((nth + 1) * copies).div_ceil(count) - begins;
            let (worker, index) = (first + nth, copy - begins);
            Some(Seat {
                worker,
                gpu: gpu(self.env.get(worker)?, index, each),
                env: index,
            })
        };
        (0..copies).filter_map(seat).collect()
    }

    /// Returns the workers that have environments of `rank`.
    pub fn workers(&self, rank: usize) -> std::ops::Range<usize> {
        let (workers, ranks) = (self.env.len(), self.world_size().max(1));
        rank * workers / ranks..((rank + 1) * workers).div_ceil(ranks)
    }
}

/// Returns the GPU of a worker's environment. The environments of a worker with several GPUs are
/// dealt block-wise, too.
fn gpu(worker: &PlacedProcess, env: usize, of: usize) -> usize {
    worker
        .gpus
        .get(env * worker.gpus.len() / of.max(1))
        .copied()
        .unwrap_or_else(|| worker.gpu())
}

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
