//! Tests of the files in the layout of Arena's `experiment_runner`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::*;

/// Writes a report with Arena's files, and returns its folder.
fn written(plan: &mut RunPlan, lines: &[Line]) -> tempfile::TempDir {
    plan.options
        .insert("arena-output".to_owned(), String::new());
    crate::tests::written(plan, lines).0
}

fn read(dir: &tempfile::TempDir, path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir.path().join(path)).unwrap()).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Returns a plan of one job with two builds, and its four episodes on two ranks.
fn two_builds() -> (RunPlan, Vec<Line>) {
    let mut entry = job("a", 4);
    entry["num_rebuilds"] = 2.into();
    entry["variations"] = json!({"light": {"intensity": 500}});
    let of = |number: u64| Episode {
        rebuild: number / 2,
        rank: number as usize % 2,
        env: 0,
        ..episode(0, number, number != 3)
    };
    let mut lines: Vec<_> = (0..4).map(|number| line(of(number))).collect();
    lines.push(end(0, None));
    (plan([entry]), lines)
}

#[test]
fn each_build_has_a_file_with_the_fields_of_arena() {
    let (mut plan, episodes) = two_builds();
    let dir = written(&mut plan, &episodes);
    let first = lines(&dir.path().join("a/episode_results_rebuild0.jsonl"));
    let second = lines(&dir.path().join("a/episode_results_rebuild1.jsonl"));
    assert_eq!((first.len(), second.len()), (2, 2));
    let fields: BTreeSet<_> = first[0].as_object().unwrap().keys().cloned().collect();
    let wanted = [
        "job_name",
        "env_id",
        "episode_in_env",
        "seed",
        "success",
        "episode_length",
        "language_instruction",
        "timestamp",
    ];
    assert_eq!(fields, wanted.map(str::to_owned).into());
    let env = |entry: &Value| (entry["env_id"].clone(), entry["episode_in_env"].clone());
    let of_second_rank = (json!(1), json!(0));
    assert_eq!(env(&first[1]), of_second_rank);
    assert_eq!(env(&second[1]), of_second_rank, "a build counts its own");
    assert_eq!(second[1]["success"], false);
}

#[test]
fn the_result_has_the_runs_that_ended_with_all_their_episodes() {
    let mut plan = two_jobs();
    let mut episodes = everything();
    episodes.truncate(5);
    episodes.push(end(0, None));
    let dir = written(&mut plan, &episodes);
    let result = read(&dir, "arena_experiment_result.json");
    let runs = result["runs"].as_object().unwrap();
    assert_eq!(runs.len(), 1, "the other one is not over: {runs:?}");
    let run = &runs["a"];
    assert_eq!(run["status"], "completed");
    let wanted = json!({"name": "reach", "definition": "reach"});
    assert_eq!(run["environment"], wanted);
    assert_eq!(run["policy_variant"], "scripted");
    assert_eq!(run["rebuilds"][0]["episodes"].as_array().unwrap().len(), 4);
    let nothing = read(&written(&mut plan, &[]), "arena_experiment_result.json");
    assert_eq!(nothing, json!({"runs": {}}));
}

fn map(fields: Value) -> serde_json::Map<String, Value> {
    serde_json::from_value(fields).unwrap()
}

#[test]
fn an_environment_of_arena_has_its_name_there() {
    let (mut plan, lines) = two_builds();
    let job = &mut plan.jobs[0];
    job.environment = "arena_env.py:make".to_owned();
    job.env_args = map(json!({"env_kwargs": {"type": "tasks/pear.yaml"}}));
    job.policy_config = map(json!({"policy_variant": "pi05"}));
    let result = read(&written(&mut plan, &lines), "arena_experiment_result.json");
    let run = &result["runs"]["a"];
    let wanted = json!({"name": "pear", "definition": "tasks/pear.yaml"});
    assert_eq!(run["environment"], wanted);
    assert_eq!(run["policy_variant"], "pi05");
    assert_eq!(run["rebuilds"][1]["index"], 1);
}

#[test]
fn the_name_of_an_environment_is_that_of_its_graph() {
    let (mut plan, lines) = two_builds();
    let dir = tempfile::tempdir().unwrap();
    let graph = dir.path().join("pear_task.yaml");
    std::fs::write(&graph, "env_name: pear_in_bowl\nnodes: []\n").unwrap();
    let definition = graph.display().to_string();
    plan.jobs[0].env_args = map(json!({"env_kwargs": {"type": definition}}));
    let mut name = || {
        let result = read(&written(&mut plan, &lines), "arena_experiment_result.json");
        result["runs"]["a"]["environment"]["name"].clone()
    };
    assert_eq!(name(), "pear_in_bowl");
    std::fs::write(&graph, "env_name: [\n").unwrap();
    assert_eq!(name(), "pear_task");
}

#[test]
fn the_variant_of_a_policy_is_the_one_that_arena_shows() {
    let (mut plan, lines) = two_builds();
    for (policy, variant) in [
        ("pi0_remote", "pi05"),
        (
            "isaaclab_arena_openpi.policy.pi0_remote_policy.Pi0RemotePolicy",
            "pi05",
        ),
        (
            "isaaclab_arena_gr00t.policy.gr00t_remote_closedloop_policy.Gr00tRemoteClosedloopPolicy",
            "gr00t_remote_closedloop",
        ),
        ("gr00t", "gr00t_closedloop"),
        ("replay_action", "replay"),
        (
            "isaaclab_arena.policy.zero_action_policy.ZeroActionPolicy",
            "zero_action",
        ),
    ] {
        plan.jobs[0].policy_type = policy.to_owned();
        let result = read(&written(&mut plan, &lines), "arena_experiment_result.json");
        assert_eq!(result["runs"]["a"]["policy_variant"], variant, "{policy}");
    }
}

#[test]
fn a_build_without_a_finished_episode_has_an_empty_file() {
    let (mut plan, mut episodes) = two_builds();
    plan.jobs[0].num_rebuilds = 3;
    let dir = written(&mut plan, &episodes);
    let empty = |dir: &tempfile::TempDir, rebuild| {
        let path = format!("a/episode_results_rebuild{rebuild}.jsonl");
        std::fs::read_to_string(dir.path().join(path)).ok()
    };
    assert_eq!(empty(&dir, 2).as_deref(), Some(""));
    let rebuilds = &read(&dir, "arena_experiment_result.json")["runs"]["a"]["rebuilds"];
    assert_eq!(rebuilds[2], json!({"index": 2, "episodes": []}));

    episodes.pop();
    episodes.push(end(0, Some("no such server")));
    let failed = written(&mut plan, &episodes[4..]);
    assert_eq!(empty(&failed, 0).as_deref(), Some(""), "it has started");
    assert_eq!(empty(&failed, 1), None);
}

#[test]
fn without_the_option_there_are_no_such_files() {
    let (_dir, folder) = crate::tests::written(&two_jobs(), &everything());
    assert!(!folder.arena_experiment_result().exists() && !folder.job("a").exists());
}
