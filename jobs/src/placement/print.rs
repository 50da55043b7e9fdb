//! A placement in words: what sits on each GPU, and which environments each worker manages.

use std::collections::BTreeMap;

use crate::placement::Placement;

/// Environments that are listed one by one; above it, the first and the last.
const LISTED: usize = 16;

/// Who uses one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenants {
    /// Environment workers.
    pub env: Vec<usize>,
    /// Policies, which is ranks.
    pub rollout: Vec<usize>,
}

impl Tenants {
    /// Whether environments and policies compete for it.
    pub fn are_shared(&self) -> bool {
        !self.env.is_empty() && !self.rollout.is_empty()
    }
}

impl Placement {
    /// Who uses each GPU, by its number.
    pub fn tenants(&self) -> BTreeMap<usize, Tenants> {
        let mut tenants: BTreeMap<usize, Tenants> = BTreeMap::new();
        for (worker, process) in self.env.iter().enumerate() {
            process.gpus.iter().for_each(|gpu| tenants.entry(*gpu).or_default().env.push(worker));
        }
        for (rank, process) in self.rollout.iter().enumerate() {
            process.gpus.iter().for_each(|gpu| tenants.entry(*gpu).or_default().rollout.push(rank));
        }
        tenants
    }

    /// Environments that draw on `gpu` when there are `total` in all.
    pub fn envs_on(&self, gpu: usize, total: usize) -> usize {
        let seats = (0..self.world_size()).flat_map(|rank| self.seats(rank, total));
        seats.filter(|seat| seat.gpu == gpu).count()
    }

    /// One line a GPU, as s000's "Resource allocation": `GPU 0: EnvWorker 0 (1 environment)`.
    pub fn allocation(&self, total: Option<usize>) -> Vec<String> {
        let line = |(gpu, tenants): (usize, Tenants)| {
            let envs = tenants.env.iter().map(|worker| format!("EnvWorker {worker}"));
            let policies = tenants.rollout.iter().map(|rank| format!("RolloutWorker {rank}"));
            let who: Vec<_> = envs.chain(policies).collect();
            let what = match (tenants.are_shared(), tenants.env.is_empty(), total) {
                (true, ..) => " (shared)".to_owned(),
                (false, true, _) => " (policy inference)".to_owned(),
                (false, false, Some(total)) => format!(" ({})", environments(self.envs_on(gpu, total))),
                (false, false, None) => " (environments)".to_owned(),
            };
            format!("GPU {gpu}: {}{what}", who.join(" + "))
        };
        self.tenants().into_iter().map(line).collect()
    }

    /// One line a worker, as s001's "Distribution": `Worker 0 (GPU 0): Manages 2 environments (env 0, env 1)`.
    pub fn distribution(&self, total: usize) -> Vec<String> {
        let each = total / self.env.len().max(1);
        let line = |(worker, process): (usize, &crate::placement::Process)| {
            let (first, last) = (process.gpu(), process.gpus.last().copied().unwrap_or(0));
            let gpus = if first == last { format!("GPU {first}") } else { format!("GPU {first}-{last}") };
            format!("Worker {worker} ({gpus}): Manages {} ({})", environments(each), listed(each))
        };
        self.env.iter().enumerate().map(line).collect()
    }
}

fn environments(count: usize) -> String {
    if count == 1 { "1 environment".to_owned() } else { format!("{count} environments") }
}

/// `env 0`, `env 0, env 1`, `env 0, 1, 2, 3`, `env 0 to 63`.
fn listed(count: usize) -> String {
    let numbers = || (0..count).map(|env| env.to_string());
    match count {
        0 => "none".to_owned(),
        1 | 2 => numbers().map(|env| format!("env {env}")).collect::<Vec<_>>().join(", "),
        3..=LISTED => format!("env {}", numbers().collect::<Vec<_>>().join(", ")),
        _ => format!("env 0 to {}", count - 1),
    }
}
