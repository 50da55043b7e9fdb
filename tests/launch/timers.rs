//! Tests of torch's file timer: `TORCHELASTIC_ENABLE_FILE_TIMER=1`.

use rig::need::{Need, need};
use rig::run::Given;

use crate::launch::log;

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

fn timed() -> Given {
    Given::rrun().env("TORCHELASTIC_ENABLE_FILE_TIMER", "1")
}

/// Returns a shell command that writes a line about a process.
fn line(pid: &str, expires: i64, signal: i32) -> String {
    format!(
        r#"echo '{{"version": 1, "pid": '{pid}', "scope_id": "step", "expiration_time": {expires}, "signal": {signal}}}' > $TORCHELASTIC_TIMER_FILE; "#
    )
}

#[test]
fn a_rank_that_is_not_done_in_time_is_explained_then_killed_then_restarted() {
    if !need(Need::Torch) {
        return;
    }
    let rrun = timed().words("--nproc-per-node 2 --max-restarts 1 --log-dir logs");
    let ended = rrun
        .python(TRAINING)
        .succeeds()
        .stderr_has("a timer of rank 1 (process ")
        .stderr_has("has expired: `next batch`: the stacks of all ranks are read")
        .stderr_has("`loads_the_next_batch` (script.py:");
    let said = |text: &str| ended.stderr.find(text).expect(text);
    let gets = said("of rank 1 gets SIGKILL, because its timer has expired");
    assert!(said("all stacks: ") < gets && gets < said("rank 1 was killed by SIGKILL"));
    let report = log(&ended, "hang_1.txt");
    assert!(report.contains("loads_the_next_batch  "), "{report}");
}

#[test]
fn what_is_no_request_is_reported_a_few_times_and_a_stranger_is_left_alone() {
    let script = "for i in 1 2 3 4 5; do echo stop $i > $TORCHELASTIC_TIMER_FILE; done; ";
    let script = format!("{}{script}await go", line("$PPID", 1, 9));
    let running = timed().sh(&script).start();
    running.wait_for_stderr("belongs to no rank of this launch: nothing is done");
    running.wait_for_stderr("more of these are not printed");
    running.write("go");
    running
        .wait()
        .succeeds()
        .stderr_has("file timer: `stop 1`: expected value")
        .stderr_has("file timer: `stop 3`")
        .stderr_lacks("file timer: `stop 4`")
        .stderr_lacks("all stacks: ");
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
    let running = timed().sh(&(line("$$", 1, 0) + "await go")).start();
    running.wait_for_stderr("all stacks: ");
    running.write("go");
    running
        .wait()
        .succeeds()
        .stderr_has("has expired: `step`")
        .stderr_lacks("gets SIG");
}
