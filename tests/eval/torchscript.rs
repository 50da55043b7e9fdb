//! Tests of TorchScript modules that raise for some states, or that need an absurd amount of memory
//! for more than two rows at a time.

use std::collections::BTreeMap;

use jobs::episode::EpisodeOutcome;
use serde_json::{Value, json};

use crate::eval::command::Eval;

/// Returns a job with a module of `tests/fixtures/modules`.
fn job(name: &str, module: &str, state: &str, num_envs: u64) -> Value {
    let module = rig::fixture("modules").join(module);
    json!({
        "name": name,
        "arena_env_args": {"environment": "reach", "num_envs": num_envs},
        "policy_type": "torchscript",
        "policy_config_dict": {
            "model_path": module, "cameras": [], "state_keys": [state], "max_tokens": 8,
        },
        "num_episodes": 20,
    })
}

fn eval(module: &str, num_envs: u64) -> Eval {
    let words = ["--export-mode=none", "--job-attempts", "1"];
    let jobs = [job("reach", module, "goal_position", num_envs)];
    Eval::new(&jobs).nproc(1).words(&words)
}

/// Returns the outcomes of episodes, and the reasons of those that are errors.
fn ended(eval: &Eval) -> (BTreeMap<u64, EpisodeOutcome>, BTreeMap<u64, String>) {
    let (mut outcomes, mut errors) = (BTreeMap::new(), BTreeMap::new());
    for episode in eval.episodes() {
        if let Some(reason) = &episode.error {
            errors.insert(episode.episode, reason.clone());
        } else {
            outcomes.insert(episode.episode, episode.outcome());
        }
    }
    (outcomes, errors)
}

#[test]
fn a_state_that_a_network_cannot_take_costs_its_episode_alone() {
    let (alone, together) = (eval("near.pt", 1), eval("near.pt", 4));
    for eval in [&alone, &together] {
        eval.run().fails_with(1).stderr_has("index out of range");
    }
    let (outcomes, errors) = ended(&together);
    assert_eq!((outcomes.len(), errors.len()), (16, 4), "{errors:?}");
    for reason in errors.values() {
        assert!(
            reason.contains("near.pt`: ") && reason.contains("index out of range"),
            "{reason}"
        );
    }
    assert_eq!(ended(&alone), (outcomes, errors));
}

#[test]
fn a_policy_that_fails_for_every_row_ends_the_job() {
    let eval = eval("nearer.pt", 4);
    eval.run()
        .fails_with(1)
        .stderr_has("policy `torchscript` has answered none of 16 observations in succession")
        .stderr_has("index out of range");
    assert!(eval.episodes().len() < 20);
}

#[test]
fn a_batch_that_does_not_fit_is_halved_and_no_episode_is_lost() {
    let words = [
        "--max-batch",
        "4",
        "--pipeline-stages",
        "1",
        "--export-mode=none",
    ];
    let jobs = ["first", "second"].map(|name| job(name, "hungry.pt", "eef_position", 4));
    let eval = Eval::new(&jobs).nproc(1).words(&words);
    let ended = eval.run().succeeds();
    let ended = ended.stderr_has(
        "first: out of memory with 4 rows in one inference: at most 2 from now on; --max-batch 2",
    );
    ended.stdout_has(
        "first: out of memory once: from then on an inference had at most 2 rows; --max-batch 2",
    );
    let report = eval.report();
    assert_eq!((report.overall.episodes, report.overall.errors), (40, 0));
    let found: Vec<_> = report
        .per_job
        .iter()
        .map(|job| (job.costs.out_of_memory, job.costs.out_of_memory_batch))
        .collect();
    assert_eq!(
        found,
        [(1, Some(2)), (0, Some(2))],
        "the second job knows it from the first"
    );
    assert_eq!(report.per_rank[0].costs.out_of_memory, 1);
}
