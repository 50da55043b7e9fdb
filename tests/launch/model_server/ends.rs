//! Tests that no end of a launch leaves a part of its server behind.

use serde_json::json;

use crate::launch::command::PYTHON;
use crate::launch::model_server::{
    WAITING, eval, free_port, nothing_is_left, run, server, start, starts,
};
use crate::launch::running::{Running, alive, wait_until};

/// Returns a launch whose server and rank are running, and the server's PID.
fn up(words: &[&str]) -> (Running, i32) {
    let running = start(&eval(&server(words), 1, WAITING));
    running.wait_for_files(&["pid.0"]);
    let pid = running
        .text("starts")
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    (running, pid)
}

#[test]
fn an_interrupt_ends_the_server_too() {
    let (running, server) = up(&["child"]);
    let child = running.pids(&["child"])[0];
    running.signal("INT");
    let ended = running.wait().fails_with(1).stderr_lacks("restart");
    assert!(![server, child].into_iter().any(alive), "{}", ended.stderr);
}

#[test]
fn a_second_interrupt_kills_a_server_that_does_not_listen() {
    let (running, server) = up(&["deaf"]);
    running.signal("INT");
    running.wait_for_stderr("Received 2 death signal");
    wait_until("the end of the rank", || {
        !running.pids(&["pid.0"]).into_iter().any(alive)
    });
    // The first signal that arrives while the launcher waits for the server.
    wait_until("the end of the server", || {
        running.signal_if_running("INT");
        !alive(server)
    });
    running
        .wait()
        .fails_with(1)
        .stderr_has("while the model server was ending: killed");
}

#[test]
fn an_interrupt_while_it_is_waited_for_ends_it_and_starts_nothing() {
    let running = start(&eval(&server(&["sick"]), 1, "touch started"));
    running.wait_for_stderr("model server started");
    running.wait_for_files(&["starts"]);
    running.signal("INT");
    let ended = running.wait().fails_with(1);
    nothing_is_left(&ended);
    assert!(!ended.has_file("started"));
}

#[test]
fn a_killed_launcher_leaves_neither_the_server_nor_its_children() {
    let (running, server) = up(&["child"]);
    let child = running.pids(&["child"])[0];
    running.signal("KILL");
    wait_until("the end of the server and its child", || {
        ![server, child].into_iter().any(alive)
    });
    assert_eq!(running.wait().status.code(), None);
}

#[test]
fn a_killed_launcher_leaves_nothing_of_a_shell_either() {
    let port = free_port();
    let block = json!({"command": format!("{PYTHON} server.py {port}; true"), "health_port": port});
    let running = start(&eval(&block, 1, WAITING));
    running.wait_for_files(&["pid.0"]);
    let server: i32 = running
        .text("starts")
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    running.signal("KILL");
    wait_until("the end of the server", || !alive(server));
    running.wait();
}

#[test]
fn what_the_server_leaves_behind_ends_with_it() {
    let port = free_port();
    let command =
        format!("( setsid sleep 10000 & echo $! > child ); exec {PYTHON} server.py {port}");
    let ended = run(
        &json!({"command": command, "health_port": port}),
        1,
        "echo > pid.0",
    )
    .succeeds();
    assert!(!ended.pids(&["child"]).into_iter().any(alive));
}

#[test]
fn processes_that_a_rank_leaves_behind_end_and_the_server_does_not_with_them() {
    let rank = "if [ $RANK = 1 ]; then sleep 10000 & echo $! > child; exit 0; fi; await go";
    let running = start(&eval(&server(&[]), 2, rank));
    running.wait_for_files(&["child", "starts"]);
    let server: i32 = running
        .text("starts")
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    running.write("go");
    let ended = running.wait().succeeds();
    assert_eq!(starts(&ended).len(), 1);
    assert!(!alive(server) && !ended.pids(&["child"]).into_iter().any(alive));
    ended.stderr_lacks("restart");
}
