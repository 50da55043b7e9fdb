//! Tests of `model_server` in a jobs file: started before the ranks, kept running, stopped after
//! them.

mod ends;
mod life;
mod nodes;
mod refusals;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

use crate::launch::command::{PYTHON, Rrun};
use crate::launch::ended::Ended;
use crate::launch::running::{Running, alive};

/// A rank that waits for the file `go`, which gives a test time for its checks.
const WAITING: &str = "echo $$ > pid.$RANK; await go";

/// A server with a health page, configured by arguments: `slow` seconds until it answers, `sick`
/// without an end, `dies` half a second after its first answer, `deaf` to SIGTERM, with a `child`.
const SERVER: &str = r#"
import http.server, os, signal, subprocess, sys, time
port, words = int(sys.argv[1]), sys.argv[2:]
with open("starts", "a") as file:
    file.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')} {os.environ.get('COLOUR')} {os.getcwd()}\n")
starts = len(open("starts").readlines())
print("hello from stdout", flush=True)
print("hello from stderr", file=sys.stderr, flush=True)
if "child" in words:
    child = subprocess.Popen(["sleep", "10000"])
    with open("child", "w") as file:
        file.write(str(child.pid))
if "deaf" in words:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "early" in words:
    sys.exit("no such model: gr00t-9000")
if "slow" in words:
    time.sleep(1)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if "sick" in words else 200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *args):
        pass
class Server(http.server.HTTPServer):
    allow_reuse_address = True
server = Server(("127.0.0.1", port), Page)
if "dies" in words or ("once" in words and starts == 1):
    server.handle_request()
    time.sleep(0.5)
    sys.exit("out of memory")
server.serve_forever()
"#;

/// Returns a free port below the range of other sockets (32768 and up).
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 7_000) as u16;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns a server with these arguments, as in a jobs file.
fn server(words: &[&str]) -> Value {
    let port = free_port();
    let command: Vec<String> = [PYTHON, "server.py", &port.to_string()]
        .iter()
        .chain(words)
        .map(|&word| word.to_owned())
        .collect();
    json!({"command": command, "health_url": format!("http://127.0.0.1:{port}/health"), "stop_timeout": 20})
}

fn with(mut server: Value, field: &str, value: impl Into<Value>) -> Value {
    server[field] = value.into();
    server
}

/// Returns `rrun eval` with a rank program of the test, in a folder with the server's script.
fn eval(server: &Value, nproc: usize, rank: &str) -> Rrun {
    eval_of_any(server, rank).nproc(nproc)
}

/// Works like [`eval`], without a number of ranks.
fn eval_of_any(server: &Value, rank: &str) -> Rrun {
    let job = |name: &str| json!({"name": name, "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 1});
    let jobs: Vec<Value> = ["a", "b", "c", "d"].map(job).to_vec();
    let await_file = "await() { until test -s \"$1\"; do sleep 0.01; done; }";
    let jobs = json!({"model_server": server, "jobs": jobs}).to_string();
    let rrun = Rrun::new()
        .file("jobs.json", &jobs)
        .file("server.py", SERVER);
    let rrun = rrun.executable("bin/rrun-rank", &format!("#!/bin/sh\n{await_file}\n{rank}"));
    rrun.program(&["eval", "--jobs", "jobs.json", "--output", "out"])
}

/// Copies the binary beside the rank program of the test and starts the launch.
fn start(rrun: &Rrun) -> Running {
    rrun.start_below("cp \"$1\" bin/rrun && shift && exec bin/rrun \"$@\"")
}

fn run(server: &Value, nproc: usize, rank: &str) -> Ended {
    start(&eval(server, nproc, rank)).wait()
}

/// Returns what the server wrote at each of its starts: PID, GPUs, colour, folder.
fn starts(ended: &Ended) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    ended.text("starts").lines().map(words).collect()
}

fn pid(words: &[String]) -> i32 {
    words[0].parse().unwrap()
}

#[track_caller]
fn nothing_is_left(ended: &Ended) {
    let left: Vec<i32> = starts(ended)
        .iter()
        .map(|words| pid(words))
        .filter(|pid| alive(*pid))
        .collect();
    assert!(left.is_empty(), "{left:?}\n{}", ended.stderr);
}

fn log(ended: &Ended) -> String {
    ended.text(&ended.only_entry("out/logs"))
}
