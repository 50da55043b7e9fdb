//! Tests of what an evaluation is refused for.

use serde_json::{Value, json};

use super::*;

fn refusal(extra: &[&str], gpus: usize) -> String {
    let reach = json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted",
                       "num_episodes": 1});
    refusal_of(&[reach], extra, gpus)
}

fn refusal_of(jobs: &[Value], extra: &[&str], gpus: usize) -> String {
    let dir = tempfile::tempdir().unwrap();
    let text = json!({ "jobs": jobs }).to_string();
    let jobs = dir.path().join("jobs.json");
    std::fs::write(&jobs, text).unwrap();
    let out = dir.path().join("out");
    let words = [
        "--jobs",
        jobs.to_str().unwrap(),
        "--output",
        out.to_str().unwrap(),
    ];
    let words: Vec<OsString> = words.iter().chain(extra).map(Into::into).collect();
    let launch = LaunchSize {
        nproc: Some(1),
        nodes: (1, 1),
        tasks_per_node: Vec::new(),
        gpus,
        is_virtual: false,
    };
    let checked = EvalRequest::read(&words, &Environment::default())
        .and_then(|asked| asked.check(&launch, &[]));
    let answer = checked.map_or_else(|err| err.to_string(), |_| "accepted".to_owned());
    assert!(!out.exists(), "checking writes nothing");
    answer.replace(&format!("`{}`: ", jobs.display()), "")
}

/// Checks one job on `reach` with more fields.
fn refusal_of_job(fields: Value, extra: &[&str]) -> String {
    let mut job =
        json!({"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted"});
    let fields = fields.as_object().unwrap().clone();
    job.as_object_mut().unwrap().extend(fields);
    refusal_of(&[job], extra, 0)
}

#[test]
fn a_job_without_a_length_is_refused_if_its_policy_needs_one() {
    assert_eq!(
        refusal_of_job(json!({}), &[]),
        "job 0 (a): neither num_episodes nor num_steps is given, and policy `scripted` has no \
         length of its own; use --num-steps"
    );
    assert_eq!(refusal_of_job(json!({}), &["--num-steps", "9"]), "accepted");
    let replay = json!({"policy_type": "replay_action", "policy_config_dict": {"replay_file_path": "/later"}});
    assert_eq!(refusal_of_job(replay, &[]), "accepted");
    let over = json!({"status": "completed"});
    assert_eq!(refusal_of_job(over, &[]), "accepted");
}

#[test]
fn a_wrong_or_missing_setting_of_a_policy_is_refused() {
    assert_eq!(
        refusal_of_job(json!({"policy_type": "replay_action"}), &[]),
        "job 0 (a): `policy_config_dict.replay_file_path` is missing, expected a file name"
    );
    let wrong = json!({"num_episodes": 1, "policy_config_dict": {"action_horizon": "many"}});
    assert_eq!(
        refusal_of_job(wrong, &[]),
        "job 0 (a): `policy_config_dict.action_horizon` is \"many\", expected a whole number \
         from 1 to 4096"
    );
    let unknown = json!({"num_episodes": 1, "policy_config_dict": {"horizon": 4}});
    assert_eq!(
        refusal_of_job(unknown, &[]),
        "job 0 (a): `policy_config_dict.horizon` is 4, but this policy has no such field"
    );
}

#[test]
fn a_camera_that_no_environment_has_is_refused() {
    let refused = "job 0 (a): `reach` has no camera `back`; it has front, wrist";
    let job = |fields: Value| {
        let mut job = json!({"num_episodes": 1});
        job.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        job
    };
    let back = &["--video-cameras", "front,back"];
    assert_eq!(refusal_of_job(job(json!({})), back), refused);
    assert_eq!(
        refusal_of_job(job(json!({})), &["--video-cameras", "wrist"]),
        "accepted"
    );
    let own = json!({"video_cfg": {"cameras": ["back"]}});
    assert_eq!(refusal_of_job(job(own.clone()), &[]), refused);
    assert_eq!(
        refusal_of_job(job(own), &["--no-video"]),
        "accepted",
        "nothing is filmed"
    );
    let python = job(json!({"arena_env_args": {"environment": "gym:Pusher-v5"}}));
    assert_eq!(refusal_of_job(python, back), "accepted", "ranks know them");
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
    assert_eq!(
        refusal(&["--policy-device-id", "1"], 0),
        "--policy-device-id is 1, but no CUDA device is visible here"
    );
    assert_eq!(
        refusal(&["--policy-device-id", "4"], 4),
        "--policy-device-id is 4, but only cuda:0 to cuda:3 are visible here"
    );
    assert_eq!(
        refusal(&["--policy-device-id=-1"], 4),
        "--policy-device-id is -1, but only cuda:0 to cuda:3 are visible here"
    );
    assert_eq!(refusal(&["--policy-device-id", "1"], 2), "accepted");
}

#[test]
fn a_quick_run_of_several_nodes_is_refused() {
    let words = [
        "--config".into(),
        "../jobs/suites/behavior.yaml".into(),
        "--quick".into(),
    ];
    let launch = LaunchSize {
        nproc: Some(1),
        nodes: (1, 2),
        tasks_per_node: Vec::new(),
        gpus: 0,
        is_virtual: false,
    };
    let asked = EvalRequest::read(&words, &Environment::default()).unwrap();
    assert_eq!(
        asked.check(&launch, &[]).unwrap_err().to_string(),
        "--quick runs on one node, but this launch has 2; leave --nnodes out"
    );
}

#[test]
fn a_missing_jobs_file_is_named() {
    let words = ["--jobs".into(), "/nowhere/jobs.json".into()];
    let text = EvalRequest::read(&words, &Environment::default())
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("cannot read jobs file `/nowhere/jobs.json`: No such file"),
        "{text}"
    );
}
