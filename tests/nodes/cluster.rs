//! Starts several launchers as nodes and checks their results.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Time limit, longer than any step here takes on a busy machine with two cores.
const DEADLINE: Duration = Duration::from_secs(180);

/// Short timeouts, so that waits end soon.
pub const FAST: &str = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=40,read_timeout=20,timeout=40";

/// A rank that writes its rank and world, and runs until the file `go` exists.
pub const RECORD: &str = r#"
echo "$NODE $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR $MASTER_PORT" >> "$DIR/records"
while [ ! -e "$DIR/go" ]; do sleep 0.02; done"#;

/// Launchers that share a port and a folder.
pub struct Cluster {
    dir: TempDir,
    port: u16,
    nodes: Vec<Node>,
}

/// One launcher.
struct Node {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
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

/// Returns a free port below the range of other sockets (32768 and up).
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + (std::process::id() % 7_000) as u16;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster::at(free_port())
    }

    /// Creates a cluster at a port whose store already listens, or never will.
    pub fn at(port: u16) -> Cluster {
        Cluster {
            dir: tempfile::tempdir().unwrap(),
            port,
            nodes: Vec::new(),
        }
    }

    /// Returns the folder in which the nodes run and write their records.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the port of the rendezvous.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts a node with these options and this program, and returns its number.
    fn start(&mut self, options: &[&str], program: &[&str]) -> usize {
        self.start_as(rrun(), options, program)
    }

    /// Works like [`Cluster::start`], with a command that `exec`s the launcher.
    pub fn start_as(&mut self, mut command: Command, options: &[&str], program: &[&str]) -> usize {
        let index = self.nodes.len();
        let file = |name: &str| self.dir.path().join(format!("{name}.{index}"));
        let (stdout, stderr) = (file("stdout"), file("stderr"));
        command
            .args(options)
            .args(program)
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
            .env("DIR", self.dir.path())
            .env("NODE", index.to_string())
            .env("OMP_NUM_THREADS", "1");
        command.env("TMPDIR", self.dir.path());
        command
            .stdout(fs::File::create(&stdout).unwrap())
            .stderr(fs::File::create(&stderr).unwrap());
        self.nodes.push(Node {
            child: command.spawn().unwrap(),
            stdout,
            stderr,
        });
        index
    }

    /// Starts a node of an elastic launch, with its rendezvous at 127.0.0.1.
    pub fn elastic(&mut self, nnodes: &str, options: &[&str], program: &[&str]) -> usize {
        self.elastic_at("127.0.0.1", nnodes, options, program)
    }

    pub fn elastic_at(
        &mut self,
        host: &str,
        nnodes: &str,
        options: &[&str],
        program: &[&str],
    ) -> usize {
        let endpoint = format!("{host}:{}", self.port);
        let meeting = [
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            &endpoint,
            "--nnodes",
            nnodes,
            "--rdzv-conf",
            FAST,
        ];
        self.start(&[&meeting, options].concat(), program)
    }

    /// Starts a node of an elastic launch, with its rendezvous in a file.
    pub fn by_file(&mut self, nnodes: &str, program: &[&str]) -> usize {
        let (file, conf) = (
            self.dir.path().join("meeting"),
            format!("store_type=file,{FAST}"),
        );
        let options = [
            "--rdzv-backend",
            "c10d",
            "--nnodes",
            nnodes,
            "--rdzv-conf",
            &conf,
            "--local-addr",
            "127.0.0.1",
        ];
        self.start(
            &[
                &options[..],
                &["--rdzv-endpoint", &file.display().to_string()],
            ]
            .concat(),
            program,
        )
    }

    /// Starts a node of a static launch, whose store is that of node 0 at 127.0.0.2.
    pub fn fixed(
        &mut self,
        nodes: usize,
        rank: usize,
        options: &[&str],
        program: &[&str],
    ) -> usize {
        let program = [options, program].concat();
        self.fixed_as(rrun(), nodes, rank, &program)
    }

    /// Works like [`Cluster::fixed`], with a command that `exec`s the launcher. `words` are its
    /// other options and its program.
    pub fn fixed_as(
        &mut self,
        command: Command,
        nodes: usize,
        rank: usize,
        words: &[&str],
    ) -> usize {
        let (nodes, rank, port) = (nodes.to_string(), rank.to_string(), self.port.to_string());
        let meeting = [
            "--nnodes",
            &nodes,
            "--node-rank",
            &rank,
            "--master-addr",
            "127.0.0.2",
            "--master-port",
            &port,
            "--rdzv-conf",
            FAST,
        ];
        self.start_as(command, &meeting, words)
    }

    /// Returns the records of all ranks so far.
    pub fn records(&self) -> Vec<Record> {
        let text = fs::read_to_string(self.dir.path().join("records")).unwrap_or_default();
        let record = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse().unwrap();
            let master = format!("{}:{}", words[4], words[5]);
            Record {
                node: number(0),
                rank: number(1),
                world: number(2),
                restarts: number(3) as u32,
                master,
            }
        };
        // The last line may be incomplete.
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| record(line.trim_end()))
            .collect()
    }

    /// Waits until `count` ranks have started in a world of this size after `restarts` restarts.
    #[track_caller]
    pub fn wait_for(&mut self, count: usize, world: usize, restarts: u32) -> Vec<Record> {
        let are_meant = |record: &Record| record.world == world && record.restarts == restarts;
        let mut found = Vec::new();
        self.wait_until(&format!("{count} ranks in a world of {world}"), |cluster| {
            found = cluster.records().into_iter().filter(are_meant).collect();
            found.len() >= count
        });
        found.sort();
        found
    }

    /// Waits until the last record of each of these nodes is from one round of exactly these nodes,
    /// with one rank per node. On a busy machine a node may be considered lost for a moment and
    /// return, so the number of earlier rounds does not matter.
    #[track_caller]
    pub fn wait_for_world(&mut self, nodes: &[usize]) -> Vec<Record> {
        let mut found: Vec<Record> = Vec::new();
        self.wait_until(&format!("a world of the nodes {nodes:?}"), |cluster| {
            let records = cluster.records();
            let last = |node: &usize| {
                records
                    .iter()
                    .rev()
                    .find(|record| record.node == *node)
                    .cloned()
            };
            found = nodes.iter().filter_map(last).collect();
            let is_one =
                |record: &Record| record.world == nodes.len() && record.master == found[0].master;
            found.len() == nodes.len() && found.iter().all(is_one)
        });
        found
    }

    /// Polls until `condition` holds.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, mut condition: impl FnMut(&mut Cluster) -> bool) {
        #[expect(clippy::disallowed_methods, reason = "a deadline of real processes")]
        let start = Instant::now();
        while !condition(self) {
            assert!(
                start.elapsed() < DEADLINE,
                "{what}: not within {DEADLINE:?}\n{}",
                self.all_stderr()
            );
            #[expect(
                clippy::disallowed_methods,
                reason = "between two looks at real processes"
            )]
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for some time without any change.
    #[expect(clippy::disallowed_methods, reason = "what lasts a time is tested")]
    pub fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Returns the path of a file in the folder in which launchers and ranks run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the text of such a file; empty if it does not exist.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the number of finished episodes in all journals of an evaluation in the folder `run`,
    /// on whatever lines.
    pub fn finished_episodes(&self) -> usize {
        let Ok(files) = fs::read_dir(self.path("run/journal")) else {
            return 0;
        };
        let text: String = files
            .map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default())
            .collect();
        text.matches("\"type\":\"episode\",").count()
    }

    /// Returns whether the launcher of a node is still running.
    pub fn is_running(&mut self, node: usize) -> bool {
        self.nodes[node].child.try_wait().unwrap().is_none()
    }

    /// Lets the ranks of [`RECORD`] end.
    pub fn go(&self) {
        fs::write(self.dir.path().join("go"), "").unwrap();
    }

    /// Returns the PID of the launcher of a node.
    pub fn pid(&self, node: usize) -> u32 {
        self.nodes[node].child.id()
    }

    /// Sends a signal to the launcher of a node.
    #[track_caller]
    pub fn signal(&self, node: usize, name: &str) {
        let pid = self.pid(node).to_string();
        rig::threads::assert_none_is_exposed(&pid);
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the end of a node; returns its exit code, or -n for signal n.
    #[track_caller]
    pub fn end(&mut self, node: usize) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let mut status = None;
        self.wait_until(&format!("the end of node {node}"), |cluster| {
            status = cluster.nodes[node].child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        status
            .code()
            .unwrap_or_else(|| -status.signal().unwrap_or_default())
    }

    #[track_caller]
    pub fn all_succeed(&mut self, nodes: &[usize]) {
        for &node in nodes {
            assert_eq!(self.end(node), 0, "node {node}\n{}", self.all_stderr());
        }
    }

    pub fn stdout(&self, node: usize) -> String {
        fs::read_to_string(&self.nodes[node].stdout).unwrap()
    }

    pub fn stderr(&self, node: usize) -> String {
        fs::read_to_string(&self.nodes[node].stderr).unwrap()
    }

    fn all_stderr(&self) -> String {
        (0..self.nodes.len())
            .map(|node| format!("-- node {node}\n{}", self.stderr(node)))
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // SIGKILL of a launcher ends its ranks; an error means that it has already ended.
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
    }
}

/// Returns the launcher, outside of SLURM.
pub fn rrun() -> Command {
    let mut rrun = Command::new(rig::rrun());
    rrun.env_remove("SLURM_JOB_ID");
    rrun
}

/// Returns a program of `/bin/sh`. The launcher turns `$$` into `$`, and keeps names in braces that
/// it does not know.
pub fn sh(script: &str) -> [&str; 4] {
    ["--no-python", "/bin/sh", "-c", script]
}
