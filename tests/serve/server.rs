//! Starts a server on a free port.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Time limit, longer than any step here takes on a busy machine with two cores.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Returns the checkpoint of the recorded exchanges.
pub fn recorded() -> PathBuf {
    rig::fixture("gr00t/case_d_bf16_sharded_policy")
}

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    lines: Mutex<Receiver<String>>,
}

impl Server {
    /// Starts a server with the checkpoint of the recorded exchanges, in the default dtype of a
    /// CPU.
    pub fn start(words: &[&str]) -> Self {
        Self::of(&recorded(), words)
    }

    /// Returns the server that all tests of this program share that need no words and do not look
    /// at what it counts. It ends with the program.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Server> = LazyLock::new(|| {
            // The end of its stdin is the end of this program, which drops no static.
            let mut command = Command::new("sh");
            command.args(["-c", "\"$0\" \"$@\" & read -r _; kill -KILL $!"]);
            command.arg(rig::rrun_rank());
            Server::by(command, &recorded(), &[])
        });
        &SHARED
    }

    pub fn of(model: &Path, words: &[&str]) -> Self {
        Self::by(Command::new(rig::rrun_rank()), model, words)
    }

    fn by(mut command: Command, model: &Path, words: &[&str]) -> Self {
        command
            .args(["serve", "--host", "127.0.0.1", "--port", "0", "--policy"])
            .arg(model)
            .args(words);
        let (child, lines) = spawn(command);
        let address = address(&lines);
        Self {
            child,
            address,
            lines: Mutex::new(lines),
        }
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
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Waits for its exit; returns its output since it was ready.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        let said: Vec<String> = self.lines.get_mut().unwrap().iter().collect();
        (status, said.join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

/// Starts a command, with the lines of its stderr in a channel.
pub fn spawn(mut command: Command) -> (Child, Receiver<String>) {
    command
        .env_remove("RRUN_API_TOKEN")
        .env("OMP_NUM_THREADS", "1");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .expect("the binaries are built before the tests run");
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (said, lines) = channel();
    std::thread::spawn(move || {
        stderr
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| said.send(line))
    });
    (child, lines)
}

/// Returns the address after `ready on`.
pub fn address(lines: &Receiver<String>) -> SocketAddr {
    let mut before = Vec::new();
    loop {
        let line = lines
            .recv_timeout(DEADLINE)
            .unwrap_or_else(|err| panic!("not ready: {err}: {before:#?}"));
        if let Some((_, rest)) = line.split_once("ready on ") {
            return rest.split(',').next().unwrap().parse().unwrap();
        }
        before.push(line);
    }
}

pub fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the end of the server", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Polls until `condition` holds; fails the test after the time limit.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = now();
    while !condition() {
        assert!(
            start.elapsed() < DEADLINE,
            "{what}: not within {DEADLINE:?}"
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "between two looks at a real process"
        )]
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[expect(clippy::disallowed_methods, reason = "deadlines of real processes")]
pub fn now() -> Instant {
    Instant::now()
}
