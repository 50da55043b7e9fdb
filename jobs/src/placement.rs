//! Who sits where: RLinf's `component_placement`, and what follows from it.
//!
//! ```text
//! --placement, YAML ─► Components ─ grammar ─► segments ─ mapping ─► Placement { env, rollout }
//!                                                                      │
//!      total_num_envs ─ check ─► share ─► one Share a rank, one Seat an environment ◄┘
//! ```
//! Two components are placed. A process of `env` is an environment worker: a contiguous share of the environments, and
//! the GPU that they draw on. A process of `rollout` is a policy, and so a rank. Ranks run the environments that are
//! routed to them; a worker is where they sit and what their files are called after. Everything here is pure.
//!
//! Grammar and rules are those of rlinf/scheduler/placement/placement.py (a3816b596); docs/placement.md has them in
//! words.

use serde::{Deserialize, Serialize};

pub mod check;
pub mod components;
pub mod error;
mod grammar;
mod mapping;
pub mod print;
pub mod seat;

pub use check::Division;
pub use components::Components;
pub use error::{Fault, PlacementError};
pub use seat::{Seat, Share};

/// What the numbers of a placement count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resources {
    /// GPUs over all nodes: node 0 has the first `per_node` of them, node 1 the next.
    Gpus {
        /// Visible CUDA devices of a node, at least one.
        per_node: usize,
        /// Nodes of the launch, at least one.
        nodes: usize,
    },
    /// There is no GPU: numbers are labels, `all` is one of them, and everything runs on the CPU.
    Labels,
}

impl Resources {
    /// GPUs where there are any, else labels.
    pub fn new(gpus_per_node: usize, nodes: usize) -> Self {
        match gpus_per_node {
            0 => Self::Labels,
            per_node => Self::Gpus { per_node, nodes: nodes.max(1) },
        }
    }

    /// CUDA's index, on its node, of what the placement calls `gpu`; `None` of a label.
    pub fn device(self, gpu: usize) -> Option<usize> {
        match self {
            Self::Gpus { per_node, .. } => Some(gpu % per_node),
            Self::Labels => None,
        }
    }

    /// The node of `gpu`; a label has none.
    pub fn node(self, gpu: usize) -> Option<usize> {
        match self {
            Self::Gpus { per_node, .. } => Some(gpu / per_node),
            Self::Labels => None,
        }
    }
}

/// One process of a component, and the GPUs it may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Process {
    /// Numbers as [`Resources`] counts them, ascending, at least one.
    pub gpus: Vec<usize>,
}

impl Process {
    /// The first of its GPUs: where a policy sits.
    pub fn gpu(&self) -> usize {
        self.gpus.first().copied().unwrap_or(0)
    }
}

/// The processes of both components, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Environment workers.
    pub env: Vec<Process>,
    /// Policies; process `r` is rank `r`.
    pub rollout: Vec<Process>,
}

impl Placement {
    /// Places both components on what there is.
    ///
    /// # Errors
    /// [`PlacementError`] for the first rule that is broken.
    pub fn new(components: &Components, resources: Resources) -> Result<Self, PlacementError> {
        Ok(Self { env: components.place("env", resources)?, rollout: components.place("rollout", resources)? })
    }

    /// What holds where nothing is placed: every rank is a worker of its own, on its own GPU.
    pub fn of_ranks(gpus: impl IntoIterator<Item = usize>) -> Self {
        let env: Vec<_> = gpus.into_iter().map(|gpu| Process { gpus: vec![gpu] }).collect();
        Self { rollout: env.clone(), env }
    }

    /// How many ranks it is for.
    pub fn world_size(&self) -> usize {
        self.rollout.len()
    }
}

#[cfg(test)]
mod tests;
