//! Tests of `vla_eval_remote`: with model servers of the package `vla-eval`
//! (`tests/fixtures/remote/vla_eval_server.py`), which misbehave on request, and with our own
//! server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::eval::command::Eval;
use crate::eval::remote::{Server, eval, local, outcomes, root, toy};

/// Starts a model server that keeps the rest of a chunk of three actions.
fn server(mut settings: Value) -> Server {
    let chunk_size = json!(3);
    let given = settings.as_object_mut().unwrap();
    given.entry("chunk_size").or_insert(chunk_size);
    Server::start("vla_eval_server.py", settings)
}

fn job(server: &Server, more: Value) -> Value {
    let mut config = json!({"remote_host": "127.0.0.1", "remote_port": server.port});
    let given = more.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(given);
    toy("vla_eval_remote", config)
}

fn broken(eval: &Eval) -> Vec<String> {
    let episodes = eval.episodes().into_iter();
    episodes.filter_map(|episode| episode.error).collect()
}

#[test]
fn episodes_are_the_same_on_a_model_server() {
    let wanted = local();
    let buffering = server(json!({}));
    let one_at_a_time = eval(job(&buffering, json!({"task": {"suite": "toys"}})));
    one_at_a_time.run().succeeds();
    assert_eq!(outcomes(&one_at_a_time), wanted);
    let asked = buffering.asked();
    let starts: Vec<&Value> = asked
        .iter()
        .filter(|line| line["start"].is_object())
        .collect();
    let sessions: BTreeSet<_> = starts.iter().map(|line| line["session"].as_str()).collect();
    assert_eq!(
        (starts.len(), sessions.len()),
        (6, 4),
        "a session an environment"
    );
    let mut episodes: Vec<_> = starts
        .iter()
        .map(|line| line["start"]["episode_idx"].as_u64())
        .collect();
    episodes.sort_unstable();
    assert_eq!(episodes, (0..6).map(Some).collect::<Vec<_>>());
    assert!(
        starts
            .iter()
            .all(|line| line["start"]["suite"] == "toys" && line["start"]["seed"].is_u64())
    );
    // The last episode of a session ends with its connection, without a result.
    let ends = asked.iter().filter(|line| line["end"]["steps"] == 7);
    assert_eq!(ends.count(), 2);
    let chunks = server(json!({"chunk_size": null}));
    let three_at_a_time = eval(job(&chunks, json!({"action_chunk_length": 3})));
    three_at_a_time.run().succeeds();
    assert_eq!(outcomes(&three_at_a_time), wanted);
}

#[test]
fn a_checkpoint_on_our_own_server_does_what_it_does_in_the_rank() {
    let reach = |policy: &str, config: Value| {
        json!({"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 3}, "policy_type": policy,
               "policy_config_dict": config, "num_episodes": 4, "seed": 1})
    };
    let checkpoint = root().join("jobs/suites/demo_policy");
    let config = json!({"model_path": checkpoint, "action_chunk_length": 4});
    let here = eval(reach("gr00t", config));
    here.run().succeeds();
    let server = Server::ours(&checkpoint, &["--chunk-size", "4"]);
    let config = json!({
        "remote_host": "127.0.0.1", "remote_port": server.port,
        "observation_mapping": {
            "images/front": "front", "images/wrist": "wrist",
            "states": ["eef_position", "eef_quaternion", "gripper_position"],
        },
    });
    let there = eval(reach("vla_eval_remote", config));
    there.run().succeeds();
    assert_eq!(outcomes(&there), outcomes(&here));
}

#[test]
fn a_model_server_that_comes_late_is_waited_for() {
    let late = server(json!({"late": 3}));
    let ended = eval(job(&late, json!({}))).run().succeeds();
    ended
        .stderr_has("retrying for ")
        .stderr_has(" answers again after ");
}

#[test]
fn a_model_server_that_dies_costs_the_episodes_under_way_which_run_again() {
    let wanted = local();
    let dying = server(json!({"die_after": 6}));
    let eval = eval(job(&dying, json!({})));
    eval.run().fails_with(1);
    let reasons = broken(&eval);
    assert!((1..=4).contains(&reasons.len()), "{reasons:?}");
    let lost = "the server has lost the session of this episode";
    assert!(
        reasons.iter().all(|reason| reason.ends_with(lost)),
        "{reasons:?}"
    );
    eval.run().succeeds();
    assert_eq!((dying.count("dies"), outcomes(&eval)), (1, wanted));
}

#[test]
fn nonsense_of_a_model_server_costs_its_episodes_in_its_words() {
    let reasons = |fault: &str, reason: &str| {
        let server = server(json!({"fault": fault}));
        let eval = eval(job(&server, json!({})));
        eval.run().fails_with(1);
        let reasons = broken(&eval);
        assert!(
            reasons.len() == 6 && reasons.iter().all(|told| told.contains(reason)),
            "{reasons:?}"
        );
    };
    reasons(
        "error",
        "observation: it answers with an error: observation_failed: ValueError: the arm is on fire",
    );
    reasons(
        "short",
        "observation: its actions are [1], expected [2] or [1 or more, 2]",
    );
    reasons(
        "garbage",
        "observation: its answer has no numbers as `actions`",
    );
}

#[test]
fn a_model_server_that_never_answers_costs_no_more_than_its_time() {
    let silent = server(json!({"fault": "silent"}));
    let brief = json!({"remote_timeout_s": 3, "remote_retry_s": 4});
    let ended = eval(job(&silent, brief)).run().fails_with(1);
    ended
        .stderr_has("it stays unavailable: ")
        .stderr_has("no answer within 3 s");
}

#[test]
fn a_model_server_that_does_not_fit_is_refused_before_the_first_episode() {
    let refusal = |settings: Value, more: Value, reason: &str| {
        let server = server(settings);
        let ended = eval(job(&server, more)).run().fails_with(1);
        ended.stderr_has(reason);
        assert_eq!(server.count("start"), 0);
    };
    refusal(
        json!({"images": 2}),
        json!({}),
        "needs 2 images (image_0, image_1) for model server Function; environment `",
    );
    refusal(
        json!({"width": 3}),
        json!({}),
        "needs an action of 3 numbers for model server Function; environment `",
    );
    refusal(
        json!({}),
        json!({"observation_mapping": {"images/top": "top"}}),
        "needs a state (`states`) for model server Function",
    );
    let openpi = Server::openpi(json!({}));
    let ended = eval(job(&openpi, json!({}))).run().fails_with(1);
    ended.stderr_has("connecting: its answer cannot be read: a message needs `type`, a string");
}
