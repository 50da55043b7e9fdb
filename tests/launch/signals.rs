//! Tests of signals to the launcher.

use rig::process::alive;
use rig::run::{Given, Running, Signal};

use crate::launch::{assert_gone, ranks};

/// Gives a launch of two ranks that write the name of a signal they get, and exit with code 0.
fn listening() -> Given {
    let trap = |name: &str| format!("trap 'echo {name} > got.$RANK; exit 0' {name}; ");
    let traps: String = ["TERM", "INT", "HUP", "USR1"].map(trap).concat();
    ranks(2).sh(&format!("{traps} echo $$ > pid.$RANK; sleep 10000 & wait"))
}

/// Gives a launch of two ranks that only SIGKILL ends, with a grace period of hours.
fn stubborn() -> Given {
    let script = "trap '' TERM INT HUP QUIT; echo $$ > pid.$RANK; exec sleep 10000";
    ranks(2).words("--shutdown-timeout 10000").sh(script)
}

const PIDS: [&str; 2] = ["pid.0", "pid.1"];

fn up(rrun: &Given) -> Running {
    let running = rrun.start();
    running.wait_for_files(&PIDS);
    running
}

#[test]
fn a_signal_reaches_every_rank_as_it_is_and_the_launch_exits_1() {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
    ] {
        let running = up(&listening());
        running.signal(signal);
        let ended = running.wait().fails_with(1);
        assert_eq!(
            ["got.0", "got.1"].map(|rank| ended.text(rank)),
            [format!("{name}\n"), format!("{name}\n")]
        );
        ended
            .stderr_has(&format!("shutting down workers (SIG{name})"))
            .stderr_lacks("FAILED");
    }
}

#[test]
fn an_unlisted_signal_kills_the_ranks_and_shows_in_the_exit_code() {
    let running = up(&listening());
    running.signal(Signal::USR1);
    let ended = running.wait().fails_with(128 + 10);
    assert!(!ended.has_file("got.0"));
    assert_gone(&ended, &PIDS);
}

#[test]
fn a_second_interrupt_kills_at_once_and_a_second_sigterm_shortens_the_grace() {
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let running = up(&stubborn());
        running.signal(signal);
        running.wait_for_stderr(&format!("Received {number} death signal"));
        running.signal(signal);
        assert_gone(&running.wait().fails_with(1), &PIDS);
    }
}

#[test]
fn under_nohup_a_hangup_is_ignored() {
    let rrun = Given::rrun().below("trap '' HUP; exec \"$@\"");
    let running = rrun.sh("echo > up; await go").start();
    running.wait_for_files(&["up"]);
    running.signal(Signal::HUP);
    running.write("go");
    running.wait().succeeds();
}

#[test]
fn a_signal_while_ranks_are_started_ends_them_and_starts_no_more() {
    // The first rank sends the signal hundreds of ranks before the last one would start.
    let script = "echo $$ > pid.$RANK; [ $RANK = 0 ] && kill -TERM $PPID; exec sleep 10000";
    let ended = ranks(500)
        .sh(script)
        .fails_with(1)
        .stderr_has(" of 500 ranks were started, the others will not be\n");
    assert!(!ended.has_file("pid.499"));
    let names = (0..500).map(|rank| format!("pid.{rank}"));
    let texts = names
        .filter(|name| ended.has_file(name))
        .map(|name| ended.text(&name));
    // A rank that was ended early may not have written its PID yet.
    let left: Vec<i32> = texts
        .filter_map(|pid| pid.trim().parse().ok())
        .filter(|pid| alive(pid))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Gives a SLURM step with one task, whose rank counts its SIGTERMs.
fn step() -> Given {
    let script = "n=0; trap 'n=$((n + 1)); echo $n > told' TERM; echo $$ > pid.0; \
                  until test -s go; do sleep 0.01; done";
    let facts = "JOB_ID=14 NODEID=0 PROCID=0 LOCALID=0 STEP_ID=0 STEP_NODELIST=localhost \
                 STEP_NUM_NODES=1 STEP_NUM_TASKS=1 STEP_TASKS_PER_NODE=1";
    let facts = facts
        .split_whitespace()
        .filter_map(|fact| fact.split_once('='));
    facts.fold(Given::rrun().sh(script), |rrun, (name, value)| {
        rrun.env(&format!("SLURM_{name}"), value)
    })
}

#[test]
fn a_rank_that_slurm_has_told_to_end_is_not_told_again() {
    let rrun = step();
    let (daemon, go) = (rrun.path("slurmstepd"), rrun.path("go"));
    std::os::unix::fs::symlink("/bin/sh", &daemon).unwrap();
    let running = rrun.start();
    running.wait_for_files(&["pid.0"]);
    // Like SLURM: a signal to every process, and to the launcher last, so that a second one could
    // only come from the launcher.
    let (rank, launcher) = (running.pids(&["pid.0"])[0], running.pid());
    let kill = format!(
        "kill -TERM {rank}; kill -TERM {launcher}; until test -s {}; do sleep 0.01; done",
        go.display()
    );
    let daemon = std::process::Command::new(daemon)
        .args(["-c", &kill])
        .spawn();
    running.wait_for_stderr("SLURM has sent SIGTERM to the ranks");
    running.wait_for_files(&["told"]);
    running.write("go");
    let ended = running.wait().fails_with(1).stderr_has("got signal: 15");
    assert_eq!(ended.text("told"), "1\n");
    assert!(daemon.unwrap().wait().unwrap().success());
}

#[test]
fn a_signal_to_the_launcher_of_a_step_alone_is_passed_on() {
    let running = step().start();
    running.wait_for_files(&["pid.0"]);
    running.signal(Signal::TERM);
    running.wait_for_files(&["told"]);
    running.write("go");
    assert_eq!(running.wait().fails_with(1).text("told"), "1\n");
}
