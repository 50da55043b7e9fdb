//! Options that were not given, and follow from the variables of a cluster.

use crate::cli::Cli;

/// Where launchers meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferredMeeting {
    /// `--nnodes`: number of launchers.
    pub nnodes: usize,
    /// `--node-rank`: index of this launcher.
    pub node_rank: usize,
    /// `--master-addr`: the first node.
    pub master_addr: String,
    /// `--master-port`.
    pub master_port: u16,
}

impl Cli {
    /// Returns the options with what was inferred. A run id that was given stays.
    pub fn with_inferred(
        &self,
        meeting: Option<&InferredMeeting>,
        nproc: Option<usize>,
        run_id: Option<&str>,
    ) -> Self {
        let mut cli = self.clone();
        if let Some(meeting) = meeting {
            cli.nnodes = meeting.nnodes.to_string();
            cli.node_rank = i64::try_from(meeting.node_rank).unwrap_or(i64::MAX);
            cli.master_addr = Some(meeting.master_addr.clone());
            cli.master_port = Some(meeting.master_port.into());
        }
        if let Some(nproc) = nproc {
            cli.nproc_per_node = nproc.to_string();
        }
        if let Some(run_id) = run_id.filter(|_| !self.is_given("rdzv-id")) {
            cli.rdzv_id = run_id.to_owned();
        }
        cli
    }
}
