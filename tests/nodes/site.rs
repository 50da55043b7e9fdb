//! Launchers on the machines of a network.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use rig::run::{Given, Signal};

use crate::nodes::cluster::{Cluster, LOSING};
use crate::nodes::lab::Lab;

/// Port of the rendezvous, which is always free in a network namespace of the test.
pub const PORT: u16 = 29400;

/// Time limit for noticing a lost node: three seconds without a heartbeat, one second between two
/// checks, and a margin for a busy machine.
pub const NOTICED: Duration = Duration::from_secs(3 + 1 + 6);

/// A cluster whose nodes are on machines.
pub struct Site {
    pub lab: Lab,
    cluster: Cluster,
}

impl Site {
    /// Creates `hosts` machines, if namespaces are available.
    pub fn new(hosts: usize) -> Option<Site> {
        Lab::new(hosts).map(|lab| Site::of(lab, PORT))
    }

    /// Uses these machines, with the rendezvous at this port.
    pub fn of(lab: Lab, port: u16) -> Site {
        let cluster = Cluster::at(port);
        Site { lab, cluster }
    }

    /// Creates `hosts` machines, and starts a node of one elastic launch on each of the first
    /// `nodes`; the first one hosts. A node is lost after three seconds.
    pub fn losing(hosts: usize, nodes: usize, words: &str, script: &str) -> Option<Site> {
        let mut site = Site::new(hosts)?;
        site.conf = LOSING;
        for host in 0..nodes {
            site.elastic(host, words, script);
        }
        Some(site)
    }

    /// Returns the next node, on a machine, with these options.
    pub fn node(&self, host: usize, words: &str) -> Given {
        let folder = self.folder().root().display().to_string();
        let enter = [
            self.lab.enter(host),
            ["env", "-C", &folder].map(str::to_owned).to_vec(),
        ];
        self.given().words(words).under(&enter.concat())
    }

    /// Returns a node of an elastic launch, with its rendezvous on the first machine. `words` are
    /// the number of nodes and further options.
    pub fn elastic_node(&self, host: usize, words: &str) -> Given {
        let meeting = "--rdzv-backend c10d --rdzv-endpoint 10.77.0.1 --nnodes";
        self.node(host, &format!("{meeting} {words}"))
    }

    /// Starts such a node, whose ranks run a shell script.
    pub fn elastic(&mut self, host: usize, words: &str, script: &str) -> usize {
        let given = self.elastic_node(host, words).sh(script);
        self.start(given)
    }

    /// Starts a node of a static launch, with its rendezvous on the first machine; its rank is the
    /// number of its machine.
    pub fn fixed(&mut self, host: usize, words: &str, script: &str) -> usize {
        let meeting = format!("--node-rank {host} --master-addr 10.77.0.1 --master-port {PORT}");
        let given = self.node(host, &format!("{meeting} --nnodes {words}"));
        self.start(given.sh(script))
    }

    /// Emulates a power loss: nothing is sent from this machine any more, not even the end of its
    /// connections.
    pub fn lose(&mut self, host: usize, node: usize) {
        self.lab.unplug(host);
        self.signal(node, Signal::KILL);
        self.all_end_with(-9, &[node]);
    }
}

impl Deref for Site {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for Site {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

/// Fails if more than `limit` has passed since `start`.
#[track_caller]
pub fn within(start: Instant, limit: Duration, what: &str) {
    let passed = start.elapsed();
    eprintln!("{what} after {passed:.1?}");
    assert!(passed < limit, "{what} after {passed:?}, not {limit:?}");
}
