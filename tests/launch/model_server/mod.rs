//! Tests of `model_server` in a jobs file: started before the ranks, kept running, stopped after
//! them.

mod ends;
mod life;
mod nodes;

use rig::PYTHON;
use rig::net;
use rig::process::alive;
use rig::run::{Ended, Given};
use serde_json::{Value, json};

use crate::launch::{eval, only_entry};

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

/// Returns a server with these arguments, as in a jobs file.
fn server(words: &str) -> Value {
    let port = net::port();
    let command = format!("{PYTHON} server.py {port} {words}");
    let command: Vec<&str> = command.split_whitespace().collect();
    let url = format!("http://127.0.0.1:{port}/health");
    json!({"command": command, "health_url": url, "stop_timeout": 20})
}

/// Returns a server whose command is a text for the shell, and that is asked by its port alone.
fn server_of_a_shell(before: &str, after: &str) -> Value {
    let port = net::port();
    json!({"command": format!("{before}{PYTHON} server.py {port} {after}"), "health_port": port})
}

fn with(mut server: Value, field: &str, value: impl Into<Value>) -> Value {
    server[field] = value.into();
    server
}

/// Gives `rrun eval` with a rank program of the test, in a folder with the server's script.
fn beside(server: &Value, rank: &str) -> Given {
    eval(rank, Some(server)).file("server.py", SERVER)
}

/// Works like [`beside`], with this number of ranks.
fn ranks_beside(server: &Value, count: usize, rank: &str) -> Given {
    beside(server, rank).words(["--nproc-per-node", &count.to_string()])
}

/// Returns what the server wrote at each of its starts: PID, GPUs, colour, folder.
fn starts(ended: &Ended) -> Vec<Vec<String>> {
    starts_in(&ended.text("starts"))
}

fn starts_in(text: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    text.lines().map(words).collect()
}

fn pid(words: &[String]) -> i32 {
    words[0].parse().unwrap()
}

/// Checks that the server was started so many times, and that none of its processes lives.
#[track_caller]
fn assert_over(ended: &Ended, count: usize) {
    let starts = starts(ended);
    assert_eq!(starts.len(), count, "{}", ended.said());
    let left = starts.iter().filter(|words| alive(pid(words)));
    assert_eq!(left.count(), 0, "{}", ended.said());
}

fn log(ended: &Ended) -> String {
    ended.text(only_entry(ended, "out/logs"))
}
