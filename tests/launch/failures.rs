//! Tests of a failing rank: which rank is reported, and what happens to the others.

use crate::launch::command::Rrun;
use crate::launch::running::alive;

/// A rank that writes its PID and sleeps without an end.
const SLEEP: &str = "echo $$ > pid.$RANK; exec sleep 10000";

/// Returns a launch in which the last rank waits until the others sleep, and then runs `script`.
fn last_of(ranks: usize, script: &str) -> Rrun {
    let awaits: String = (0..ranks - 1)
        .map(|rank| format!("await pid.{rank}; "))
        .collect();
    Rrun::new().nproc(ranks).sh(&format!(
        "[ $RANK != {} ] && {{ {SLEEP}; }}; {awaits}{script}",
        ranks - 1
    ))
}

#[test]
fn the_first_failure_is_named_with_rank_and_exit_code() {
    let ended = last_of(3, "exit 7")
        .fails_with(1)
        .stderr_has("rrun: rank 2 exited with code 7\n");
    let root = ended.root_cause();
    assert!(
        root.contains("rank      : 2 (local_rank: 2)\n  exitcode  : 7 (pid: "),
        "{root}"
    );
    assert!(root.contains("error_file: <N/A>\n"), "{root}");
    ended.stderr_has("/bin/sh FAILED\n");
}

#[test]
fn siblings_of_a_failed_rank_are_stopped_and_said_to_be() {
    let ended = last_of(3, "exit 7").fails_with(1);
    let others = ended.other_failures();
    assert!(
        others.contains("rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: "),
        "{others}"
    );
    assert!(
        others.contains("rank      : 1 (local_rank: 1)\n  exitcode  : -15 (pid: "),
        "{others}"
    );
    assert!(others.contains("sent by rrun to end the group"), "{others}");
    assert!(!ended.pids(&["pid.0", "pid.1"]).into_iter().any(alive));
}

#[test]
fn any_exit_code_of_a_rank_is_1_of_the_launch() {
    Rrun::new()
        .sh("exit 255")
        .fails_with(1)
        .stderr_has("exited with code 255");
    Rrun::new()
        .nproc(2)
        .sh("exit $LOCAL_RANK")
        .fails_with(1)
        .stderr_has("rank 1 exited with code 1");
}

#[test]
fn a_rank_that_dies_by_a_signal_is_named_with_it() {
    let ended = Rrun::new()
        .sh("kill -KILL $$")
        .fails_with(1)
        .stderr_has("rank 0 was killed by SIGKILL");
    let root = ended.root_cause();
    assert!(
        root.contains("exitcode  : -9 (pid: ") && root.contains("  (SIGKILL)\n"),
        "{root}"
    );
    assert!(
        root.contains("traceback : Signal 9 (SIGKILL) received by PID "),
        "{root}"
    );
}

#[test]
fn a_sibling_that_ends_well_when_told_to_is_no_failure() {
    let script = "if [ $RANK = 0 ]; then trap 'touch told; exit 0' TERM; echo > up; sleep 10000 & wait; fi; \
                  await up; exit 5";
    let ended = Rrun::new().nproc(2).sh(script).fails_with(1);
    assert!(ended.has_file("told"));
    assert_eq!(ended.other_failures(), "  <NO_OTHER_FAILURES>");
}

#[test]
fn a_sibling_that_ignores_sigterm_is_killed_after_the_grace() {
    let script = "if [ $RANK = 0 ]; then trap '' TERM; echo $$ > pid.0; exec sleep 10000; fi; await pid.0; exit 5";
    let ended = Rrun::new()
        .nproc(2)
        .shutdown_timeout(1)
        .sh(script)
        .fails_with(1)
        .stderr_has("forcefully exiting via 9");
    let others = ended.other_failures();
    assert!(
        others.contains("rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: "),
        "{others}"
    );
    assert!(!ended.pids(&["pid.0"]).into_iter().any(alive));
}

#[test]
fn a_rank_that_ends_early_and_well_stops_nobody() {
    let script = "[ $RANK = 0 ] && { echo $$ > pid.0; exit; }; await pid.0; \
                  while grep -qs 'State:.[RSD]' /proc/$(cat pid.0)/status; do sleep 0.01; done; touch done";
    assert!(Rrun::new().nproc(2).sh(script).succeeds().has_file("done"));
}

#[test]
fn a_launch_that_succeeds_says_nothing() {
    Rrun::new()
        .sh("true")
        .succeeds()
        .stdout_is("")
        .stderr_is("");
}

#[test]
fn a_program_that_is_nowhere_is_refused() {
    let ended = Rrun::new()
        .options(&["--no-python"])
        .program(&["/nowhere/prog"])
        .fails_with(1);
    ended.stderr_is("rrun: error: No such file or directory: '/nowhere/prog'\n");
}

#[test]
fn a_script_that_is_nowhere_fails_its_rank() {
    let ended = Rrun::new()
        .program(&["nowhere.py"])
        .fails_with(1)
        .stderr_has("nowhere.py FAILED");
    assert!(
        ended.root_cause().contains("exitcode  : 2 (pid: "),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_program_that_cannot_be_executed_ends_the_launch() {
    let rrun = Rrun::new()
        .nproc(2)
        .max_restarts(3)
        .executable("prog", "#!/nowhere/interpreter\n");
    let ended = rrun
        .options(&["--no-python"])
        .program(&["./prog"])
        .fails_with(1);
    ended
        .stderr_has("cannot start rank 0: `./prog`: No such file or directory")
        .stderr_lacks("restart 1");
}

#[test]
fn an_error_file_gives_its_traceback_and_is_handed_on() {
    let error = r#"{"message": {"message": "ValueError: boom", "extraInfo":
                    {"py_callstack": "Traceback X\n  line two\nValueError: boom\n", "timestamp": "1700000000"}}}"#;
    let rrun = Rrun::new()
        .file("error", error)
        .env("TORCHELASTIC_ERROR_FILE", "outer.json");
    let ended = rrun
        .sh("cp error $TORCHELASTIC_ERROR_FILE; exit 9")
        .fails_with(1);
    let root = ended.root_cause();
    assert!(root.contains("/attempt_0/0/error.json\n"), "{root}");
    assert!(
        root.contains("traceback : Traceback X\n    line two\n  ValueError: boom"),
        "{root}"
    );
    let outer: serde_json::Value = serde_json::from_str(&ended.text("outer.json")).unwrap();
    assert_eq!(
        (&outer["message"]["message"], &outer["message"]["errorCode"]),
        (&"ValueError: boom".into(), &9.into())
    );
}

#[test]
fn an_error_file_that_is_no_json_does_not_spoil_the_report() {
    let ended = Rrun::new()
        .sh("echo '{' > $TORCHELASTIC_ERROR_FILE; exit 9")
        .fails_with(1);
    assert!(
        ended.root_cause().contains("exitcode  : 9 (pid: "),
        "{}",
        ended.stderr
    );
    assert!(
        ended.root_cause().contains("The error file is unusable"),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_root_cause_is_the_earliest_by_the_error_files() {
    let script = r#"echo "{\"message\": \"tb$RANK\", \"timestamp\": \"$((1000 - RANK))\"}" > $TORCHELASTIC_ERROR_FILE
                    echo > written.$RANK; await written.0; await written.1; exit 1"#;
    // The grace period lets every rank end by itself.
    let ended = Rrun::new()
        .nproc(2)
        .sh(&format!("trap '' TERM; {script}"))
        .fails_with(1);
    assert!(
        ended.root_cause().contains("rank      : 1 (local_rank: 1)"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.root_cause().ends_with("traceback : tb1"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.other_failures().ends_with("traceback : tb0"),
        "{}",
        ended.stderr
    );
}

/// Returns the launcher's output between the end of the ranks and its report.
fn last_words(stderr: &str) -> &str {
    let (_, words) = stderr.split_once("rrun: root cause: ").expect(stderr);
    words.split("\n===").next().unwrap()
}

#[test]
fn the_last_lines_of_a_captured_stderr_are_said_again() {
    let rrun = Rrun::new().options(&["-r", "2", "--log-dir", "logs"]);
    let ended = rrun
        .sh("echo why it failed >&2; exit 3")
        .fails_with(1)
        .stderr_has("rank 0: end of `");
    ended.stderr_has("/attempt_0/0/stderr.log`:\n  why it failed\n");
}

#[test]
fn the_last_lines_are_of_stdout_where_stderr_is_silent() {
    let rrun = Rrun::new().options(&["-r", "3", "--log-dir", "logs"]);
    let ended = rrun.sh("echo why it failed; exit 3").fails_with(1);
    ended.stderr_has("/attempt_0/0/stdout.log`:\n  why it failed\n");
}

#[test]
fn the_root_cause_is_said_first_and_what_the_rank_used() {
    let ended = last_of(2, "exit 7").fails_with(1);
    let words = last_words(&ended.stderr);
    assert!(
        words.starts_with("rank 1 (local_rank 1, pid ")
            && words.contains(" exited with code 7; it used "),
        "{words}"
    );
    assert!(
        words.contains(" s of CPU, ") && words.contains(" MiB of memory\n"),
        "{words}"
    );
}

#[test]
fn a_rank_that_was_stopped_is_not_quoted() {
    let script = "trap 'echo stopped >&2; exit 9' TERM; [ $RANK = 2 ] && { echo > up; while :; do sleep 0.01; done; }; \
                  trap '' TERM; await up; echo > failing.$RANK; await failing.0; await failing.1; \
                  echo oh $RANK >&2; exit 1";
    let ended = Rrun::new()
        .nproc(3)
        .options(&["-r", "2", "--log-dir", "logs"])
        .sh(script)
        .fails_with(1);
    let words = last_words(&ended.stderr);
    assert!(words.contains("stderr.log`:\n  oh "), "{words}");
    assert!(!words.contains("stopped"), "{words}");
}

#[test]
fn a_rank_whose_stderr_was_not_kept_comes_with_advice() {
    let said = "rank 1: its stderr went to the console, among that of the other ranks; with -r 2 or -t 2 it is kept";
    last_of(2, "exit 7").fails_with(1).stderr_has(said);
    let hidden = last_of(2, "exit 7")
        .options(&["--local-ranks-filter", "0"])
        .fails_with(1);
    hidden.stderr_has(
        "rank 1: its stderr went nowhere, by --local-ranks-filter; with -r 2 or -t 2 it is kept",
    );
    // Everything on the console is from the single rank.
    Rrun::new().sh("exit 7").fails_with(1).stderr_lacks("-t 2");
}
