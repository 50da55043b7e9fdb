//! Tests that no end of a launch leaves a part of its server behind.

use rig::process::alive;
use rig::run::{Running, Signal};
use rig::wait;
use serde_json::Value;

use crate::launch::assert_gone;
use crate::launch::model_server::{
    WAITING, assert_over, pid, ranks_beside, server, server_of_a_shell, starts_in,
};

/// Returns a launch whose server and rank are running, and the server's PID.
fn up(server: &Value) -> (Running, i32) {
    let running = ranks_beside(server, 1, WAITING).start();
    running.wait_for_files(&["pid.0"]);
    let pid = pid(&starts_in(&running.text("starts"))[0]);
    (running, pid)
}

#[test]
fn an_interrupt_ends_the_server_too() {
    let (running, _) = up(&server("child"));
    running.signal(Signal::INT);
    let ended = running.wait().fails_with(1).stderr_lacks("restart");
    assert_over(&ended, 1);
    assert_gone(&ended, &["child"]);
}

#[test]
fn a_second_interrupt_kills_a_server_that_does_not_listen() {
    let (running, server) = up(&server("deaf"));
    running.signal(Signal::INT);
    running.wait_for_stderr("Received 2 death signal");
    let rank = running.pids(&["pid.0"])[0];
    wait::until("the end of the rank", || !alive(rank));
    // The first signal that arrives while the launcher waits for the server.
    wait::until("the end of the server", || {
        if alive(server) {
            running.signal(Signal::INT);
        }
        !alive(server)
    });
    running
        .wait()
        .fails_with(1)
        .stderr_has("while the model server was ending: killed");
}

#[test]
fn an_interrupt_while_it_is_waited_for_ends_it_and_starts_nothing() {
    let running = ranks_beside(&server("sick"), 1, "touch started").start();
    running.wait_for_stderr("model server started");
    running.wait_for_files(&["starts"]);
    running.signal(Signal::INT);
    let ended = running.wait().fails_with(1);
    assert_over(&ended, 1);
    assert!(!ended.has_file("started"));
}

#[test]
fn a_killed_launcher_leaves_neither_the_server_nor_its_children_nor_those_of_its_shell() {
    for block in [server("child"), server_of_a_shell("", "child; true")] {
        let (running, server) = up(&block);
        let child = running.pids(&["child"])[0];
        running.signal(Signal::KILL);
        wait::until("the end of both", || !alive(server) && !alive(child));
        running.wait().fails_with(-9);
    }
}

#[test]
fn what_the_server_leaves_behind_ends_with_it() {
    let before = "( setsid sleep 10000 & echo $! > child ); exec ";
    let server = server_of_a_shell(before, "");
    let ended = ranks_beside(&server, 1, "echo > pid.0").succeeds();
    assert_gone(&ended, &["child"]);
}

#[test]
fn processes_that_a_rank_leaves_behind_end_and_the_server_does_not_with_them() {
    let rank = "if [ $RANK = 1 ]; then sleep 10000 & echo $! > child; exit 0; fi; await go";
    let running = ranks_beside(&server(""), 2, rank).start();
    running.wait_for_files(&["child", "starts"]);
    running.write("go");
    let ended = running.wait().succeeds().stderr_lacks("restart");
    assert_over(&ended, 1);
    assert_gone(&ended, &["child"]);
}
