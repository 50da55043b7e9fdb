//! Tests of torch's file timer: `TORCHELASTIC_ENABLE_FILE_TIMER=1`.

use crate::launch::command::Rrun;

/// Uses torch's own client. Rank 1 is not done in time in its first attempt.
const TRAINING: &str = "
import os, time
import torch.distributed.elastic.timer as timer

def loads_the_next_batch():
    with timer.expires(after=1, scope='next batch'):
        time.sleep(3600)

timer.configure(timer.FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))
with timer.expires(after=600):
    pass
if os.environ['RANK'] + os.environ['TORCHELASTIC_RESTART_COUNT'] == '10':
    loads_the_next_batch()
";

fn timed() -> Rrun {
    Rrun::new().env("TORCHELASTIC_ENABLE_FILE_TIMER", "1")
}

/// Returns a shell command that writes a line about a process.
fn line(pid: &str, expires: i64, signal: i32) -> String {
    format!(
        r#"echo '{{"version": 1, "pid": '{pid}', "scope_id": "step", "expiration_time": {expires}, "signal": {signal}}}' > $TORCHELASTIC_TIMER_FILE; "#
    )
}

#[test]
fn a_rank_that_is_not_done_in_time_is_explained_then_killed_then_restarted() {
    let rrun = timed()
        .nproc(2)
        .max_restarts(1)
        .options(&["--log-dir", "logs"])
        .file("training.py", TRAINING)
        .program(&["training.py"]);
    let ended = rrun
        .succeeds()
        .stderr_has("a timer of rank 1 (process ")
        .stderr_has("has expired: `next batch`: the stacks of all ranks are read")
        .stderr_has("`loads_the_next_batch` (training.py:")
        .stderr_has("of rank 1 gets SIGKILL, because its timer has expired");
    let said = |text: &str| ended.stderr.find(text).expect(text);
    assert!(said("all stacks: ") < said("gets SIGKILL"));
    assert!(said("gets SIGKILL") < said("rank 1 was killed by SIGKILL"));
    let report = ended.text(&format!("{}/hang_1.txt", ended.only_entry("logs")));
    assert!(report.contains("loads_the_next_batch  "), "{report}");
}

#[test]
fn a_process_that_belongs_to_no_rank_is_left_alone() {
    let rrun = timed();
    let running = rrun.sh(&(line("$PPID", 1, 9) + "await go")).start();
    running.wait_for_stderr("belongs to no rank of this launch: nothing is done");
    running.write("go");
    running.wait().succeeds().stderr_lacks("all stacks: ");
}

#[test]
fn a_process_that_a_rank_has_started_gets_the_signal_of_its_timer() {
    let script = format!("sleep 1000 & {}wait $!; test $? = 143", line("$!", 1, 15));
    timed()
        .sh(&script)
        .succeeds()
        .stderr_has("of rank 0 gets SIGTERM, because its timer has expired");
}

#[test]
fn a_timer_without_a_signal_is_only_reported() {
    let rrun = timed();
    let running = rrun.sh(&(line("$$", 1, 0) + "await go")).start();
    running.wait_for_stderr("all stacks: ");
    running.write("go");
    running
        .wait()
        .succeeds()
        .stderr_has("has expired: `step`")
        .stderr_lacks("gets SIG");
}

#[test]
fn a_timer_that_is_released_does_not_expire() {
    let released = line("$$", 4_000_000_000, 9) + &line("$$", -1, 0) + &line("$$", -1, 0);
    let ended = timed().sh(&released).succeeds();
    ended.stderr_lacks("file timer").stderr_lacks("expired");
}

#[test]
fn what_is_no_request_is_reported_a_few_times() {
    let script = "for i in 1 2 3 4 5; do echo stop $i > $TORCHELASTIC_TIMER_FILE; done; ";
    let rrun = timed();
    let running = rrun.sh(&(script.to_owned() + "await go")).start();
    running.wait_for_stderr("more of these are not printed");
    running.write("go");
    running
        .wait()
        .succeeds()
        .stderr_has("file timer: `stop 1`: expected value")
        .stderr_has("file timer: `stop 3`")
        .stderr_lacks("file timer: `stop 4`");
}

#[test]
fn the_pipe_is_where_it_is_wanted_and_goes_with_the_launch() {
    let ended = timed()
        .env("TORCHELASTIC_TIMER_FILE", "timer")
        .sh("test -p timer && test $TORCHELASTIC_TIMER_FILE = timer")
        .succeeds();
    assert!(!ended.path("timer").exists());
}

#[test]
fn a_file_is_not_replaced_by_a_pipe() {
    let ended = timed()
        .env("TORCHELASTIC_TIMER_FILE", "results")
        .file("results", "42")
        .sh("true")
        .fails_with(1)
        .stderr_has("cannot make the pipe of the file timer, `results`")
        .stderr_has("it exists and is not a named pipe");
    assert_eq!(ended.text("results"), "42");
}

#[test]
fn without_the_variable_there_is_no_timer() {
    for value in ["0", "true"] {
        Rrun::new()
            .env("TORCHELASTIC_ENABLE_FILE_TIMER", value)
            .sh("test -z \"$TORCHELASTIC_TIMER_FILE\"")
            .succeeds();
    }
}
