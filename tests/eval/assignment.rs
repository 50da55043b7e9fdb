//! Tests of leases (`--assign dynamic`): of ranks that die and hang, and from the store of another
//! launcher.

use std::sync::OnceLock;

use rig::process::{alive, send};
use serde_json::Value;

use crate::eval::command::{Eval, Signal, job, until};
use crate::eval::given::Gate;
use crate::eval::under_others::torchrun;

/// The only episode of the job that stops at the gate: the rank there has finished no other, whose
/// line it could still have to write.
const HELD: u64 = 0;

fn jobs(gate: &Gate) -> [Value; 3] {
    [job("reach", 12, 2), job("push", 6, 1), gate.job(HELD + 1)]
}

/// Returns the run of these jobs that nothing has disturbed.
fn undisturbed() -> &'static Eval {
    static UNDISTURBED: OnceLock<Eval> = OnceLock::new();
    UNDISTURBED.get_or_init(|| {
        let gate = Gate::new();
        gate.open();
        let eval = Eval::new(&jobs(&gate)).nproc(1);
        eval.words(&["--export-mode=none"]).finished()
    })
}

fn leased(gate: &Gate) -> Eval {
    let eval = Eval::new(&jobs(gate)).nproc(3);
    eval.words(&["--assign", "dynamic", "--stall-timeout", "5"])
}

/// Checks that every episode is in the journals once, with the result of an undisturbed run, and
/// that another rank than the one with this PID ran the one at the gate.
fn taken_over(eval: &Eval, pid: i32) {
    let report = eval.report();
    assert_eq!(
        (report.duplicates, report.missing, report.failures),
        (Vec::new(), Vec::new(), Vec::new())
    );
    let wanted = undisturbed().outcomes();
    assert_eq!((eval.journaled(), eval.outcomes()), (wanted.len(), wanted));
    let episodes = eval.episodes();
    let held = episodes.iter().rfind(|episode| episode.job == "gated");
    let held = held.unwrap();
    assert_eq!(held.episode, HELD);
    assert_ne!(
        eval.pid_of(held.rank),
        Some(pid),
        "another rank took it over"
    );
}

#[test]
fn the_leases_of_a_rank_that_was_killed_are_taken_by_the_others() {
    let gate = Gate::new();
    let eval = leased(&gate).launcher_words(&["--max-restarts", "0"]);
    let running = eval.start();
    let holder = gate.reached();
    send(holder, Signal::KILL);
    until("the end of the rank", || !alive(holder));
    gate.open();
    running.wait();
    taken_over(&eval, holder);
}

#[test]
fn a_rank_that_hangs_loses_its_leases_and_writes_nothing_of_them_when_it_comes_back() {
    let gate = Gate::new();
    let eval = leased(&gate);
    let running = eval.start();
    let holder = gate.reached();
    send(holder, Signal::STOP);
    gate.open();
    eval.wait_for_episodes(undisturbed().outcomes().len());
    send(holder, Signal::CONT);
    running.wait().succeeds();
    taken_over(&eval, holder);
}

#[test]
fn leases_are_had_from_the_store_of_torchrun() {
    let gate = Gate::new();
    gate.open();
    let eval = leased(&gate).launched_by(&torchrun(2)).finished();
    assert!(eval.report().complete());
    let wanted = undisturbed().outcomes();
    assert_eq!((eval.journaled(), eval.outcomes()), (wanted.len(), wanted));
}
