//! Tests of the files in the layout of Arena's `experiment_runner`.

use serde_json::Value;

use super::*;

/// Writes a report with Arena's files.
fn written(plan: &mut RunPlan, lines: &[Line]) -> TestRun {
    let options = &mut plan.options;
    options.insert("arena-output".to_owned(), String::new());
    crate::tests::written(plan, lines)
}

/// Returns the run of job `a` in the result of all.
fn run(plan: &mut RunPlan, lines: &[Line]) -> Value {
    let run = written(plan, lines);
    let text = std::fs::read(run.folder.arena_experiment_result()).unwrap();
    let result: Value = serde_json::from_slice(&text).unwrap();
    result["runs"]["a"].clone()
}

/// Returns the names and contents of Arena's files.
fn files(plan: &mut RunPlan, lines: &[Line]) -> String {
    let run = written(plan, lines);
    let builds = (0..9).map(|build| format!("a/episode_results_rebuild{build}.jsonl"));
    let names = builds.chain(["arena_experiment_result.json".to_owned()]);
    let text = |name: String| {
        let text = std::fs::read_to_string(run.folder.root().join(&name)).ok()?;
        Some(format!("{name}\n{text}"))
    };
    names.filter_map(text).collect::<Vec<_>>().join("\n")
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

/// Each build counts its own episodes. One without a finished episode has an empty file once it has
/// started. A run that is not over is not in the result.
#[test]
fn files_have_the_episodes_of_the_runs_that_ended() {
    let (mut plan, mut episodes) = two_builds();
    plan.jobs[0].num_rebuilds = 3;
    let completed = files(&mut plan, &episodes);
    episodes.pop();
    let running = files(&mut plan, &episodes[..3]);
    episodes.push(end(0, Some("no such server")));
    let failed = files(&mut plan, &episodes[4..]);
    insta::assert_snapshot!([completed, running, failed].join("\n\n"));
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
    let run = run(&mut plan, &lines);
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
    let mut name = || run(&mut plan, &lines)["environment"]["name"].clone();
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
        let run = run(&mut plan, &lines);
        assert_eq!(run["policy_variant"], variant, "{policy}");
    }
}

#[test]
fn without_the_option_there_are_no_such_files() {
    let run = crate::tests::written(&two_jobs(), &everything());
    let folder = &run.folder;
    assert!(!folder.arena_experiment_result().exists() && !folder.job("a").exists());
}
