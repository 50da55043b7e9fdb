//! Given machines of a network, when they launch, then …

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::lab::Lab;

/// Nobody else has this port in a network namespace of ours.
pub const PORT: u16 = 29400;

/// Until the others see that a node is gone: three seconds without a beat, beats are looked at once a second, and this
/// machine may have more to do.
pub const NOTICED: Duration = Duration::from_secs(3 + 1 + 6);

/// Launchers on machines.
pub struct Site {
    pub lab: Lab,
    pub cluster: Cluster,
    folder: String,
}

impl Site {
    /// So many machines, if there can be any.
    pub fn new(hosts: usize) -> Option<Site> {
        let (lab, cluster) = (Lab::new(hosts)?, Cluster::at(PORT));
        let folder = cluster.folder().display().to_string();
        Some(Site { lab, cluster, folder })
    }

    /// Starts a launcher on a machine.
    pub fn start(&mut self, host: usize, options: &[&str], program: &[&str]) -> usize {
        self.cluster.start_as(self.lab.rrun(host, &self.folder), options, program)
    }

    /// A node of an elastic launch that meets at the first machine.
    pub fn elastic(&mut self, host: usize, nnodes: &str, options: &[&str], program: &[&str]) -> usize {
        let meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1", "--nnodes", nnodes];
        let conf = ["--rdzv-conf", crate::cluster::FAST];
        self.start(host, &[&meeting[..], &conf, options].concat(), program)
    }

    /// A node of a static launch that meets at the first machine; its rank is the number of its machine.
    pub fn fixed(&mut self, host: usize, nodes: usize, options: &[&str], program: &[&str]) -> usize {
        let (nodes, rank) = (nodes.to_string(), host.to_string());
        let meeting = ["--nnodes", &nodes, "--node-rank", &rank, "--master-addr", "10.77.0.1"];
        let conf = ["--master-port", "29400", "--rdzv-conf", crate::cluster::FAST];
        self.start(host, &[&meeting[..], &conf, options].concat(), program)
    }

    /// Power loss: nothing more comes from this machine, not even that its connections end.
    pub fn lose(&mut self, host: usize, node: usize) {
        self.lab.unplug(host);
        self.cluster.signal(node, "KILL");
        assert_eq!(self.cluster.end(node), -9);
    }
}

/// The time since it was started.
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "what real processes take is measured")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Fails if more has passed than this.
    #[track_caller]
    pub fn within(&self, limit: Duration, what: &str) {
        let passed = self.0.elapsed();
        eprintln!("{what} after {passed:.1?}");
        assert!(passed < limit, "{what} after {passed:?}, {limit:?} at most were expected");
    }
}
