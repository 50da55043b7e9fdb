//! Tests of processes that ranks leave behind: they end with the launch, except for daemons of a
//! successful one.

use crate::launch::command::Rrun;
use crate::launch::ended::Ended;
use crate::launch::running::alive;

#[track_caller]
fn child_is_gone(ended: &Ended) {
    assert!(!ended.pids(&["child"]).into_iter().any(alive));
}

#[test]
fn a_background_process_of_a_rank_that_succeeded_is_ended() {
    child_is_gone(&Rrun::new().sh("sleep 10000 & echo $! > child").succeeds());
}

#[test]
fn a_background_process_of_a_rank_that_failed_is_ended() {
    child_is_gone(
        &Rrun::new()
            .sh("sleep 10000 & echo $! > child; exit 1")
            .fails_with(1),
    );
}

/// Starts a daemon that writes its PID to `child`.
const DAEMON: &str = "( setsid sh -c 'echo $$ > child; exec sleep 10000' & ) ; await child; ";

fn daemon(then: &str) -> Rrun {
    Rrun::new().sh(&format!("{DAEMON}{then}"))
}

#[test]
fn a_daemon_of_a_launch_that_succeeded_lives_on() {
    let ended = daemon("exit 0").succeeds();
    let child = ended.pids(&["child"])[0];
    assert!(alive(child));
    std::process::Command::new("kill")
        .arg(child.to_string())
        .status()
        .unwrap();
}

#[test]
fn a_daemon_of_a_rank_that_failed_is_ended() {
    child_is_gone(&daemon("exit 1").fails_with(1));
}

#[test]
fn a_daemon_of_a_rank_that_was_told_to_end_is_ended() {
    let running = daemon("echo > up; exec sleep 10000").start();
    running.wait_for_files(&["up"]);
    running.signal("TERM");
    child_is_gone(&running.wait().fails_with(1));
}

#[test]
fn a_daemon_is_ended_before_a_restart() {
    let script = "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; exit 1";
    let script = format!("[ $TORCHELASTIC_RESTART_COUNT = 0 ] && {{ {DAEMON} }}; {script}");
    child_is_gone(&Rrun::new().max_restarts(1).sh(&script).succeeds());
}

#[test]
fn a_background_process_that_ignores_sigterm_is_killed() {
    let script = "sh -c 'trap \"\" TERM; echo $$ > child; exec sleep 10000' & await child";
    let ended = Rrun::new().shutdown_timeout(1).sh(script).succeeds();
    child_is_gone(&ended);
    ended.stderr_has("killed processes that ranks had left behind: 1");
}

#[test]
fn a_background_process_may_finish_its_work_when_told_to_end() {
    let script =
        "sh -c 'trap \"touch finished; exit 0\" TERM; echo > up; sleep 10000 & wait' & await up";
    assert!(Rrun::new().sh(script).succeeds().has_file("finished"));
}

#[test]
fn a_process_of_the_users_shell_is_left_alone() {
    let rrun = Rrun::new().sh("true");
    let running = rrun.start_below("sleep 10000 & echo $! > child; exec \"$@\"");
    let ended = running.wait().succeeds();
    let child = ended.pids(&["child"]);
    assert!(child.iter().copied().all(alive));
    std::process::Command::new("kill")
        .arg(child[0].to_string())
        .status()
        .unwrap();
}
