//! Tests of rows whose inference fails: a TorchScript module that raises for some states.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jobs::episode::EpisodeOutcome;
use serde_json::json;
use tch::{CModule, Device, Kind, Tensor};

use crate::command::Eval;

/// Writes a module whose actions are zero. It raises if a goal of the batch is farther away than
/// `limit`; its example, of zeros, is near.
fn module(folder: &Path, limit: f64) -> PathBuf {
    let inputs = [
        Tensor::zeros([2, 0, 1, 1, 3], (Kind::Uint8, Device::Cpu)),
        Tensor::zeros([2, 3], (Kind::Float, Device::Cpu)),
        Tensor::zeros([2, 8], (Kind::Int64, Device::Cpu)),
    ];
    let mut forward = |inputs: &[Tensor]| {
        let is_far = inputs[1].select(1, 0).gt(limit).to_kind(Kind::Int64);
        // The table has no entry for what is far.
        let table = Tensor::zeros([1], (Kind::Float, Device::Cpu));
        let still = table.index_select(0, &is_far).reshape([-1, 1, 1]);
        vec![still.expand([-1, 50, 7], false)]
    };
    let module = CModule::create_by_tracing("Near", "forward", &inputs, &mut forward).unwrap();
    let path = folder.join("policy.pt");
    module.save(&path).unwrap();
    path
}

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
    let folder = tempfile::tempdir().unwrap();
    let module = module(folder.path(), 0.53);
    let (alone, together) = (eval(&module, 1), eval(&module, 4));
    for eval in [&alone, &together] {
        eval.run().fails_with(1).stderr_has("index out of range");
    }
    let (outcomes, errors) = ended(&together);
    assert_eq!((outcomes.len(), errors.len()), (16, 4), "{errors:?}");
    for reason in errors.values() {
        assert!(
            reason.contains("policy.pt`: ") && reason.contains("index out of range"),
            "{reason}"
        );
    }
    assert_eq!(ended(&alone), (outcomes, errors));
}

#[test]
fn a_policy_that_fails_for_every_row_ends_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let module = module(folder.path(), 0.1);
    let eval = eval(&module, 4);
    eval.run()
        .fails_with(1)
        .stderr_has("policy `torchscript` has answered none of 16 observations in succession")
        .stderr_has("index out of range");
    assert!(eval.episodes().len() < 20);
}
