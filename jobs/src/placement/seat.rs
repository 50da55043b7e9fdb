//! Deals environments to ranks and workers in contiguous shares, as RLinf routes them.
//!
//! The global environments are `[0, total)`. With W workers, worker `w` has the w-th contiguous
//! share; with R ranks, rank `r` has the r-th. An environment is placed at its worker and run by
//! its rank: with W = 2, R = 4 and 8 environments, ranks 0 and 1 run the four environments of
//! worker 0. Source: rlinf/scheduler/worker/routing.py, a3816b596.

use serde::{Deserialize, Serialize};

use crate::placement::{PlacedProcess, Placement};

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
