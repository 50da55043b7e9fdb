//! Who runs what, and that nothing depends on it.

use std::collections::BTreeMap;

use jobs::episode::Outcome;
use serde_json::Value;

use crate::command::{Eval, job};

/// One job that is ten times as long as the two others.
fn skewed() -> Vec<Value> {
    let mut long = job("reach", 20, 2);
    long["name"] = "long".into();
    vec![long, job("reach", 2, 1), job("push", 2, 1)]
}

fn outcomes(eval: &Eval) -> Vec<Outcome> {
    eval.episodes().iter().map(|episode| episode.outcome()).collect()
}

fn run(ranks: usize, words: &[&str]) -> Eval {
    let eval = Eval::new(&skewed()).nproc(ranks).words(&["--no-dataset"]).words(words);
    eval.run().succeeds();
    let report = eval.report();
    assert!(report.complete() && report.duplicates.is_empty(), "{words:?}");
    eval
}

/// Episodes of each rank, by job.
fn episodes_of(eval: &Eval, rank: usize) -> BTreeMap<String, Vec<u64>> {
    let mut jobs: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for episode in eval.episodes().into_iter().filter(|episode| episode.rank == rank) {
        jobs.entry(episode.job).or_default().push(episode.episode);
    }
    jobs
}

#[test]
fn every_rule_gives_the_same_episodes() {
    let alone = outcomes(&run(1, &[]));
    let block = run(2, &["--assign", "block"]);
    assert_eq!(outcomes(&block), alone);
    assert_eq!(episodes_of(&block, 1).keys().collect::<Vec<_>>(), ["push"]);
    let by_episode = run(2, &["--shard", "episodes"]);
    assert_eq!(outcomes(&by_episode), alone);
    assert_eq!(episodes_of(&by_episode, 1)["long"], (0..10).map(|half| 2 * half + 1).collect::<Vec<_>>());
    assert_eq!(episodes_of(&by_episode, 1)["reach"], [0]);
    let shuffled = run(3, &["--assign", "shuffle", "--shard", "episodes"]);
    assert_eq!(outcomes(&shuffled), alone);
    assert!((0..3).all(|rank| episodes_of(&shuffled, rank)["long"].len() >= 6));
}

#[test]
fn another_rule_goes_on_where_one_stopped() {
    let eval = Eval::new(&skewed()).nproc(2).words(&["--no-dataset"]);
    let running = eval.start();
    eval.wait_for_episodes(5);
    running.signal("INT");
    running.wait().fails_with(1);
    let before = eval.journaled();
    let eval = eval.world_of(3).words(&["--assign", "block", "--shard", "episodes"]);
    eval.run().succeeds();
    assert!(eval.report().complete() && eval.report().duplicates.is_empty());
    assert_eq!((eval.journaled(), before >= 5), (24, true));
    assert_eq!(outcomes(&eval), outcomes(&run(1, &[])));
}

#[test]
fn only_what_is_chosen_runs_and_is_what_it_was_in_the_whole() {
    let all = outcomes(&run(1, &[]));
    let some = run(2, &["--only", "push;long:0,7-8"]);
    let chosen = |outcome: &&Outcome| match outcome.job_index.0 {
        0 => [0, 7, 8].contains(&outcome.episode),
        job => job == 2,
    };
    assert_eq!(outcomes(&some), all.iter().filter(chosen).copied().collect::<Vec<_>>());
    assert_eq!(some.report().overall.expected, Some(5));
}

#[test]
fn a_choice_that_does_not_fit_is_refused_before_anything_is_started() {
    let refused = |only: &str| Eval::new(&skewed()).nproc(2).words(&["--only", only]);
    refused("lnog:0").run().fails_with(1).stderr_has("no job is called `lnog`; did you mean `long`?");
    refused("push:0-2").run().fails_with(1).stderr_has("job `push` has 2 episodes, from 0; there is no episode 2");
}
