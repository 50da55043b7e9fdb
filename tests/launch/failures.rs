//! Tests of a failing rank: what is quoted of it, and restarts of all.

use rig::run::Given;

use crate::launch::{lines, only_entry, ranks};

/// Returns the launcher's output between the end of the ranks and its report.
fn last_words(stderr: &str) -> &str {
    let (_, words) = stderr.split_once("rrun: root cause: ").expect(stderr);
    words.split("\n===").next().unwrap()
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
