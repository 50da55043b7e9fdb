//! Tests with a GR00T checkpoint in the loop: that of the demo, which sees its target only through
//! cameras.

use std::path::Path;

use serde_json::{Value, json};

use crate::eval::command::Eval;

fn checkpoint() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../jobs/suites/demo_policy")
        .display()
        .to_string()
}

fn reach(name: &str, config: Value) -> Value {
    json!({
        "name": name,
        "arena_env_args": {"environment": "reach", "num_envs": 2},
        "policy_type": "gr00t_closedloop",
        "policy_config_dict": config,
        "num_episodes": 4,
        "seed": 1,
    })
}

#[test]
fn a_checkpoint_reaches_what_it_sees_and_does_the_same_on_every_rank() {
    let config = || json!({"model_path": checkpoint(), "action_chunk_length": 4});
    let eval = Eval::new(&[reach("left", config()), reach("right", config())])
        .nproc(2)
        .words(&["--no-dataset"]);
    eval.run().succeeds();
    let outcomes = |name: &str| {
        let episodes = eval
            .episodes()
            .into_iter()
            .filter(|episode| episode.job == name);
        episodes
            .map(|episode| (episode.episode, episode.success, episode.length))
            .collect::<Vec<_>>()
    };
    let left = outcomes("left");
    assert!(
        left.iter()
            .filter(|(_, success, _)| *success == Some(true))
            .count()
            >= 3,
        "{left:?}"
    );
    assert_eq!(left, outcomes("right"));
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused_with_both_sides() {
    let mut entry = reach("reach", json!({"model_path": checkpoint()}));
    entry["policy_config_dict"]["pov_cam_name_sim"] = json!(["front", "top"]);
    let eval = Eval::new(&[entry]).nproc(1);
    eval.run()
        .fails_with(1)
        .stderr_has("front, top; environment `reach` has cameras front, wrist");
}

#[test]
fn a_checkpoint_that_is_not_there_is_refused_once_and_before_ranks_start() {
    let there = reach("first", json!({"model_path": checkpoint()}));
    let gone = reach("second", json!({"model_path": "nvidia/GR00T-N0"}));
    let eval = Eval::new(&[there, gone]).nproc(2);
    let reason = "job 1 (second): `policy_config_dict.model_path` is `nvidia/GR00T-N0`";
    let ended = eval.run().fails_with(1).stderr_has(reason);
    assert_eq!(ended.stderr.matches(reason).count(), 1, "{}", ended.stderr);
    assert!(!eval.folder().root().exists(), "nothing is written");
}
