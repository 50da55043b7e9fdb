//! Places environments and policies on GPUs: RLinf's `component_placement`.
//!
//! ```text
//! --placement, YAML ─► Components ─ parse ─► Placement { env, rollout }
//!                                              │
//! total_num_envs ─ check ─► shares ─► Share of a rank, Seat of an env
//! ```
//! There are two components to place. A process of `env` is an environment worker: it has a
//! contiguous share of the environments, and the GPU that they render on. A process of `rollout` is
//! a policy, and so a rank. A rank runs the environments that are routed to it; the worker
//! determines their GPU and the names of their files. Everything in this module is pure: it reads
//! no file and no device.
//!
//! The grammar and the rules are those of rlinf/scheduler/placement/placement.py (a3816b596);
//! docs/placement.md describes them in prose.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::count::counted;
use crate::refusal::Refusal;

mod parse;
mod seat;

pub use parse::Components;
pub use seat::{Division, Seat, Share, check_steps};

/// Number of environments up to which each is listed; beyond it, only the first and the last are
/// named.
const LISTED: usize = 16;

/// The resources that the numbers of a placement refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resources {
    /// GPUs, numbered over all nodes: node 0 has the first `per_node` of them, node 1 the next.
    Gpus {
        /// Number of visible CUDA devices of a node, at least one.
        per_node: usize,
        /// Number of nodes of the launch, at least one.
        nodes: usize,
    },
    /// There is no GPU: numbers are labels, `all` stands for a single label, and everything runs on
    /// the CPU.
    Labels,
}

impl Resources {
    /// Returns GPUs if a node has any, otherwise labels.
    pub fn new(gpus_per_node: usize, nodes: usize) -> Self {
        match gpus_per_node {
            0 => Self::Labels,
            per_node => Self::Gpus {
                per_node,
                nodes: nodes.max(1),
            },
        }
    }

    /// Returns the CUDA index, on its node, of the GPU with this number; `None` for a label.
    pub fn device(self, gpu: usize) -> Option<usize> {
        match self {
            Self::Gpus { per_node, .. } => Some(gpu % per_node),
            Self::Labels => None,
        }
    }

    /// Returns the node of the GPU with this number; a label has none.
    pub fn node(self, gpu: usize) -> Option<usize> {
        match self {
            Self::Gpus { per_node, .. } => Some(gpu / per_node),
            Self::Labels => None,
        }
    }
}

/// One process of a component, and the GPUs that it may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlacedProcess {
    /// Numbers in terms of [`Resources`], ascending, at least one.
    pub gpus: Vec<usize>,
}

impl PlacedProcess {
    /// Returns the first of its GPUs, the one that a policy runs on.
    pub fn gpu(&self) -> usize {
        self.gpus.first().copied().unwrap_or(0)
    }
}

/// The processes of both components, by their process numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Environment workers.
    pub env: Vec<PlacedProcess>,
    /// Policies; process `r` is rank `r`.
    pub rollout: Vec<PlacedProcess>,
}

impl Placement {
    /// Places both components on the resources.
    ///
    /// # Errors
    /// Refuses the first rule that is broken.
    pub fn new(components: &Components, resources: Resources) -> Result<Self, Refusal> {
        Ok(Self {
            env: components.place("env", resources)?,
            rollout: components.place("rollout", resources)?,
        })
    }

    /// Returns the default placement: every rank has its own environment worker, on its own GPU.
    pub fn of_ranks(gpus: impl IntoIterator<Item = usize>) -> Self {
        let env: Vec<_> = gpus
            .into_iter()
            .map(|gpu| PlacedProcess { gpus: vec![gpu] })
            .collect();
        Self {
            rollout: env.clone(),
            env,
        }
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> usize {
        self.rollout.len()
    }

    /// Returns the numbers of the GPUs that its processes may use.
    pub fn gpus(&self) -> BTreeSet<usize> {
        let processes = self.env.iter().chain(&self.rollout);
        let gpus = processes.flat_map(|process| &process.gpus);
        gpus.copied().collect()
    }

    /// Returns one line per GPU, like the "Resource allocation" of s000: `GPU 0: EnvWorker 0 (1
    /// environment)`.
    pub fn allocation(&self, total: Option<usize>) -> Vec<String> {
        let mut tenants: BTreeMap<usize, [Vec<String>; 2]> = BTreeMap::new();
        let components = [("EnvWorker", &self.env), ("RolloutWorker", &self.rollout)];
        for (component, (name, processes)) in components.into_iter().enumerate() {
            for (number, process) in processes.iter().enumerate() {
                for gpu in &process.gpus {
                    tenants.entry(*gpu).or_default()[component].push(format!("{name} {number}"));
                }
            }
        }
        let mut seats: BTreeMap<usize, usize> = BTreeMap::new();
        let of_rank = |total| (0..self.world_size()).flat_map(move |rank| self.seats(rank, total));
        for seat in total.into_iter().flat_map(of_rank) {
            *seats.entry(seat.gpu).or_default() += 1;
        }
        let line = |(gpu, [workers, policies]): (usize, [Vec<String>; 2])| {
            let what = match (workers.is_empty(), policies.is_empty(), total) {
                (false, false, _) => "shared".to_owned(),
                (true, ..) => "policy inference".to_owned(),
                (false, true, Some(_)) => {
                    counted(seats.get(&gpu).copied().unwrap_or(0), "environment")
                }
                (false, true, None) => "environments".to_owned(),
            };
            let who = [workers, policies].concat().join(" + ");
            format!("GPU {gpu}: {who} ({what})")
        };
        tenants.into_iter().map(line).collect()
    }

    /// Returns one line per worker, like the "Distribution" of s001: `Worker 0 (GPU 0): Manages 2
    /// environments (env 0, env 1)`.
    pub fn distribution(&self, total: usize) -> Vec<String> {
        let each = total / self.env.len().max(1);
        let line = |(worker, process): (usize, &PlacedProcess)| {
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

#[cfg(test)]
mod tests;
