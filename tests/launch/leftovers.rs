//! Tests of processes that ranks leave behind: they end with the launch, except for daemons of a
//! successful one.

use rig::process::{alive, send};
use rig::run::{Given, Signal};

use crate::launch::{assert_gone, ranks};

/// Starts a process in the background, and one in a session of its own, which write their PIDs to
/// `child` and `daemon`.
const BOTH: &str = "sleep 10000 & echo $! > child; \
                    ( setsid sh -c 'echo $$ > daemon; exec sleep 10000' & ); await daemon; ";

fn leaving(then: &str) -> Given {
    Given::rrun().sh(&format!("{BOTH}{then}"))
}

#[test]
fn a_background_process_of_a_rank_that_succeeded_is_ended_and_a_daemon_lives_on() {
    let ended = leaving("exit 0").succeeds();
    assert_gone(&ended, &["child"]);
    let daemon = ended.pids(&["daemon"])[0];
    assert!(alive(daemon));
    send(daemon, Signal::KILL);
}

#[test]
fn both_are_ended_with_a_rank_that_failed() {
    assert_gone(&leaving("exit 1").fails_with(1), &["child", "daemon"]);
}

#[test]
fn both_are_ended_with_a_rank_that_was_told_to_end() {
    let running = leaving("echo > up; exec sleep 10000").start();
    running.wait_for_files(&["up"]);
    running.signal(Signal::TERM);
    assert_gone(&running.wait().fails_with(1), &["child", "daemon"]);
}

#[test]
fn both_are_ended_before_a_restart() {
    let script = "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then for old in child daemon; do \
                  kill -0 $(cat $old) 2> /dev/null && touch met; done; exit 0; fi; ";
    let rrun = Given::rrun().words("--max-restarts 1");
    let ended = rrun.sh(&format!("{script}{BOTH} exit 1")).succeeds();
    assert!(!ended.has_file("met"));
}

#[test]
fn who_ignores_sigterm_is_killed_rank_or_not() {
    let stubborn = "sh -c 'trap \"\" TERM; echo $$ > child; exec sleep 10000' & await child; \
                    if [ $RANK = 0 ]; then trap '' TERM; echo $$ > pid.0; exec sleep 10000; fi; \
                    await pid.0; exit 5";
    let rrun = ranks(2).words("--shutdown-timeout 0");
    let ended = rrun.sh(stubborn).fails_with(1);
    assert_gone(&ended, &["pid.0", "child"]);
    ended
        .stderr_has("forcefully exiting via 9")
        .stderr_has("rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: ");
}

#[test]
fn a_background_process_may_finish_its_work_when_told_to_end() {
    let script = "sh -c 'trap \"touch finished; exit 0\" TERM; echo > up; sleep 10000 & wait' & \
                  await up";
    assert!(Given::rrun().sh(script).succeeds().has_file("finished"));
}

#[test]
fn a_process_of_the_users_shell_is_left_alone() {
    let rrun = Given::rrun().below("sleep 10000 & echo $! > child; exec \"$@\"");
    let child = rrun.sh("true").succeeds().pids(&["child"])[0];
    assert!(alive(child));
    send(child, Signal::KILL);
}
