//! Tests of environments that share a process: an episode that ends the process costs no other.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jobs::episode::EpisodeOutcome;
use jobs::journal::Blame;
use serde_json::{Value, json};

use crate::eval::command::Eval;
use crate::eval::given::{merged, named, seed, toy_of};

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
    let args = merged(json!({"env_kwargs": {"faults": faults}}), args);
    let words = ["--export-mode=none", "--env-restarts", "1"];
    Eval::new(&[named("toy", 16, toy_of(factory, args))]).words(&words)
}

/// Returns the run in which each simulator has a process of its own.
fn alone() -> &'static Eval {
    static ALONE: OnceLock<Eval> = OnceLock::new();
    ALONE.get_or_init(|| {
        let eval = faulty("Faulty", json!({}));
        eval.run().fails_with(1);
        eval
    })
}

/// Returns the outcomes of the episodes without a fault; the others have some reason in theirs.
fn innocent(eval: &Eval) -> Vec<EpisodeOutcome> {
    let mut outcomes = eval.outcomes();
    outcomes.retain(|outcome| !FAULTY.contains(&outcome.episode));
    outcomes
}

/// Returns a job with episodes of different lengths, and a policy that infers `chunk` actions at a
/// time.
fn uneven(factory: &str, chunk: usize, args: Value) -> Value {
    let mut job = named("toy", 40, toy_of(factory, args));
    let policy = rig::fixture("policies/toy.py").display().to_string();
    job["policy_type"] = json!("python");
    job["policy_config_dict"] = json!({
        "policy": format!("{policy}:Following"),
        "python": job["arena_env_args"]["python"],
        "policy_kwargs": {"horizon": chunk},
    });
    job
}

#[test]
fn an_episode_that_ends_its_process_costs_its_neighbours_nothing() {
    assert_eq!(alone().errors(), FAULTY);
    assert_eq!(alone().losses().len(), 6, "each has lost two processes");
    for (num_envs, per_process) in [(8, 4), (5, 2)] {
        let args = json!({"num_envs": num_envs, "envs_per_process": per_process});
        let shared = faulty("Faulty", args);
        let ran = shared.run();
        ran.fails_with(1)
            .stderr_has(" again, uncounted, because another episode of the process is to blame: the simulator exited with code 3");
        let place = format!("{num_envs} in processes of {per_process}");
        assert_eq!(shared.errors(), FAULTY, "{place}");
        assert_eq!(innocent(&shared), innocent(alone()), "{place}");
        for lost in shared.losses() {
            let is_to_blame = lost.blame == Blame::Own;
            assert_eq!(is_to_blame, FAULTY.contains(&lost.episode), "{lost:?}");
            assert!(
                is_to_blame || lost.reason.contains("its last call"),
                "{lost:?}"
            );
        }
        let losses = shared.losses().into_iter();
        let counted = losses.filter(|it| it.blame.is_counted());
        assert_eq!(counted.count(), 6, "{place}");
        assert_eq!(shared.report().env_losses_count, 6, "{place}");
    }
}

#[test]
fn an_episode_that_ends_a_vector_env_is_found_and_costs_its_neighbours_nothing() {
    let shared = faulty(
        "faulty_vector",
        json!({"num_envs": 4, "envs_per_process": 4}),
    );
    shared
        .run()
        .fails_with(1)
        .stderr_has("start again, with fewer neighbours, because it is not known");
    assert_eq!(shared.errors(), FAULTY);
    assert_eq!(innocent(&shared), innocent(alone()));
}

#[test]
fn copies_of_a_vector_env_run_with_chunks_as_each_does_alone_and_none_is_lost() {
    // At least three copies of a process in a stage: one begins, one steps, one needs a chunk.
    for (chunk, num_envs, per_process, stages) in [(4, 6, 6, "1"), (7, 6, 3, "2")] {
        let alone = uneven("Uneven", chunk, json!({"num_envs": 1}));
        let alone = Eval::new(&[alone])
            .words(&["--export-mode=none"])
            .finished();
        let args = json!({"num_envs": num_envs, "envs_per_process": per_process});
        let words = [
            "--export-mode=none",
            "--pipeline-stages",
            stages,
            "--stall-timeout",
            "60",
        ];
        let vector = Eval::new(&[uneven("uneven_vector", chunk, args)]);
        let vector = vector.words(&words).finished();
        assert_eq!(vector.losses(), []);
        assert_eq!(vector.outcomes(), alone.outcomes(), "chunks of {chunk}");
    }
}
