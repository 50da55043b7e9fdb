//! Tests of a failing rank: which rank is reported, what happens to the others, restarts of all.

use rig::run::Given;

use crate::launch::{assert_gone, lines, only_entry, other_failures, ranks, root_cause};

/// A rank that writes its PID and sleeps without an end.
const SLEEP: &str = "echo $$ > pid.$RANK; exec sleep 10000";

/// Gives a launch in which the last rank waits until the others sleep, and then runs `script`.
fn last_of(count: usize, script: &str) -> Given {
    let awaits: String = (0..count - 1)
        .map(|rank| format!("await pid.{rank}; "))
        .collect();
    let last = count - 1;
    ranks(count).sh(&format!(
        "[ $RANK != {last} ] && {{ {SLEEP}; }}; {awaits}{script}"
    ))
}

/// Returns the launcher's output between the end of the ranks and its report.
fn last_words(stderr: &str) -> &str {
    let (_, words) = stderr.split_once("rrun: root cause: ").expect(stderr);
    words.split("\n===").next().unwrap()
}

#[test]
fn the_first_failure_is_named_and_the_others_are_stopped_and_said_to_be() {
    let ended = last_of(3, "exit 7")
        .fails_with(1)
        .stderr_has("rrun: rank 2 exited with code 7\n")
        .stderr_has("/bin/sh FAILED\n");
    let words = last_words(&ended.stderr);
    assert!(words.starts_with("rank 2 (local_rank 2, pid "), "{words}");
    assert!(words.contains(" exited with code 7; it used "), "{words}");
    assert!(words.contains(" s of CPU, "), "{words}");
    let root = root_cause(&ended);
    let failed = "rank      : 2 (local_rank: 2)\n  exitcode  : 7 (pid: ";
    assert!(root.contains(failed), "{root}");
    let others = other_failures(&ended);
    for rank in 0..2 {
        let stopped = format!("rank      : {rank} (local_rank: {rank})\n  exitcode  : -15 (pid: ");
        assert!(others.contains(&stopped), "{others}");
    }
    assert!(others.contains("sent by rrun to end the group"), "{others}");
    assert_gone(&ended, &["pid.0", "pid.1"]);
}

#[test]
fn a_sibling_that_ends_well_when_told_to_is_no_failure() {
    let script = "if [ $RANK = 0 ]; then trap 'touch told; exit 0' TERM; echo > up; \
                  sleep 10000 & wait; fi; await up; exit 5";
    let ended = ranks(2).sh(script).fails_with(1);
    assert!(ended.has_file("told"));
    assert_eq!(other_failures(&ended), "  <NO_OTHER_FAILURES>");
}

#[test]
fn a_rank_that_ends_early_and_well_stops_nobody() {
    let script = "[ $RANK = 0 ] && { echo $$ > pid.0; exit; }; await pid.0; \
                  while grep -qs 'State:.[RSD]' /proc/$(cat pid.0)/status; do sleep 0.01; done; \
                  touch done";
    assert!(ranks(2).sh(script).succeeds().has_file("done"));
}

#[test]
fn a_program_that_cannot_be_executed_ends_the_launch_without_restarts() {
    let rrun = ranks(2).words("--max-restarts 3 --no-python");
    let rrun = rrun.executable("prog", "#!/nowhere/interpreter\n");
    rrun.program("./prog")
        .fails_with(1)
        .stderr_has("cannot start rank 0: `./prog`: No such file or directory")
        .stderr_lacks("restart 1");
}

#[test]
fn the_last_lines_are_of_stdout_where_stderr_is_silent() {
    let rrun = Given::rrun().words("-r 3 --log-dir logs");
    let ended = rrun.sh("echo why it failed; exit 3").fails_with(1);
    ended.stderr_has("/attempt_0/0/stdout.log`:\n  why it failed\n");
}

#[test]
fn a_rank_that_was_stopped_is_not_quoted() {
    let script = "trap 'echo stopped >&2; exit 9' TERM; \
                  [ $RANK = 2 ] && { echo > up; while :; do sleep 0.01; done; }; \
                  trap '' TERM; await up; echo > failing.$RANK; await failing.0; await failing.1; \
                  echo oh $RANK >&2; exit 1";
    let ended = ranks(3)
        .words("-r 2 --log-dir logs")
        .sh(script)
        .fails_with(1);
    let words = last_words(&ended.stderr);
    assert!(words.contains("stderr.log`:\n  oh "), "{words}");
    assert!(!words.contains("stopped"), "{words}");
}

#[test]
fn a_failure_restarts_all_ranks_and_each_knows_the_count() {
    let script = "echo $RANK of attempt $TORCHELASTIC_RESTART_COUNT of \
                  $TORCHELASTIC_MAX_RESTARTS; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; \
                  echo > up.$RANK; [ $RANK = 0 ] && exec sleep 10000; await up.0; exit 3";
    let told = [0, 1].map(|rank| [0, 1].map(|n| format!("{rank} of attempt {n} of 2")));
    let told: Vec<&str> = told.as_flattened().iter().map(String::as_str).collect();
    ranks(2)
        .words("--max-restarts 2")
        .sh(script)
        .succeeds()
        .prints(&told)
        .stderr_has("rank 1 exited with code 3")
        .stderr_has("restart 1 of 2")
        .stderr_lacks("FAILED");
}

#[test]
fn a_launch_fails_when_no_restart_is_left() {
    let rrun = Given::rrun().words("--max-restarts 2 -r 1 --log-dir logs");
    let ended = rrun.sh("echo attempt; exit 4").fails_with(1);
    let run = only_entry(&ended, "logs");
    for attempt in ["attempt_0", "attempt_1", "attempt_2"] {
        let log = format!("{run}/{attempt}/0/stdout.log");
        assert_eq!(lines(&ended, &log), ["attempt"], "{log}");
    }
    ended
        .stderr_has("restart 2 of 2")
        .stderr_lacks("restart 3")
        .stderr_has("exitcode  : 4 (pid: ");
}
