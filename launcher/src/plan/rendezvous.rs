//! Where and with how many nodes a launch meets. A launch on one node has no such plan.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// How nodes meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RendezvousPlan {
    /// Static or elastic.
    pub backend: Backend,
    /// Host of the endpoint, without brackets.
    pub host: String,
    /// Port of the endpoint; any free one if 0, which only the host of the store can use.
    pub port: u16,
    /// `store_type=file`: the file that says where the store is, in the place of host and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Fewest nodes.
    pub min: usize,
    /// Most nodes.
    pub max: usize,
    /// Names this launcher, and no other.
    pub node_id: String,
    /// `--node-rank`: the index of this node in a static launch, the first thing to sort by in an elastic one.
    pub node_rank: i64,
    /// `is_host`: whether this launcher hosts the store; if its address is that of the endpoint where `None`.
    pub hosts: Option<bool>,
    /// `--local-addr`: under which the other nodes reach this one.
    pub local_addr: Option<String>,
    /// Static: for connecting, and for all nodes to come.
    pub timeout: Duration,
    /// Elastic: for enough nodes to come.
    pub join_timeout: Duration,
    /// Elastic: for more nodes once there are enough.
    pub last_call_timeout: Duration,
    /// Elastic: for connecting to the store.
    pub read_timeout: Duration,
    /// Between two signs of life.
    pub keep_alive_interval: Duration,
    /// Missed signs of life after which a node is gone.
    pub keep_alive_max_attempt: u32,
}

impl RendezvousPlan {
    /// After so much silence a node is gone.
    pub fn keep_alive(&self) -> Duration {
        self.keep_alive_interval.saturating_mul(self.keep_alive_max_attempt)
    }
}

/// `--rdzv-backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Every node is told its index.
    Static,
    /// Nodes come and go.
    C10d,
}
