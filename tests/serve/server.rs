//! Starts a server on a free port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rig::run::{Ended, Given, Running, Signal};
use rig::wait::DEADLINE;

/// Returns the checkpoint of the recorded exchanges.
pub fn recorded() -> PathBuf {
    rig::fixture("gr00t/case_d_bf16_sharded_policy")
}

pub struct Server {
    running: Running,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server with the checkpoint of the recorded exchanges, in the default dtype of a
    /// CPU.
    pub fn start(words: &[&str]) -> Self {
        Self::of(&recorded(), words)
    }

    /// Returns the server that all tests of this program share that need no words and do not look
    /// at what it counts.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Server> = LazyLock::new(|| {
            // No static is dropped: it ends with this program, and removes its folder.
            let script = "\"$0\" \"$@\" & tail --pid=$PPID -f /dev/null
                          kill -KILL $!; rm -r \"$PWD\"";
            let given = Given::new("sh").words(["-c", script, rig::rrun_rank()]);
            Server::by(given, &recorded(), &[])
        });
        &SHARED
    }

    pub fn of(model: &Path, words: &[&str]) -> Self {
        Self::by(Given::rank(), model, words)
    }

    fn by(given: Given, model: &Path, words: &[&str]) -> Self {
        let running = given
            .env("OMP_NUM_THREADS", 1)
            .words("serve --host 127.0.0.1 --port 0 --policy")
            .words([model])
            .words(words)
            .start();
        let address = running.until("the server is ready", || {
            let said = running.stderr();
            assert!(running.is_running(), "{said}");
            ready(&said).next()
        });
        Self { running, address }
    }

    /// Returns the answer to `GET path`, including its head.
    pub fn get(&self, path: &str) -> String {
        get(self.address, path)
    }

    /// Returns the value of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        metric_of(self.address, name)
    }

    /// Returns the resident memory in KiB.
    pub fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.running.pid());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse().unwrap()
    }

    pub fn stop(&self) {
        self.running.signal(Signal::TERM);
    }

    /// Waits for its end.
    pub fn wait(self) -> Ended {
        self.running.wait()
    }
}

/// Returns the addresses that servers have said they are ready on.
pub fn ready(said: &str) -> impl Iterator<Item = SocketAddr> {
    let address = |line: &str| {
        let (_, rest) = line.split_once("ready on ")?;
        rest.split_once(',')?.0.parse().ok()
    };
    said.lines().filter_map(address)
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the value of a metric of the server at an address.
pub fn metric_of(address: SocketAddr, name: &str) -> f64 {
    let text = get(address, "/metrics");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
}
