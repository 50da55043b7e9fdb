//! Tests of runs of which a user leaves out a part on the page (`--page`): Stop, and Skip.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use jobs::job::Status;
use serde_json::{Value, json};

use crate::eval::command::{Ended, Eval, Signal, job, until};

const TOKEN: &str = "a-token-for-the-test";

/// Returns jobs that last longer than the test needs, of which `short` ends early.
fn jobs() -> [Value; 2] {
    let mut long = job("reach", 20_000, 2);
    long["policy_type"] = json!("random_action");
    long["name"] = json!("long");
    let mut short = job("push", 4, 2);
    short["name"] = json!("short");
    [long, short]
}

/// Runs the jobs until some episodes of the first have ended, then asks for `command` on the page.
fn left_out(eval: Eval, command: &Value) -> (Eval, Ended) {
    let port = rig::net::port();
    let eval = eval.nproc(1).env("RRUN_PAGE_TOKEN", TOKEN).words(&[
        "--export-mode=none",
        "--page",
        &port.to_string(),
    ]);
    let running = eval.start();
    eval.wait_for_episodes(2);
    let body = command.to_string();
    let request = format!(
        "POST /command HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    until("the page takes a command", || {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
            return false;
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 2")
    });
    let ended = running.wait();
    (eval, ended)
}

fn statuses(eval: &Eval) -> Vec<Status> {
    let report = eval.report();
    report.per_job.iter().map(|job| job.status).collect()
}

#[test]
fn a_run_that_is_stopped_on_its_page_has_not_failed_and_can_be_resumed() {
    let (eval, ended) = left_out(Eval::new(&jobs()), &json!({"command": "stop"}));
    let ended = ended
        .fails_with(1)
        .stdout_has("the run ended early: stopped on its page")
        .stderr_has("ended early, as asked on its page")
        .stderr_has("to resume: ");
    for word in ["FAILED", "Root Cause", "traceback", "root cause"] {
        assert!(!ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    assert_eq!(statuses(&eval), [Status::Interrupted, Status::Pending]);
    let stopped = eval.report().run.stopped;
    assert_eq!(stopped.as_deref(), Some("stopped on its page"));
}

#[test]
fn a_job_that_is_skipped_on_the_page_says_so_and_runs_when_the_run_is_resumed() {
    let command = json!({"command": "skip", "job": "long"});
    let (eval, ended) = left_out(Eval::new(&jobs()), &command);
    let ended = ended
        .fails_with(1)
        .stdout_has("1 job was skipped on request, ")
        .stderr_has("to resume: ");
    assert!(!ended.stderr.contains("FAILED"), "{}", ended.stderr);
    assert!(!ended.stdout.contains("missing"), "{}", ended.stdout);
    assert_eq!(statuses(&eval), [Status::Skipped, Status::Completed]);
    let before = eval.journaled();
    let eval = eval.resumed();
    let running = eval.start();
    eval.wait_for_episodes(before + 2);
    running.signal(Signal::TERM);
    running.wait().fails_with(1);
    assert_eq!(statuses(&eval), [Status::Interrupted, Status::Completed]);
}
