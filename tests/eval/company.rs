//! Tests of environments that share a process: an episode that ends the process costs no other.

use std::collections::BTreeMap;

use jobs::episode::{Episode, EpisodeOutcome};
use jobs::journal::{Blame, EnvLost, Line};
use serde_json::{Value, json};

use crate::eval::command::Eval;
use crate::eval::python::{seed, toy};

/// The episodes that end their process, or raise, in [`faulty`].
const FAULTY: [u64; 3] = [2, 5, 9];

/// Returns an evaluation in which three of 16 episodes always fail, each in a way of its own.
fn faulty(factory: &str, args: Value) -> Eval {
    let faults = [("exit", 0), ("raise", 3), ("kill", 2)];
    let faults: BTreeMap<_, _> = FAULTY
        .iter()
        .zip(faults)
        .map(|(episode, (fault, at))| (seed(*episode).to_string(), json!([fault, at])))
        .collect();
    let mut job = toy(json!({"env_kwargs": {"faults": faults}}));
    let fields = job["arena_env_args"].as_object_mut().unwrap();
    fields.extend(args.as_object().unwrap().clone());
    let environment = fields["environment"].as_str().unwrap();
    fields["environment"] = json!(environment.replace(":Toy", &format!(":{factory}")));
    job["num_episodes"] = json!(16);
    Eval::new(&[job]).words(&["--no-dataset", "--env-restarts", "1"])
}

fn errors(eval: &Eval) -> Vec<u64> {
    let errors = eval.episodes().into_iter().filter(|e| e.error.is_some());
    errors.map(|episode| episode.episode).collect()
}

/// Returns the outcomes of the episodes without a fault; the others have some reason in theirs.
fn innocent(eval: &Eval) -> Vec<EpisodeOutcome> {
    let episodes = eval.episodes().into_iter();
    let innocent = episodes.filter(|e| !FAULTY.contains(&e.episode));
    innocent.map(|e| Episode::outcome(&e)).collect()
}

/// Returns a job with episodes of different lengths, and a policy that infers `chunk` actions at a
/// time.
fn uneven(factory: &str, chunk: usize, args: Value) -> Value {
    let mut job = toy(args);
    let environment = &mut job["arena_env_args"]["environment"];
    *environment = json!(
        environment
            .as_str()
            .unwrap()
            .replace(":Toy", &format!(":{factory}"))
    );
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/policies");
    job["policy_type"] = json!("python");
    job["policy_config_dict"] = json!({
        "policy": format!("{folder}/toy.py:Following"),
        "python": job["arena_env_args"]["python"],
        "policy_kwargs": {"horizon": chunk},
    });
    job["num_episodes"] = json!(40);
    job
}

fn outcomes(eval: &Eval) -> Vec<EpisodeOutcome> {
    eval.episodes().iter().map(Episode::outcome).collect()
}

fn losses(eval: &Eval) -> Vec<EnvLost> {
    let lines = eval.journal().into_iter();
    let lost = lines.filter_map(|line| match line {
        Line::EnvLost(lost) => Some(*lost),
        _ => None,
    });
    lost.collect()
}

#[test]
fn an_episode_that_ends_its_process_costs_its_neighbours_nothing() {
    let alone = faulty("Faulty", json!({}));
    alone.run().fails_with(1);
    assert_eq!(errors(&alone), FAULTY);
    assert_eq!(losses(&alone).len(), 6, "each has lost two processes");
    for (num_envs, per_process) in [(4, 4), (8, 4), (5, 2)] {
        let args = json!({"num_envs": num_envs, "envs_per_process": per_process});
        let shared = faulty("Faulty", args);
        let ran = shared.run();
        ran.fails_with(1)
            .stderr_has(" again, uncounted, because another episode of the process is to blame: the simulator exited with code 3");
        let place = format!("{num_envs} in processes of {per_process}");
        assert_eq!(errors(&shared), FAULTY, "{place}");
        assert_eq!(innocent(&shared), innocent(&alone), "{place}");
        for lost in losses(&shared) {
            let is_to_blame = lost.blame == Blame::Own;
            assert_eq!(is_to_blame, FAULTY.contains(&lost.episode), "{lost:?}");
            assert!(
                is_to_blame || lost.reason.contains("its last call"),
                "{lost:?}"
            );
        }
        let counted = losses(&shared)
            .into_iter()
            .filter(|it| it.blame.is_counted());
        assert_eq!(counted.count(), 6, "{place}");
        assert_eq!(shared.report().env_losses_count, 6, "{place}");
    }
}

#[test]
fn an_episode_that_ends_a_vector_env_is_found_and_costs_its_neighbours_nothing() {
    let alone = faulty("Faulty", json!({}));
    alone.run().fails_with(1);
    let shared = faulty(
        "faulty_vector",
        json!({"num_envs": 4, "envs_per_process": 4}),
    );
    shared
        .run()
        .fails_with(1)
        .stderr_has("start again, with fewer neighbours, because it is not known");
    assert_eq!(errors(&shared), FAULTY);
    assert_eq!(innocent(&shared), innocent(&alone));
}

#[test]
fn copies_of_a_vector_env_run_with_chunks_as_each_does_alone_and_none_is_lost() {
    // At least three copies of a process in a stage: one begins, one steps, one needs a chunk.
    for (chunk, num_envs, per_process, stages) in [(4, 6, 6, "1"), (7, 6, 3, "2")] {
        let alone = uneven("Uneven", chunk, json!({"num_envs": 1}));
        let alone = Eval::new(&[alone]).words(&["--no-dataset"]);
        alone.run().succeeds();
        let args = json!({"num_envs": num_envs, "envs_per_process": per_process});
        let vector = uneven("uneven_vector", chunk, args);
        let words = [
            "--no-dataset",
            "--pipeline-stages",
            stages,
            "--stall-timeout",
            "60",
        ];
        let vector = Eval::new(&[vector]).words(&words);
        vector.run().succeeds();
        assert_eq!(losses(&vector), []);
        assert_eq!(outcomes(&vector), outcomes(&alone), "chunks of {chunk}");
    }
}

#[test]
fn a_vector_env_of_a_job_in_steps_does_not_wait_for_copies_that_have_taken_theirs() {
    let args = json!({"num_envs": 3, "envs_per_process": 3});
    let mut job = uneven("uneven_vector", 4, args);
    job.as_object_mut().unwrap().remove("num_episodes");
    job["num_steps"] = json!(25);
    // Longer than the test waits for the end.
    let eval = Eval::new(&[job]).words(&["--no-dataset", "--stall-timeout", "600"]);
    eval.run().succeeds();
    assert_eq!(eval.report().per_job[0].env_steps, 75);
}
