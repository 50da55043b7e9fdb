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
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};

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

/// The names of one machine.
struct Machine {
    name: String,
    /// The text of its `/etc/hosts`.
    hosts: String,
}

/// The namespaces of one machine.
struct Room {
    keeper: Child,
}

impl Lab {
    /// Creates `hosts` machines; returns `None` and prints the reason if namespaces are not
    /// available.
    pub fn new(hosts: usize) -> Option<Lab> {
        let names: String = (0..hosts)
            .map(|host| format!("10.77.0.{} node{host}\n", host + 1))
            .collect();
        let machine = |host| Machine {
            name: format!("node{host}"),
            hosts: format!("127.0.0.1 localhost\n{names}"),
        };
        Lab::of((0..hosts).map(machine).collect())
    }

    /// Creates machines with these names and this domain. As in a pod, `/etc/hosts` has the own
    /// name alone, until [`Lab::publish`] makes others known.
    pub fn of_pods(names: &[String], domain: &str) -> Option<Lab> {
        let machine = |(host, name): (usize, &String)| Machine {
            name: name.clone(),
            hosts: format!(
                "127.0.0.1\tlocalhost\n10.77.0.{}\t{name}.{domain}\t{name}\n",
                host + 1
            ),
        };
        Lab::of(names.iter().enumerate().map(machine).collect())
    }

    fn of(machines: Vec<Machine>) -> Option<Lab> {
        let made = Lab::make(&machines);
        made.map_err(|reason| eprintln!("skipped, no network namespaces: {}", reason.trim()))
            .ok()
    }

    fn make(machines: &[Machine]) -> Result<Lab, String> {
        let files = tempfile::tempdir().map_err(|err| err.to_string())?;
        let room = |file: &str, machine: &Machine| {
            let path = files.path().join(format!("hosts.{file}"));
            fs::write(&path, &machine.hosts).map_err(|err| err.to_string())?;
            Room::open(&machine.name, &path.display().to_string())
        };
        let switch = room(
            "switch",
            &Machine {
                name: "switch".to_owned(),
                hosts: String::new(),
            },
        )?;
        let hosts = machines
            .iter()
            .enumerate()
            .map(|(host, machine)| room(&host.to_string(), machine))
            .collect::<Result<Vec<Room>, String>>()?;
        switch.sh(
            "for br in br0 br1; do ip link add $br type bridge && ip link set $br up || exit; done",
        )?;
        for (host, room) in hosts.iter().enumerate() {
            let (pid, number) = (room.keeper.id(), host + 1);
            switch.sh(&format!(
                "ip link add v{host} type veth peer name eth0 netns {pid} && ip link set v{host} master br0 up &&
                 ip link add w{host} type veth peer name eth1 netns {pid} && ip link set w{host} master br1 up"
            ))?;
            room.sh(&format!(
                "ip addr add 10.77.0.{number}/24 dev eth0 && ip addr add fd00::{number}/64 dev eth0 nodad &&
                 ip addr add 10.78.0.{number}/24 dev eth1 && ip link set eth0 up && ip link set eth1 up"
            ))?;
        }
        Ok(Lab {
            switch,
            hosts,
            files,
        })
    }

    /// Makes a name of this machine known to all, as a name server does.
    pub fn publish(&self, host: usize, name: &str) {
        for file in 0..self.hosts.len() {
            let path = self.files.path().join(format!("hosts.{file}"));
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            writeln!(file, "10.77.0.{}\t{name}", host + 1).unwrap();
        }
    }

    /// Returns the command that runs `rrun` on this machine in a folder.
    pub fn rrun(&self, host: usize, dir: &str) -> Command {
        let mut command = self.hosts[host].enter();
        command
            .args(["env", "-C", dir, rig::rrun()])
            .env_remove("SLURM_JOB_ID");
        command
    }

    /// Disconnects this machine from the first switch.
    pub fn unplug(&self, host: usize) {
        self.switch
            .sh(&format!("ip link set v{host} down"))
            .unwrap();
    }

    /// Reconnects this machine to the first switch.
    pub fn plug(&self, host: usize) {
        self.switch.sh(&format!("ip link set v{host} up")).unwrap();
    }
}

impl Room {
    fn open(name: &str, names_file: &str) -> Result<Room, String> {
        let mut command = Command::new("unshare");
        command.args([
            "--net", "--uts", "--mount", "--", "sh", "-c", OPEN, name, names_file,
        ]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut keeper = command.spawn().map_err(|err| format!("unshare: {err}"))?;
        let mut said = String::new();
        let stdout = keeper.stdout.take().map(BufReader::new);
        stdout.map(|mut lines| lines.read_line(&mut said));
        let room = Room { keeper };
        if said == "open\n" {
            Ok(room)
        } else {
            Err(room.last_words())
        }
    }

    fn last_words(mut self) -> String {
        let mut text = String::new();
        self.keeper
            .stderr
            .take()
            .map(|mut stderr| stderr.read_to_string(&mut text));
        text
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.keeper.id().to_string(),
            "--net",
            "--uts",
            "--mount",
            "--",
        ]);
        command
    }

    fn sh(&self, script: &str) -> Result<(), String> {
        let Output { status, stderr, .. } = self
            .enter()
            .args(["sh", "-c", script])
            .output()
            .map_err(|err| format!("nsenter: {err}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&stderr).into_owned())
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // The launchers in the namespaces have been killed by now, or end with their test.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
