//! Tests of signals to the launcher of an evaluation, alone and in a step of SLURM.

use std::path::PathBuf;
use std::process::Command;

use jobs::job::Status;
use rig::process::alive;
use rig::threads::minds_signals;
use serde_json::json;

use crate::eval::command::{Eval, Running, Signal, job, until};

/// Returns an evaluation that lasts longer than any test.
fn long() -> Eval {
    Eval::new(&[job("reach", 40_000, 2)])
        .nproc(1)
        .words(&["--export-mode=none"])
}

/// Returns the same in a step of SLURM with one task.
fn step() -> Eval {
    let variables = [
        ("SLURM_JOB_ID", "14"),
        ("SLURM_NODEID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NODELIST", "localhost"),
        ("SLURM_STEP_NUM_NODES", "1"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
    ];
    variables
        .into_iter()
        .fold(long(), |eval, (name, value)| eval.env(name, value))
}

/// Sends a signal and checks that the launch ends in order: with a report, by rank 0 or by the
/// launcher, and with the command that resumes.
#[track_caller]
fn ends_in_order(eval: &Eval, running: Running, signal: Signal, name: &str) {
    running.signal(signal);
    let ended = running
        .wait()
        .fails_with(1)
        .stderr_has(&format!("shutting down workers (SIG{name})"))
        .stderr_has("to resume: rrun --nproc-per-node 1 eval --resume ");
    assert!(!ended.stderr.contains("via 9"), "{}", ended.stderr);
    eprintln!("{}", ended.stderr);
    assert!(!eval.report().complete());
}

#[test]
fn a_step_that_is_told_to_stop_in_the_middle_leaves_a_report_and_how_to_resume() {
    let eval = step();
    let running = eval.start();
    eval.wait_for_episodes(2);
    ends_in_order(&eval, running, Signal::TERM, "TERM");
    let report = eval.report();
    assert_eq!(report.per_job[0].status, Status::Interrupted);
    assert!(report.overall.scored >= 2);
}

#[test]
fn a_launch_that_is_told_to_stop_at_once_leaves_a_report_and_how_to_resume() {
    for (eval, signal, name) in [(step(), Signal::TERM, "TERM"), (long(), Signal::INT, "INT")] {
        let running = eval.start();
        until("the launcher has begun", || minds_signals(running.pid()));
        ends_in_order(&eval, running, signal, name);
    }
}

#[test]
fn a_wait_for_another_machines_launch_ends_with_an_interrupt() {
    let eval = long();
    let locks = eval.folder().launches();
    std::fs::create_dir_all(&locks).unwrap();
    let other = locks.join("aa-gpu07-1234.json");
    let holder = json!({"launch": "aa", "host": "gpu07", "pid": 1234, "user": "", "boot": "another", "is_locked": false, "since": ""});
    std::fs::write(&other, holder.to_string()).unwrap();
    let running = eval.start();
    until("a lock of its own", || {
        std::fs::read_dir(&locks).unwrap().count() == 2
    });
    running.signal(Signal::INT);
    running
        .wait()
        .fails_with(1)
        .stderr_has("to see whether process 1234 on gpu07, launch aa")
        .stderr_has("to resume: rrun ");
    assert!(other.exists(), "a lock that was waited for is removed");
}

/// Returns an evaluation whose interpreter is a shell script, and the file to which the script is to
/// write as `$OUT`.
fn asking(script: &str) -> (Eval, PathBuf) {
    let mut asks = job("reach", 1, 1);
    asks["policy_type"] = json!("random_action");
    let eval = Eval::new(&[asks.clone()]);
    let path = |name: &str| eval.jobs_file().with_file_name(name);
    let out = path("written");
    let text = format!("#!/bin/sh\nOUT='{}'\n{script}\n", out.display());
    std::fs::write(path("text"), text).unwrap();
    // Copied by another process, so that no child of another test has the file open for writing.
    let copied = Command::new("install")
        .args(["-m", "755"])
        .args([path("text"), path("python")])
        .status();
    assert!(copied.unwrap().success());
    asks["arena_env_args"] =
        json!({"environment": "gym:CartPole-v1", "num_envs": 1, "python": path("python")});
    (eval.jobs(&[asks]), out)
}

#[test]
fn an_interpreter_that_is_asked_for_modules_has_no_signal_blocked() {
    let (eval, out) = asking("grep SigBlk /proc/self/status >> \"$OUT\"\nexit 1");
    eval.run();
    let blocked = std::fs::read_to_string(out).unwrap();
    assert!(
        blocked
            .lines()
            .all(|line| line == "SigBlk:\t0000000000000000"),
        "{blocked}"
    );
}

#[test]
fn a_second_interrupt_ends_a_launch_that_is_being_prepared() {
    let (eval, out) = asking("echo asked > \"$OUT\"\nexec sleep 8");
    let running = eval.start();
    until("a question that is not answered", || out.exists());
    until("the end of the launcher", || {
        running.signal(Signal::INT);
        !alive(running.pid())
    });
    running.wait().fails_with(128 + 2);
    assert!(!eval.folder().plan().exists(), "nothing was begun");
}
