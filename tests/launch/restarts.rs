//! Tests of `--max-restarts`: all ranks are restarted.

use crate::launch::command::Rrun;
use crate::launch::running::alive;

#[test]
fn a_failure_restarts_all_ranks_and_each_knows_the_count() {
    let script = "echo $RANK of attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; \
                  echo > up.$RANK.$TORCHELASTIC_RESTART_COUNT; \
                  [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; \
                  [ $RANK = 0 ] && exec sleep 10000; await up.0.0; exit 3";
    let ended = Rrun::new().nproc(2).max_restarts(2).sh(script).succeeds();
    ended
        .prints(&[
            "0 of attempt 0 of 2",
            "0 of attempt 1 of 2",
            "1 of attempt 0 of 2",
            "1 of attempt 1 of 2",
        ])
        .stderr_has("rank 1 exited with code 3")
        .stderr_has("restart 1 of 2")
        .stderr_lacks("FAILED");
}

#[test]
fn the_old_ranks_are_gone_before_the_new_ones_start() {
    let script = "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then kill -0 $(cat old) 2> /dev/null && touch met; exit 0; fi; \
                  if [ $RANK = 0 ]; then trap '' TERM; echo $$ > old; exec sleep 10000; fi; await old; exit 3";
    let ended = Rrun::new()
        .nproc(2)
        .max_restarts(1)
        .shutdown_timeout(1)
        .sh(script)
        .succeeds();
    assert!(!ended.has_file("met") && !ended.pids(&["old"]).into_iter().any(alive));
}

#[test]
fn a_launch_fails_when_no_restart_is_left() {
    let ended = Rrun::new()
        .max_restarts(2)
        .sh("echo attempt; exit 4")
        .fails_with(1)
        .prints(&["attempt"; 3]);
    ended
        .stderr_has("restart 2 of 2")
        .stderr_lacks("restart 3")
        .stderr_has("exitcode  : 4 (pid: ");
}

#[test]
fn every_attempt_has_its_log_folder() {
    let rrun = Rrun::new()
        .max_restarts(2)
        .options(&["-r", "1", "--log-dir", "logs"]);
    let ended = rrun
        .sh("echo $TORCHELASTIC_RESTART_COUNT; exit 4")
        .fails_with(1);
    let run = ended.only_entry("logs");
    assert_eq!(ended.entries(&run), ["attempt_0", "attempt_1", "attempt_2"]);
    assert_eq!(ended.text(&format!("{run}/attempt_0/0/stdout.log")), "0\n");
    assert_eq!(ended.text(&format!("{run}/attempt_2/0/stdout.log")), "2\n");
}

#[test]
fn a_restart_keeps_port_and_run_id() {
    let script = "echo $MASTER_PORT $TORCHELASTIC_RUN_ID > seen.$TORCHELASTIC_RESTART_COUNT; \
                  exit $((1 - TORCHELASTIC_RESTART_COUNT))";
    let ended = Rrun::new().max_restarts(1).sh(script).succeeds();
    assert_eq!(ended.text("seen.0"), ended.text("seen.1"));
}

#[test]
fn what_a_failed_attempt_left_behind_ends_before_the_next() {
    let script = "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then kill -0 $(cat child) 2> /dev/null && touch met; exit 0; fi; \
                  setsid sleep 10000 & echo $! > child; exit 1";
    let ended = Rrun::new().max_restarts(1).sh(script).succeeds();
    assert!(!ended.has_file("met"));
}
