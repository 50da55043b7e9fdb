//! Emulates machines in a network: each has its own network, host-name and mount namespaces, and
//! two cables to two switches.
//!
//! ```text
//!  node0 eth0 ─── v0 ┐                        eth0: 10.77.0.1, .2, … /24 and fd00::1, ::2, … /64
//!  node1 eth0 ─── v1 ┼─ br0 ┐ switch's        eth1: 10.78.0.1, .2, … /24
//!  node0 eth1 ─── w0 ┐      │ own namespace
//!  node1 eth1 ─── w1 ┼─ br1 ┘
//! ```
//! A namespace exists as long as a process in it: a `cat` that ends with the test, because its
//! standard input is closed.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use rig::need::{Need, need};
use tempfile::TempDir;

/// Commands that set up a namespace before its `cat`.
const OPEN: &str =
    "hostname $0 && mount --bind $1 /etc/hosts && ip link set lo up && echo open && exec cat";

/// The machines and their switches.
pub struct Lab {
    switch: Room,
    hosts: Vec<Room>,
    /// A file `hosts.<number>` for each machine, which is its `/etc/hosts`.
    files: TempDir,
}

/// The namespaces of one machine.
struct Room {
    keeper: Child,
}

impl Lab {
    /// Creates `hosts` machines that know each other's names, if namespaces are available.
    pub fn new(hosts: usize) -> Option<Lab> {
        let names: String = (0..hosts)
            .map(|host| format!("10.77.0.{} node{host}\n", host + 1))
            .collect();
        let machine = |host| {
            (
                format!("node{host}"),
                format!("127.0.0.1 localhost\n{names}"),
            )
        };
        need(Need::Netns).then(|| Lab::of((0..hosts).map(machine).collect()))
    }

    /// Creates machines with these names and this domain. As in a pod, `/etc/hosts` has the own
    /// name alone, until [`Lab::publish`] makes others known.
    pub fn of_pods(names: &[String], domain: &str) -> Option<Lab> {
        let machine = |(host, name): (usize, &String)| {
            let address = format!("10.77.0.{}", host + 1);
            let hosts = format!("127.0.0.1\tlocalhost\n{address}\t{name}.{domain}\t{name}\n");
            (name.clone(), hosts)
        };
        need(Need::Netns).then(|| Lab::of(names.iter().enumerate().map(machine).collect()))
    }

    /// Creates machines from their names and the texts of their `/etc/hosts`.
    fn of(machines: Vec<(String, String)>) -> Lab {
        let files = tempfile::tempdir().unwrap();
        let room = |file: &str, name: &str, text: &str| {
            let path = files.path().join(format!("hosts.{file}"));
            fs::write(&path, text).unwrap();
            Room::open(name, &path.display().to_string())
        };
        let switch = room("switch", "switch", "");
        switch.sh(
            "for br in br0 br1; do ip link add $br type bridge && ip link set $br up || exit; done",
        );
        let mut hosts = Vec::new();
        for (host, (name, text)) in machines.iter().enumerate() {
            let room = room(&host.to_string(), name, text);
            let (pid, number) = (room.keeper.id(), host + 1);
            switch.sh(&format!(
                "ip link add v{host} type veth peer name eth0 netns {pid} && ip link set v{host} master br0 up &&
                 ip link add w{host} type veth peer name eth1 netns {pid} && ip link set w{host} master br1 up"
            ));
            room.sh(&format!(
                "ip addr add 10.77.0.{number}/24 dev eth0 && ip addr add fd00::{number}/64 dev eth0 nodad &&
                 ip addr add 10.78.0.{number}/24 dev eth1 && ip link set eth0 up && ip link set eth1 up"
            ));
            hosts.push(room);
        }
        Lab {
            switch,
            hosts,
            files,
        }
    }

    /// Makes a name of this machine known to all, as a name server does.
    pub fn publish(&self, host: usize, name: &str) {
        for file in 0..self.hosts.len() {
            let path = self.files.path().join(format!("hosts.{file}"));
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            writeln!(file, "10.77.0.{}\t{name}", host + 1).unwrap();
        }
    }

    /// Returns the words before a command that make it run on this machine.
    pub fn enter(&self, host: usize) -> Vec<String> {
        self.hosts[host].enter()
    }

    /// Disconnects this machine from the first switch.
    pub fn unplug(&self, host: usize) {
        self.switch.sh(&format!("ip link set v{host} down"));
    }

    /// Reconnects this machine to the first switch.
    pub fn plug(&self, host: usize) {
        self.switch.sh(&format!("ip link set v{host} up"));
    }
}

impl Room {
    fn open(name: &str, names_file: &str) -> Room {
        let mut keeper = Command::new("unshare")
            .args(["--net", "--uts", "--mount", "--", "sh", "-c", OPEN])
            .args([name, names_file])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stdout = keeper.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        assert_eq!(said, "open\n", "the namespaces of {name}");
        Room { keeper }
    }

    fn enter(&self) -> Vec<String> {
        let target = format!("--target={}", self.keeper.id());
        let words = ["nsenter", &target, "--net", "--uts", "--mount", "--"];
        words.map(str::to_owned).to_vec()
    }

    #[track_caller]
    fn sh(&self, script: &str) {
        let words = self.enter();
        let output = Command::new(&words[0])
            .args(&words[1..])
            .args(["sh", "-c", script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // The launchers in the namespaces have been killed by now, or end with their test.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
