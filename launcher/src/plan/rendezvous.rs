//! The plan of a rendezvous: where the nodes meet, and how many. A single-node launch has no such
//! plan.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum as _;
use serde::Serialize;

/// How several nodes meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RendezvousPlan {
    /// Static or elastic.
    pub backend: Backend,
    /// Host of the endpoint, without brackets.
    pub host: String,
    /// Port of the endpoint; 0 for any free one, which works only for the host of the store.
    pub port: u16,
    /// `store_type=file`: the file that contains the address of the store, instead of host and
    /// port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Fewest nodes.
    pub min: usize,
    /// Most nodes.
    pub max: usize,
    /// A unique id of this launcher.
    pub node_id: String,
    /// `--node-rank`: the index of this node in a static launch, the first sort key in an elastic
    /// one.
    pub node_rank: i64,
    /// `is_host`: whether this launcher hosts the store; with `None`, it does if the endpoint has
    /// its address.
    pub hosts: Option<bool>,
    /// `--local-addr`: the address under which other nodes reach this one.
    pub local_addr: Option<String>,
    /// Whether something starts a node again when its launcher has failed, each node by itself and
    /// none that has succeeded, as Kubernetes does. Then a static launch fails on all nodes if it
    /// fails on one, so that all come back, and a node that comes back before the others have
    /// ended waits for that.
    pub nodes_return: bool,
    /// `TORCH_ELASTIC_WORKER_IDENTICAL=1`: all nodes have the same number of ranks, so none has to
    /// ask the others.
    pub is_identical: bool,
    /// Static: timeout for connecting, and for all nodes to come.
    pub timeout: Duration,
    /// Elastic: timeout for enough nodes to come.
    pub join_timeout: Duration,
    /// Elastic: how long further nodes may come once there are enough.
    pub last_call_timeout: Duration,
    /// Elastic: timeout for connecting to the store.
    pub read_timeout: Duration,
    /// Interval between two heartbeats.
    pub keep_alive_interval: Duration,
    /// Number of missed heartbeats after which a node is dead.
    pub keep_alive_max_attempt: u32,
}

impl RendezvousPlan {
    /// Returns the time without a heartbeat after which a node is dead.
    pub fn keep_alive(&self) -> Duration {
        self.keep_alive_interval
            .saturating_mul(self.keep_alive_max_attempt)
    }
}

/// The rendezvous backend, `--rdzv-backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Every node is given its node rank.
    Static,
    /// Nodes may come and go.
    C10d,
}

impl Backend {
    /// Returns the backend of a name, if there is one.
    pub fn of(name: &str) -> Option<Self> {
        let mut all = Self::value_variants().iter().copied();
        all.find(|backend| backend.name() == name)
    }

    /// Returns the name, as options and events have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::C10d => "c10d",
        }
    }

    /// Returns whether all nodes are known from the beginning and meet at the store of the ranks,
    /// whose address may be given as `--master-addr` and `--master-port`.
    pub fn is_fixed(self) -> bool {
        match self {
            Self::Static => true,
            Self::C10d => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_backend() {
        let help = include_str!("../cli/help.txt");
        let (_, rest) = help.split_once("--rdzv-backend <NAME>").unwrap();
        let about = rest.split("--").next().unwrap();
        for backend in Backend::value_variants() {
            let name = backend.name();
            assert!(about.contains(name), "{name} is not in {about:?}");
            assert_eq!(Backend::of(name), Some(*backend));
        }
    }
}
