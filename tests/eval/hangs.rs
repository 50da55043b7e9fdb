//! Tests of `--hang-timeout` for `eval`: progress is the sign of life of a rank whose environments
//! step.

use serde_json::{Value, json};

use crate::eval::command::{Ended, Eval};
use crate::eval::given::{named, seed, toy, toy_of};

/// Returns an evaluation whose launcher restarts a rank that stands still for 3 s.
fn watched(jobs: &[Value], ranks: usize) -> Eval {
    Eval::new(jobs)
        .words(&["--export-mode=none"])
        .nproc(ranks)
        .launcher_words(&["--hang-timeout", "3", "--on-hang", "restart"])
}

/// Runs one simulator that misbehaves once, and returns the report of the hang.
fn hang_of(fault: &str) -> (String, Ended) {
    let folder = tempfile::tempdir().unwrap();
    let once = folder.path().join("once");
    let kwargs = json!({"fault": fault, "at": 3, "once": once, "of": seed(5)});
    let eval = watched(&[toy(json!({"env_kwargs": kwargs, "num_envs": 1}))], 1);
    let ended = eval.run().succeeds();
    assert_eq!(eval.episodes().len(), 12);
    let report = eval.folder().logs().join("hang_1.txt");
    (std::fs::read_to_string(report).expect("a report"), ended)
}

#[test]
fn a_simulator_that_sleeps_is_explained_and_the_second_start_of_its_rank_goes_on() {
    let (report, ended) = hang_of("hang");
    ended
        .stderr_has("rank 0 has made no progress for 3 s: job `toy`, 28 steps: the stacks of all")
        .stderr_has("`python` of rank 0: `Toy.misbehave` (toy.py:")
        .stderr_has(
            "rank 0 made no progress for 3 s (--hang-timeout) and was ended by rrun (SIGKILL)",
        );
    assert!(report.contains("misbehave  "), "{report}");
    assert!(report.contains("waiting in `clock_nanosleep`"), "{report}");
}

#[test]
fn a_simulator_that_loops_for_ever_is_not_alive_because_it_computes() {
    let (report, ended) = hang_of("loop");
    ended.stderr_has("rank 0 has made no progress for 3 s: job `toy`, 28 steps");
    assert!(report.contains("count_for_ever  "), "{report}");
}

#[test]
fn ranks_that_wait_for_a_slow_one_are_alive() {
    let short = toy(json!({"num_envs": 1}));
    // A fifth of a second per step, a second per episode.
    let slow = json!({"num_envs": 1, "env_kwargs": {"pause": 0.2}});
    let slow = named("slow", 6, toy_of("Slow", slow));
    let ended = watched(&[short, slow], 2).run().succeeds();
    ended.stderr_lacks("the stacks of all ranks are read");
}
