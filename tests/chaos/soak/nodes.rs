//! The nodes of a cluster: each is a launcher with one rank, on this machine. Whatever watches over
//! nodes, such as SLURM or Kubernetes, starts one again that has ended.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rig::net::port;
use rig::process::alive;
use rig::wait::now;
use serde_json::Value;

use crate::eval::command::{Ended, Eval, Running, Signal};
use crate::eval::given::marked;

/// How many texts of launchers that ended are kept.
const KEPT: usize = 6;

/// A cluster with one run folder.
pub struct Nodes {
    eval: Eval,
    page_port: u16,
    endpoint: u16,
    nodes: Vec<Node>,
    mark: String,
    /// What the launchers said that ended last.
    last: VecDeque<String>,
}

/// A place for a launcher.
enum Node {
    Up(Running),
    /// It is started again then.
    Down(Instant),
}

impl Nodes {
    /// Makes a cluster that runs these jobs; its nodes start as soon as it is looked after.
    pub fn new(jobs: &[Value], count: usize, mark: &str) -> Nodes {
        let (endpoint, page_port) = (port(), port());
        let rrun = rig::rrun().to_owned();
        let launcher = [
            &rrun,
            "--nnodes",
            &format!("1:{count}"),
            "--nproc-per-node=1",
            "--rdzv-backend=c10d",
            &format!("--rdzv-endpoint=127.0.0.1:{endpoint}"),
            "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=60",
            "--rdzv-id=soak",
            "--max-restarts=10000",
            "--hang-timeout=15",
            "--on-hang=restart",
        ];
        let words = [
            "--assign=dynamic",
            "--stall-timeout=5",
            "--env-restarts=1000",
            "--page",
            &page_port.to_string(),
        ];
        let eval = Eval::new(jobs)
            .launched_by(&launcher.map(str::to_owned))
            .words(&words)
            .env("RRUN_MARK", mark);
        let now = now();
        Nodes {
            eval,
            page_port,
            endpoint,
            nodes: (0..count).map(|_| Node::Down(now)).collect(),
            mark: mark.to_owned(),
            last: VecDeque::new(),
        }
    }

    pub fn eval(&self) -> &Eval {
        &self.eval
    }

    pub fn page_port(&self) -> u16 {
        self.page_port
    }

    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Returns the launchers that run.
    pub fn up(&self) -> Vec<&Running> {
        let up = self.nodes.iter().filter_map(|node| match node {
            Node::Up(running) if alive(running.pid()) => Some(running),
            Node::Up(_) | Node::Down(_) => None,
        });
        up.collect()
    }

    /// Returns the ranks that run.
    pub fn ranks(&self) -> Vec<i32> {
        let up = self.up();
        up.iter().flat_map(|running| running.ranks()).collect()
    }

    /// Returns whether a launcher serves the store at the endpoint.
    pub fn is_host(&self, pid: i32) -> bool {
        let of_port = format!(":{}", self.endpoint);
        let mut ss = Command::new("ss");
        let told = ss
            .args(["-Hltnp", "sport", "=", &of_port])
            .output()
            .unwrap();
        String::from_utf8_lossy(&told.stdout).contains(&format!("pid={pid},"))
    }

    /// Keeps the launcher with this pid down for a while, if it ends now.
    pub fn rest(&mut self, pid: i32, time: Duration) {
        self.put_down(time, |running| running.pid() == pid);
    }

    /// Starts the launchers again that have ended, unless the run is over.
    pub fn keep_up(&mut self, is_over: bool) {
        self.put_down(Duration::from_secs(1), |running| !alive(running.pid()));
        for node in &mut self.nodes {
            if matches!(node, Node::Down(until) if *until <= now()) && !is_over {
                *node = Node::Up(self.eval.start());
            }
        }
    }

    /// Waits for the end of these launchers, and keeps their places free for a while.
    fn put_down(&mut self, time: Duration, is_meant: impl Fn(&Running) -> bool) {
        for node in &mut self.nodes {
            if !matches!(node, Node::Up(running) if is_meant(running)) {
                continue;
            }
            let until = now() + time;
            if let Node::Up(running) = std::mem::replace(node, Node::Down(until)) {
                self.last.push_back(told(&running.wait()));
            }
        }
        while self.last.len() > KEPT {
            self.last.pop_front();
        }
    }

    /// Returns whether all launchers have ended, with everything that they started.
    pub fn are_gone(&self) -> bool {
        self.up().is_empty() && marked(&self.mark).is_empty()
    }

    /// Returns whether there is a complete report.
    pub fn is_complete(&self) -> bool {
        let report = report::Report::read(&self.eval.folder());
        report.is_some_and(|report| report.complete())
    }

    /// Returns the number of lines of the journals, which is about that of episodes.
    pub fn journaled(&self) -> u64 {
        let journals = fs::read_dir(self.eval.folder().journals());
        let texts = journals.into_iter().flatten().flatten().map(|entry| {
            let text = fs::read(entry.path()).unwrap_or_default();
            let needle = b"\"type\":\"episode\"";
            text.windows(needle.len())
                .filter(|part| part == needle)
                .count() as u64
        });
        texts.sum()
    }

    /// Returns what the launchers said that ended last.
    pub fn last_words(&self) -> String {
        self.last
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n---\n")
    }
}

fn told(ended: &Ended) -> String {
    let text = format!("{}\n{}\n{}", ended.code, ended.stdout, ended.stderr);
    if let Some(folder) = std::env::var_os("RRUN_SOAK_LOGS") {
        let name = format!("{:?}.log", now()).replace([' ', '{', '}', ':', ','], "_");
        fs::write(Path::new(&folder).join(name), &text).unwrap();
    }
    let from = text.len().saturating_sub(3000);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at));
    text[from.unwrap_or(0)..].to_owned()
}

impl Drop for Nodes {
    /// Ends the launchers of a test that failed.
    fn drop(&mut self) {
        for running in self.up() {
            running.signal(Signal::KILL);
        }
    }
}
