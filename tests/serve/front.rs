//! Tests of `rrun serve --front-port`: one port for several ranks.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;

use crate::serve::client::{Client, file, ping};
use crate::serve::launcher::Launch;
use crate::serve::server::{DEADLINE, metric_of, spawn, wait_until};

/// A launch of three ranks behind a front port.
struct FrontLaunch {
    launch: Launch,
    /// Folder with the interface, which a rank that restarts reads again.
    _folder: tempfile::TempDir,
    lines: Receiver<String>,
    front: SocketAddr,
    /// Addresses of the ranks, in the order in which they were ready.
    ranks: Vec<SocketAddr>,
}

impl FrontLaunch {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(rig::rrun());
        command.args(["--nproc-per-node", "3", "serve", "--host", "127.0.0.1"]);
        front_port(&mut command, folder.path());
        let (child, lines) = spawn(command);
        let mut launch = Self {
            launch: Launch(child),
            _folder: folder,
            lines,
            front: SocketAddr::from(([127, 0, 0, 1], 0)),
            ranks: Vec::new(),
        };
        launch.wait_for("3 of 3 take connections");
        launch
    }

    /// Reads lines up to one that ends in `end`, and the addresses in them.
    fn wait_for(&mut self, end: &str) {
        loop {
            let line = self.lines.recv_timeout(DEADLINE).expect("another line");
            if let Some((_, rest)) = line.split_once("ready on ") {
                self.ranks
                    .push(rest.split(',').next().unwrap().parse().unwrap());
            }
            if let Some((_, rest)) = line.split_once("front port ") {
                self.front = rest.split(": ").next().unwrap().parse().unwrap();
            }
            if line.ends_with(end) {
                return;
            }
        }
    }

    /// Connects by the front port and waits for an answer.
    fn client(&self) -> Client {
        let mut client = Client::connect(self.front);
        ping(&mut client);
        client
    }

    /// Returns how many pings each rank has answered.
    fn pings(&self) -> Vec<f64> {
        let count =
            |rank: &SocketAddr| metric_of(*rank, "rrun_serve_requests_total{endpoint=\"ping\"}");
        self.ranks.iter().map(count).collect()
    }
}

/// Adds the words of a policy of one action behind a front port.
fn front_port(command: &mut Command, folder: &Path) {
    let interface = folder.join("interface.json");
    std::fs::write(&interface, r#"{"actions": {"names": ["x"]}}"#).unwrap();
    command.args(["--front-port", "0", "--policy", "zero_action"]);
    command.arg("--interface").arg(interface);
}

/// Returns a process that the launcher has started.
fn a_rank(launcher: &Child) -> String {
    let pid = launcher.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn connections_are_spread_over_the_ranks_and_survive_the_death_of_another() {
    let mut launch = FrontLaunch::start();
    let mut clients: Vec<Client> = (0..6).map(|_| launch.client()).collect();
    assert_eq!(launch.pings(), [2.0; 3]);

    let killed = a_rank(&launch.launch.0);
    assert!(
        Command::new("kill")
            .args(["-KILL", &killed])
            .status()
            .unwrap()
            .success()
    );
    launch.wait_for("2 of 3 take connections");
    let body = file("ping.request.bin");
    let is_alive = |client: &mut Client| client.send(&body).and_then(|()| client.receive()).is_ok();
    clients.retain_mut(is_alive);
    assert_eq!(clients.len(), 4);
    clients.push(launch.client());

    launch.ranks.clear();
    launch.wait_for("3 of 3 take connections");
    // The new rank has no connections, and the others have five.
    clients.extend([launch.client(), launch.client()]);
    wait_until("the new rank has answered both", || launch.pings() == [2.0]);
    clients.iter_mut().for_each(ping);
}

#[test]
fn a_front_port_needs_the_launcher() {
    let mut command = Command::new(rig::rrun_rank());
    let folder = tempfile::tempdir().unwrap();
    command.args(["serve", "--host", "127.0.0.1"]);
    front_port(&mut command, folder.path());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("--front-port is opened by `rrun serve`"),
        "{text}"
    );
}
