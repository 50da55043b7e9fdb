//! Tests of signals to the launcher.

use crate::launch::command::Rrun;
use crate::launch::running::{Running, alive, wait_until};

/// Returns a launch of two ranks that write the name of a signal they get, and exit with code 0.
fn listening() -> Rrun {
    let trap = |name: &str| format!("trap 'echo {name} > got.$RANK; exit 0' {name}; ");
    let traps: String = ["TERM", "INT", "HUP", "QUIT", "USR1"].map(trap).concat();
    Rrun::new()
        .nproc(2)
        .sh(&format!("{traps} echo $$ > pid.$RANK; sleep 10000 & wait"))
}

/// Returns a launch of two ranks that only SIGKILL ends, with a grace period of hours.
fn stubborn() -> Rrun {
    let script = "trap '' TERM INT HUP QUIT; echo $$ > pid.$RANK; exec sleep 10000";
    Rrun::new().nproc(2).shutdown_timeout(10_000).sh(script)
}

const PIDS: [&str; 2] = ["pid.0", "pid.1"];

fn up(rrun: &Rrun) -> Running {
    let running = rrun.start();
    running.wait_for_files(&PIDS);
    running
}

#[track_caller]
fn reaches_the_ranks(rrun: &Rrun, name: &str) {
    let running = up(rrun);
    running.signal(name);
    let ended = running.wait().fails_with(1);
    assert_eq!(
        (ended.text("got.0"), ended.text("got.1")),
        (format!("{name}\n"), format!("{name}\n"))
    );
    ended
        .stderr_has(&format!("shutting down workers (SIG{name})"))
        .stderr_lacks("FAILED");
}

#[test]
fn sigterm_reaches_every_rank_and_the_launch_exits_1() {
    reaches_the_ranks(&listening(), "TERM");
}

#[test]
fn an_interrupt_reaches_every_rank_as_one() {
    reaches_the_ranks(&listening(), "INT");
}

#[test]
fn a_hangup_reaches_every_rank() {
    reaches_the_ranks(&listening(), "HUP");
}

#[test]
fn a_signal_of_the_users_list_reaches_every_rank() {
    reaches_the_ranks(
        &listening().options(&["--signals-to-handle", "SIGTERM,SIGUSR1"]),
        "USR1",
    );
}

#[test]
fn an_unlisted_signal_kills_the_ranks_and_shows_in_the_exit_code() {
    let running = up(&listening());
    running.signal("USR1");
    let ended = running.wait().fails_with(128 + 10);
    assert!(!ended.has_file("got.0") && !ended.pids(&PIDS).into_iter().any(alive));
}

#[test]
fn a_signal_reaches_the_whole_process_group_of_a_rank() {
    let script = "sh -c 'trap \"touch told; exit 0\" TERM; echo > up; sleep 10000 & wait' & \
                  trap 'wait; exit 0' TERM; wait";
    let running = Rrun::new().sh(script).start();
    running.wait_for_files(&["up"]);
    running.signal("TERM");
    assert!(running.wait().fails_with(1).has_file("told"));
}

#[test]
fn a_rank_that_ignores_the_signal_is_killed_after_the_grace() {
    let running = up(&stubborn().shutdown_timeout(1));
    running.signal("TERM");
    let ended = running
        .wait()
        .fails_with(1)
        .stderr_has("forcefully exiting via 9");
    assert!(!ended.pids(&PIDS).into_iter().any(alive));
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let running = up(&stubborn());
    running.signal("INT");
    running.wait_for_stderr("Received 2 death signal");
    running.signal("INT");
    let ended = running.wait().fails_with(1);
    assert!(!ended.pids(&PIDS).into_iter().any(alive));
}

#[test]
fn a_second_sigterm_shortens_the_grace() {
    let running = up(&stubborn());
    running.signal("TERM");
    running.wait_for_stderr("Received 15 death signal");
    running.signal("TERM");
    let ended = running.wait().fails_with(1);
    assert!(!ended.pids(&PIDS).into_iter().any(alive));
}

#[test]
fn a_signal_leaves_no_restart() {
    let script = "echo attempt; trap 'exit 1' TERM; echo > up; sleep 10000 & wait";
    let running = Rrun::new().max_restarts(5).sh(script).start();
    running.wait_for_files(&["up"]);
    running.signal("TERM");
    running.wait().fails_with(1).prints(&["attempt"]);
}

#[test]
fn a_killed_launcher_leaves_no_rank() {
    let running = up(&stubborn());
    let ranks = running.pids(&PIDS);
    running.signal("KILL");
    wait_until("the end of the ranks", || !ranks.iter().copied().any(alive));
    assert_eq!(running.wait().status.code(), None);
}

#[test]
fn last_words_after_a_signal_are_printed() {
    let script = "trap 'echo last words; exit 0' TERM; echo > up; sleep 10000 & wait";
    let running = Rrun::new().options(&["-t", "1"]).sh(script).start();
    running.wait_for_files(&["up"]);
    running.signal("TERM");
    running
        .wait()
        .fails_with(1)
        .stdout_is("[default0]:last words\n");
}

#[test]
fn under_nohup_a_hangup_is_ignored() {
    let rrun = Rrun::new().sh("echo > up; await go");
    let running = rrun.start_below("trap '' HUP; exec \"$@\"");
    running.wait_for_files(&["up"]);
    running.signal("HUP");
    running.write("go");
    running.wait().succeeds();
}

#[test]
fn unknown_signal_names_are_said_and_the_launch_goes_on() {
    let rrun = Rrun::new()
        .options(&["--signals-to-handle", "SIGTERM,SIGFOO"])
        .sh("true");
    rrun.succeeds()
        .stderr_has("Failed to register signal handler for SIGFOO");
}

#[test]
fn a_signal_while_ranks_are_started_ends_them_and_starts_no_more() {
    // The first rank sends the signal hundreds of ranks before the last one would start.
    let script = "echo $$ > pid.$RANK; [ $RANK = 0 ] && kill -TERM $PPID; exec sleep 10000";
    let running = Rrun::new()
        .nproc(500)
        .env("OMP_NUM_THREADS", "1")
        .sh(script)
        .start();
    let ended = running
        .wait()
        .fails_with(1)
        .stderr_has(" of 500 ranks were started, the others will not be\n");
    assert!(!ended.has_file("pid.499"));
    let started = (0..500)
        .map(|rank| format!("pid.{rank}"))
        .filter(|name| ended.has_file(name));
    // A rank that was ended early may not have written its PID yet.
    assert!(
        !started
            .filter_map(|name| ended.text(&name).trim().parse().ok())
            .any(alive),
        "none is left"
    );
}

/// Returns a SLURM step with one task, whose rank counts its SIGTERMs.
fn step() -> Rrun {
    let variables = [
        ("SLURM_JOB_ID", "14"),
        ("SLURM_NODEID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NODELIST", "localhost"),
        ("SLURM_STEP_NUM_NODES", "1"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
    ];
    let script = "n=0; trap 'n=$((n + 1)); echo $n > told' TERM; echo $$ > pid.0; until test -s go; do sleep 0.01; done";
    variables
        .into_iter()
        .fold(Rrun::new().sh(script), |rrun, (name, value)| {
            rrun.env(name, value)
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
    let mut daemon = std::process::Command::new(daemon)
        .args(["-c", &kill])
        .spawn()
        .unwrap();
    running.wait_for_stderr("SLURM has sent SIGTERM to the ranks");
    running.wait_for_files(&["told"]);
    running.write("go");
    let ended = running.wait().fails_with(1).stderr_has("got signal: 15");
    assert_eq!(ended.text("told"), "1\n");
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn a_signal_to_the_launcher_of_a_step_alone_is_passed_on() {
    let running = step().start();
    running.wait_for_files(&["pid.0"]);
    running.signal("TERM");
    running.wait_for_files(&["told"]);
    running.write("go");
    assert_eq!(running.wait().fails_with(1).text("told"), "1\n");
}
