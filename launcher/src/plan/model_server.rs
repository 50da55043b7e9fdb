//! The plan of the model server that runs beside the ranks of a node.

use std::path::PathBuf;

use jobs::model_server::ModelServer;
use serde::Serialize;

/// A checked model server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerPlan {
    /// The server as in the jobs file, with the variable for its GPUs added.
    #[serde(flatten)]
    pub server: ModelServer,
    /// The log file, to which its output is appended.
    pub log: PathBuf,
    /// Whether this launcher starts the server. Under SLURM, the first launcher of a node does.
    pub role: ServerRole,
}

/// Which launcher runs the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerRole {
    /// This launcher starts the server.
    Host,
    /// Another launcher on this node does; this one only waits until it is healthy.
    Guest,
}
