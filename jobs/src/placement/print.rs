//! Describes a placement as text: the processes on each GPU, and the environments of each worker.

use std::collections::BTreeMap;

use crate::count::counted;
use crate::placement::Placement;

/// Number of environments up to which each is listed; beyond it, only the first and the last are
/// named.
const LISTED: usize = 16;

/// The processes that use one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenants {
    /// Numbers of the environment workers.
    pub env: Vec<usize>,
    /// Numbers of the policies, which are ranks.
    pub rollout: Vec<usize>,
}

impl Placement {
    /// Returns the processes that use each GPU, by the number of the GPU.
    pub fn tenants(&self) -> BTreeMap<usize, Tenants> {
        let mut tenants: BTreeMap<usize, Tenants> = BTreeMap::new();
        for (worker, process) in self.env.iter().enumerate() {
            for gpu in &process.gpus {
                tenants.entry(*gpu).or_default().env.push(worker);
            }
        }
        for (rank, process) in self.rollout.iter().enumerate() {
            for gpu in &process.gpus {
                tenants.entry(*gpu).or_default().rollout.push(rank);
            }
        }
        tenants
    }

    /// Returns how many of `total` environments render on `gpu`.
    fn envs_on(&self, gpu: usize, total: usize) -> usize {
        let seats = (0..self.world_size()).flat_map(|rank| self.seats(rank, total));
        seats.filter(|seat| seat.gpu == gpu).count()
    }

    /// Returns one line per GPU, like the "Resource allocation" of s000: `GPU 0: EnvWorker 0 (1
    /// environment)`.
    pub fn allocation(&self, total: Option<usize>) -> Vec<String> {
        let line = |(gpu, tenants): (usize, Tenants)| {
            let envs = tenants
                .env
                .iter()
                .map(|worker| format!("EnvWorker {worker}"));
            let policies = tenants.rollout.iter();
            let policies = policies.map(|rank| format!("RolloutWorker {rank}"));
            let who: Vec<_> = envs.chain(policies).collect();
            let what = match (tenants.env.is_empty(), tenants.rollout.is_empty(), total) {
                (false, false, _) => " (shared)".to_owned(),
                (true, ..) => " (policy inference)".to_owned(),
                (false, true, Some(total)) => {
                    format!(" ({})", counted(self.envs_on(gpu, total), "environment"))
                }
                (false, true, None) => " (environments)".to_owned(),
            };
            format!("GPU {gpu}: {}{what}", who.join(" + "))
        };
        self.tenants().into_iter().map(line).collect()
    }

    /// Returns one line per worker, like the "Distribution" of s001: `Worker 0 (GPU 0): Manages 2
    /// environments (env 0, env 1)`.
    pub fn distribution(&self, total: usize) -> Vec<String> {
        let each = total / self.env.len().max(1);
        let line = |(worker, process): (usize, &crate::placement::PlacedProcess)| {
            let (first, last) = (process.gpu(), process.gpus.last().copied().unwrap_or(0));
            let gpus = match first == last {
                true => format!("GPU {first}"),
                false => format!("GPU {first}-{last}"),
            };
            format!(
                "Worker {worker} ({gpus}): Manages {} ({})",
                counted(each, "environment"),
                listed(each)
            )
        };
        self.env.iter().enumerate().map(line).collect()
    }
}

/// Formats environments as `env 0`, `env 0, env 1`, `env 0, 1, 2, 3` or `env 0 to 63`.
fn listed(count: usize) -> String {
    let numbers: Vec<_> = (0..count.min(LISTED)).map(|env| env.to_string()).collect();
    match count {
        0 => "none".to_owned(),
        1 | 2 => format!("env {}", numbers.join(", env ")),
        3..=LISTED => format!("env {}", numbers.join(", ")),
        _ => format!("env 0 to {}", count - 1),
    }
}
