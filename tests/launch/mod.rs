//! Tests of `rrun` as a launcher of ranks. What torchrun does, too, is tested with torchrun in
//! `tests/conformance`; what is decided without a process, by unit tests.

mod completion;
mod crowd;
mod deploy;
mod failures;
mod hang;
mod isolation;
mod leftovers;
mod logs;
mod model_server;
mod ports;
mod rank;
mod said;
mod signals;
mod timers;
mod torch;

use std::process::Command;

use rig::process::alive;
use rig::run::{Ended, Given};
use rig::script::Scene;
use serde_json::{Value, json};

/// Gives a launch of so many ranks.
fn ranks(count: usize) -> Given {
    Given::rrun().words(["--nproc-per-node", &count.to_string()])
}

/// Gives an evaluation whose ranks run this script instead of the real program.
fn eval(rank: &str, model_server: Option<&Value>) -> Given {
    let job = |name: &str| {
        json!({"name": name, "arena_env_args": {"environment": "reach"},
               "policy_type": "scripted", "num_episodes": 1})
    };
    let jobs = ["a", "b", "c", "d"].map(job);
    let mut file = json!({"jobs": jobs});
    if let Some(server) = model_server {
        file["model_server"] = server.clone();
    }
    let await_file = "await() { until test -s \"$1\"; do sleep 0.01; done; }";
    let rrun = Given::new("bin/rrun")
        .file("jobs.json", file.to_string())
        .executable("bin/rrun-rank", &format!("#!/bin/sh\n{await_file}\n{rank}"))
        .program("eval --jobs jobs.json --output out");
    // By another process, see `Given::executable`.
    let mut copy = Command::new("install");
    copy.arg(rig::rrun()).arg(rrun.path("bin/rrun"));
    assert!(copy.status().unwrap().success());
    rrun
}

/// Returns the part of the failure report about the first failure.
#[track_caller]
fn root_cause(ended: &Ended) -> &str {
    let (_, after) = ended
        .stderr
        .split_once("Root Cause (first observed failure):\n")
        .expect(&ended.stderr);
    after.split("\n===").next().unwrap()
}

/// Returns the part of the failure report about the other failures.
#[track_caller]
fn other_failures(ended: &Ended) -> &str {
    let (_, after) = ended
        .stderr
        .split_once("\nFailures:\n")
        .expect(&ended.stderr);
    after.split("\n---").next().unwrap()
}

/// Returns the path of the only entry in a folder of a launch.
#[track_caller]
fn only_entry(ended: &Ended, folder: &str) -> String {
    let entries = ended.entries(folder);
    assert_eq!(entries.len(), 1, "{entries:?}");
    format!("{folder}/{}", entries[0])
}

/// Returns a file below the folder of the only launch in `logs`.
#[track_caller]
fn log(ended: &Ended, name: &str) -> String {
    ended.text(format!("{}/{name}", only_entry(ended, "logs")))
}

fn lines(ended: &Ended, name: &str) -> Vec<String> {
    ended.text(name).lines().map(str::to_owned).collect()
}

/// Checks that the processes whose PIDs are in these files have ended.
#[track_caller]
fn assert_gone(ended: &Ended, names: &[&str]) {
    let left: Vec<i32> = ended
        .pids(names)
        .into_iter()
        .filter(|pid| alive(pid))
        .collect();
    assert!(left.is_empty(), "{left:?} of {names:?}\n{}", ended.said());
}

/// Checks the scripts of a file in `cases`.
#[track_caller]
fn check(file: &str) {
    let path = rig::root().join("tests/launch/cases").join(file);
    rig::cases::check(path, |script| Scene::new().said(script));
}

#[test]
fn what_is_asked_wrongly_is_refused_and_help_is_there() {
    check("usage.txt");
}

#[test]
fn a_launch_is_shown_before_it_starts() {
    check("dry_run.txt");
}
