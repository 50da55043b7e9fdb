//! Tests of rows whose inference fails: a TorchScript module that raises for some states.

use std::collections::BTreeMap;
use std::path::Path;

use jobs::episode::EpisodeOutcome;
use serde_json::json;

use crate::eval::command::Eval;

fn eval(module: &Path, num_envs: u64) -> Eval {
    let job = json!({
        "name": "reach",
        "arena_env_args": {"environment": "reach", "num_envs": num_envs},
        "policy_type": "torchscript",
        "policy_config_dict": {
            "model_path": module, "cameras": [], "state_keys": ["goal_position"], "max_tokens": 8,
        },
        "num_episodes": 20,
    });
    let words = ["--no-dataset", "--job-attempts", "1"];
    Eval::new(&[job]).nproc(1).words(&words)
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
    let module = rig::fixture("modules/near.pt");
    let (alone, together) = (eval(&module, 1), eval(&module, 4));
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
    let module = rig::fixture("modules/nearer.pt");
    let eval = eval(&module, 4);
    eval.run()
        .fails_with(1)
        .stderr_has("policy `torchscript` has answered none of 16 observations in succession")
        .stderr_has("index out of range");
    assert!(eval.episodes().len() < 20);
}
