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

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

mod parse;
mod print;
mod seat;

pub use parse::Components;
pub use seat::{Division, Seat, Share, check_steps};

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
}

#[cfg(test)]
mod tests;
