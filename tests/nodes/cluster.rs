//! Several launchers as nodes, which share a folder and a port.

use std::fs;

use rig::net;
use rig::process;
use rig::run::{Folder, Given, Running, Signal};
use rig::wait::{DEADLINE, Look, within};

/// Settings under which waits end soon, and no node is lost while others keep the machine busy.
pub const FAST: &str = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=30,join_timeout=60,read_timeout=40,timeout=60";

/// A node is lost after three seconds. On a busy machine this may happen to any node for a moment,
/// so tests with this setting wait for a state, however many rounds it takes.
pub const LOSING: &str = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=60,read_timeout=40,timeout=60";

/// A rank that writes its rank and world, and runs until the file `go` is written.
pub const RECORD: &str = r#"
echo "$NODE $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR $MASTER_PORT" >> records
await go"#;

/// Launchers that share a port and a folder.
pub struct Cluster {
    folder: Folder,
    port: u16,
    /// Settings of the rendezvous of the nodes that are started next.
    pub conf: &'static str,
    nodes: Vec<Running>,
}

/// A line that a rank has written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub node: usize,
    pub rank: usize,
    pub world: usize,
    pub restarts: u32,
    pub master: String,
}

impl Record {
    fn read(line: &str) -> Record {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        Record {
            node: number(0),
            rank: number(1),
            world: number(2),
            restarts: number(3) as u32,
            master: format!("{}:{}", words[4], words[5]),
        }
    }
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster::at(net::port())
    }

    /// Creates a cluster whose nodes are lost after three seconds.
    pub fn losing() -> Cluster {
        Cluster {
            conf: LOSING,
            ..Cluster::new()
        }
    }

    /// Creates a cluster at a port whose store already listens, or never will.
    pub fn at(port: u16) -> Cluster {
        Cluster {
            folder: Folder::new(),
            port,
            conf: FAST,
            nodes: Vec::new(),
        }
    }

    /// Returns the folder in which the nodes run and write their records.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the port of the rendezvous.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the launcher of the next node, with the settings of the rendezvous.
    pub fn given(&self) -> Given {
        Given::rrun()
            .beside(&self.folder)
            .env("NODE", self.nodes.len())
            .env("OMP_NUM_THREADS", 1)
            .words(["--rdzv-conf", self.conf])
    }

    /// Starts a launcher as the next node, and returns its number.
    pub fn start(&mut self, given: Given) -> usize {
        self.nodes.push(given.start());
        self.nodes.len() - 1
    }

    /// Returns the next node of an elastic launch, with its rendezvous at 127.0.0.1. `words` are
    /// the number of nodes and further options, of which the last of a name counts.
    pub fn elastic_node(&self, words: &str) -> Given {
        let endpoint = format!("127.0.0.1:{}", self.port);
        self.given()
            .words(["--rdzv-backend", "c10d", "--rdzv-endpoint", &endpoint])
            .words("--nnodes")
            .words(words)
    }

    /// Starts such a node, whose ranks run a shell script.
    pub fn elastic(&mut self, words: &str, script: &str) -> usize {
        self.start(self.elastic_node(words).sh(script))
    }

    /// Returns the next node of a static launch, whose store is that of node 0 at 127.0.0.2.
    /// `words` are the number of nodes and further options.
    pub fn fixed_node(&self, rank: usize, words: &str) -> Given {
        self.given()
            .words(["--node-rank", &rank.to_string()])
            .words(["--master-addr", "127.0.0.2"])
            .words(["--master-port", &self.port.to_string()])
            .words("--nnodes")
            .words(words)
    }

    /// Starts such a node, whose ranks run a shell script.
    pub fn fixed(&mut self, rank: usize, words: &str, script: &str) -> usize {
        self.start(self.fixed_node(rank, words).sh(script))
    }

    /// Returns the records of all ranks so far.
    pub fn records(&self) -> Vec<Record> {
        // The last line may be incomplete.
        let text = self.text("records");
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        lines.map(|line| Record::read(line.trim_end())).collect()
    }

    /// Waits until `count` ranks have started in a world of this size after `restarts` restarts.
    #[track_caller]
    pub fn wait_for(&mut self, count: usize, world: usize, restarts: u32) -> Vec<Record> {
        let are_meant = |record: &Record| record.world == world && record.restarts == restarts;
        let what = format!("{count} ranks in a world of {world}");
        let mut found = self.until(&what, |cluster| {
            let records = cluster.records().into_iter();
            let found: Vec<Record> = records.filter(are_meant).collect();
            (found.len() >= count).then_some(found)
        });
        found.sort();
        found
    }

    /// Waits until the last record of each of these nodes is from one round of exactly these nodes,
    /// with one rank per node, however many rounds there were before.
    #[track_caller]
    pub fn wait_for_world(&mut self, nodes: &[usize]) -> Vec<Record> {
        self.until(&format!("a world of the nodes {nodes:?}"), |cluster| {
            let mut records = cluster.records();
            records.reverse();
            let last = |node: &usize| records.iter().find(|record| record.node == *node);
            let found: Vec<Record> = nodes.iter().filter_map(last).cloned().collect();
            let is_one =
                |record: &Record| record.world == nodes.len() && record.master == found[0].master;
            (found.len() == nodes.len() && found.iter().all(is_one)).then_some(found)
        })
    }

    /// Waits until a look finds something; a failure shows what all nodes have said.
    #[track_caller]
    pub fn until<L: Look>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Cluster) -> L,
    ) -> L::Found {
        let Some(found) = within(DEADLINE, || look(self)) else {
            panic!("{what}: not within {DEADLINE:?}\n{}", self.all_stderr());
        };
        found
    }

    /// Waits until a node has said this.
    #[track_caller]
    pub fn wait_for_said(&mut self, node: usize, text: &str) {
        self.until(text, |cluster| cluster.stderr(node).contains(text));
    }

    /// Returns the text of a file in the folder; empty if it does not exist.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path(name)).unwrap_or_default()
    }

    /// Returns whether the launcher of a node is still running.
    pub fn is_running(&self, node: usize) -> bool {
        self.nodes[node].is_running()
    }

    /// Lets the ranks of [`RECORD`] end, and checks that these nodes succeed.
    #[track_caller]
    pub fn go(&mut self, nodes: &[usize]) {
        self.folder.write("go", "\n");
        self.all_end_with(0, nodes);
    }

    /// Returns the PID of the launcher of a node.
    pub fn pid(&self, node: usize) -> i32 {
        self.nodes[node].pid()
    }

    /// Sends a signal to the launcher of a node.
    #[track_caller]
    pub fn signal(&self, node: usize, signal: Signal) {
        process::send(self.pid(node), signal);
    }

    /// Waits for the end of a node; returns its exit code, or -n for signal n.
    #[track_caller]
    pub fn end(&mut self, node: usize) -> i32 {
        self.until(&format!("the end of node {node}"), |cluster| {
            cluster.nodes[node].code()
        })
    }

    /// Waits for the end of these nodes, and checks their exit code.
    #[track_caller]
    pub fn all_end_with(&mut self, code: i32, nodes: &[usize]) {
        for &node in nodes {
            assert_eq!(self.end(node), code, "node {node}\n{}", self.all_stderr());
        }
    }

    /// Checks that a node has said all of these texts.
    #[track_caller]
    pub fn says(&self, node: usize, texts: &[&str]) {
        let said = self.stderr(node);
        for text in texts {
            assert!(said.contains(text), "node {node} lacks {text:?}:\n{said}");
        }
    }

    /// Checks that a node has said none of these texts.
    #[track_caller]
    pub fn lacks(&self, node: usize, texts: &[&str]) {
        let said = self.stderr(node);
        for text in texts {
            assert!(!said.contains(text), "node {node} has {text:?}:\n{said}");
        }
    }

    pub fn stdout(&self, node: usize) -> String {
        self.nodes[node].stdout()
    }

    pub fn stderr(&self, node: usize) -> String {
        self.nodes[node].stderr()
    }

    /// Returns what all nodes have said.
    pub fn all_stderr(&self) -> String {
        (0..self.nodes.len())
            .map(|node| format!("-- node {node}\n{}", self.stderr(node)))
            .collect()
    }
}
