//! The plan of a policy server (`serve`): what is looked for before its ranks start, and the port
//! that they share.

use std::net::SocketAddr;

use jobs::job::Job;
use serde::Serialize;

/// A checked policy server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServePlan {
    /// `--front-port`: the address that all ranks of this node share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front: Option<SocketAddr>,
    /// A job with the policy and the environment, whose files have to exist.
    #[serde(skip)]
    pub job: Option<Job>,
    /// Number of GPUs that this node shows.
    #[serde(skip)]
    pub gpus: usize,
}
