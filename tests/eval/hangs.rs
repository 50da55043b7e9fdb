//! Tests of `--hang-timeout` for `eval`: progress is the sign of life of a rank whose environments
//! step.

use serde_json::{Value, json};

use crate::eval::command::{Ended, Eval, signal};
use crate::eval::python::toy;

/// Returns an evaluation whose launcher restarts a rank that stands still for 3 s.
fn watched(jobs: &[Value], ranks: usize) -> Eval {
    Eval::new(jobs)
        .words(&["--no-dataset"])
        .nproc(ranks)
        .launcher_words(&["--hang-timeout", "3", "--on-hang", "restart"])
}

/// Runs one simulator that misbehaves once, and returns the report of the hang.
fn hang_of(fault: &str) -> (String, Ended) {
    let folder = tempfile::tempdir().unwrap();
    let once = folder.path().join("once");
    let kwargs = json!({"fault": fault, "at": 3, "once": once, "of": crate::eval::python::seed(5)});
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
fn a_rank_that_is_stopped_is_noticed() {
    let job = toy(json!({"num_envs": 1}));
    let eval = watched(&[slow(job, 6)], 1);
    let running = eval.start();
    eval.wait_for_episodes(1);
    signal(running.ranks()[0], "STOP");
    running
        .wait()
        .succeeds()
        .stderr_has("rank 0 has made no progress for 3 s: job `toy`");
    assert_eq!(eval.episodes().len(), 6);
}

#[test]
fn ranks_that_wait_for_a_slow_one_are_alive() {
    let short = toy(json!({"num_envs": 1}));
    let long = slow(toy(json!({"num_envs": 1})), 8);
    let eval = watched(&[short, named("long", long)], 2);
    let said = eval.run().succeeds().stderr;
    assert!(!said.contains("the stacks of all ranks are read"), "{said}");
}

/// Returns the job with simulators that take a fifth of a second per step, a second per episode.
fn slow(mut job: Value, episodes: u64) -> Value {
    let class = &mut job["arena_env_args"]["environment"];
    *class = json!(class.as_str().unwrap().replace(":Toy", ":Slow"));
    job["arena_env_args"]["env_kwargs"] = json!({"pause": 0.2});
    job["num_episodes"] = json!(episodes);
    job
}

fn named(name: &str, mut job: Value) -> Value {
    job["name"] = json!(name);
    job
}
