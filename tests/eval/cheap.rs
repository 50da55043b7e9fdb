//! Tests of environments that cost less than the way to them: several share a process, and several
//! journal lines share a sync.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::eval::command::Eval;
use crate::eval::given::{Gate, named, seed, toy};
use crate::eval::resume::kill_all;

/// Returns an evaluation without files beside the journal.
fn cheap(args: Value, episodes: u64) -> Eval {
    Eval::new(&[named("toy", episodes, toy(args))]).words(&["--export-mode=none"])
}

#[test]
fn results_are_the_same_however_many_copies_a_process_has() {
    let alone = cheap(json!({"num_envs": 1}), 23).finished();
    assert_eq!(alone.outcomes().len(), 23);
    for (num_envs, per_process) in [(4, 4), (5, 2)] {
        let args = json!({"num_envs": num_envs, "envs_per_process": per_process});
        let outcomes = cheap(args, 23).finished().outcomes();
        assert_eq!(
            outcomes,
            alone.outcomes(),
            "{num_envs} in processes of {per_process}"
        );
    }
}

#[test]
fn an_episode_whose_reset_always_kills_its_simulator_costs_no_other() {
    let kwargs = json!({"fault": "kill", "at": 0, "of": seed(5)});
    let eval = cheap(json!({"env_kwargs": kwargs}), 12).words(&["--env-restarts", "1"]);
    eval.run().fails_with(1);
    assert_eq!((eval.episodes().len(), eval.errors()), (12, vec![5]));
    let lost: Vec<_> = eval.losses().iter().map(|lost| lost.episode).collect();
    assert_eq!(lost, [5, 5], "it was started again once");
}

#[test]
fn a_kill_between_two_syncs_costs_no_finished_episode_and_repeats_none() {
    const EPISODES: u64 = 1000;
    let gate = Gate::new();
    let job = named("toy", EPISODES, toy(json!({"envs_per_process": 4})));
    let job = gate.before(EPISODES - 2..EPISODES, job);
    let eval = Eval::new(&[job]).words(&["--export-mode=none"]);
    let running = eval.start();
    eval.wait_for_episodes(300);
    kill_all(running);
    let journaled = eval.journaled();
    assert!((300..EPISODES as usize).contains(&journaled), "{journaled}");
    gate.open();
    eval.run()
        .succeeds()
        .stderr_has(&format!(": {journaled} episodes done"));
    assert!(eval.report().complete() && eval.report().duplicates.is_empty());
    let undisturbed = cheap(json!({"envs_per_process": 4}), EPISODES).finished();
    assert_eq!(eval.outcomes(), undisturbed.outcomes());
    let numbers: BTreeSet<_> = eval.episodes().iter().map(|e| e.episode).collect();
    assert_eq!(
        (numbers.len(), eval.journaled()),
        (1000, 1000),
        "one line for each"
    );
}
