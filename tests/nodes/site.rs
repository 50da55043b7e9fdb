//! Starts launchers on the machines of a network.

use std::time::{Duration, Instant};

use crate::nodes::cluster::Cluster;
use crate::nodes::lab::Lab;

/// Port of the rendezvous, which is always free in a network namespace of the test.
pub const PORT: u16 = 29400;

/// Time limit for noticing a lost node: three seconds without a heartbeat, one second between two
/// checks, and a margin for a busy machine.
pub const NOTICED: Duration = Duration::from_secs(3 + 1 + 6);

/// Launchers on machines.
pub struct Site {
    pub lab: Lab,
    pub cluster: Cluster,
    folder: String,
}

impl Site {
    /// Creates `hosts` machines, if namespaces are available.
    pub fn new(hosts: usize) -> Option<Site> {
        let (lab, cluster) = (Lab::new(hosts)?, Cluster::at(PORT));
        let folder = cluster.folder().display().to_string();
        Some(Site {
            lab,
            cluster,
            folder,
        })
    }

    /// Starts a launcher on a machine.
    pub fn start(&mut self, host: usize, options: &[&str], program: &[&str]) -> usize {
        self.cluster
            .start_as(self.lab.rrun(host, &self.folder), options, program)
    }

    /// Starts a node of an elastic launch, with its rendezvous on the first machine.
    pub fn elastic(
        &mut self,
        host: usize,
        nnodes: &str,
        options: &[&str],
        program: &[&str],
    ) -> usize {
        let meeting = [
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "10.77.0.1",
            "--nnodes",
            nnodes,
        ];
        let conf = ["--rdzv-conf", crate::nodes::cluster::FAST];
        self.start(host, &[&meeting[..], &conf, options].concat(), program)
    }

    /// Starts a node of a static launch, with its rendezvous on the first machine; its rank is the
    /// number of its machine.
    pub fn fixed(
        &mut self,
        host: usize,
        nodes: usize,
        options: &[&str],
        program: &[&str],
    ) -> usize {
        let (nodes, rank) = (nodes.to_string(), host.to_string());
        let meeting = [
            "--nnodes",
            &nodes,
            "--node-rank",
            &rank,
            "--master-addr",
            "10.77.0.1",
        ];
        let conf = [
            "--master-port",
            "29400",
            "--rdzv-conf",
            crate::nodes::cluster::FAST,
        ];
        self.start(host, &[&meeting[..], &conf, options].concat(), program)
    }

    /// Emulates a power loss: nothing is sent from this machine any more, not even the end of its
    /// connections.
    pub fn lose(&mut self, host: usize, node: usize) {
        self.lab.unplug(host);
        self.cluster.signal(node, "KILL");
        assert_eq!(self.cluster.end(node), -9);
    }
}

/// Measures the time since it was started.
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "what real processes take is measured"
    )]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Fails if more than `limit` has passed.
    #[track_caller]
    pub fn within(&self, limit: Duration, what: &str) {
        let passed = self.0.elapsed();
        eprintln!("{what} after {passed:.1?}");
        assert!(
            passed < limit,
            "{what} after {passed:?}, {limit:?} at most were expected"
        );
    }
}
