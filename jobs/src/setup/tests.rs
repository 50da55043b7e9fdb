use std::path::Path;

use super::*;

fn setup(words: &[&str]) -> Result<Setup, String> {
    let args = EvalArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>())
        .map_err(|err| err.to_string())?;
    Setup::read(&args, &|_| None).map_err(|err| err.to_string())
}

/// Creates a folder with `jobs.json`, `behavior.yaml` (a complete job) and `snippet.yaml` (the
/// first example of s001).
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let job = r#"{"jobs": [{"name": "reach", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted"}]}"#;
    let behavior = "env: {eval: {environment: push, total_num_envs: 4}}\nrollout: {policy_type: scripted}\nhydra: {}\n";
    let snippet = "cluster: {component_placement: {env: 0-1, rollout: 2-3}}\nenv: {eval: {total_num_envs: 4}}\n";
    for (name, text) in [
        ("jobs.json", job),
        ("behavior.yaml", behavior),
        ("snippet.yaml", snippet),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn path(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

#[test]
fn jobs_and_placement_come_from_wherever_they_are_given() {
    let dir = folder();
    let [jobs, behavior, snippet] =
        ["jobs.json", "behavior.yaml", "snippet.yaml"].map(|name| path(&dir, name));
    let both = setup(&["--jobs", &jobs, "--config", &snippet]).unwrap();
    assert_eq!(both.file.jobs[0].name.as_str(), "reach");
    assert_eq!(both.total_num_envs(), Some(4));
    assert_eq!(both.output.as_path(), Path::new("outputs/jobs"));
    assert_eq!(both.notes.len(), 0);
    let placement = both.placement(Resources::Labels).unwrap().unwrap();
    assert_eq!(placement.world_size(), 2);
    assert!(both.check(&placement).is_ok());
    let alone = setup(&["--config", &behavior, "--placement", "env,rollout: 0"]).unwrap();
    assert_eq!(alone.file.jobs[0].name.as_str(), "behavior");
    assert_eq!(alone.output.as_path(), Path::new("outputs/behavior"));
    assert_eq!(alone.notes, ["hydra has no effect"]);
}

#[test]
fn the_option_wins_by_component() {
    let dir = folder();
    let (jobs, snippet) = (path(&dir, "jobs.json"), path(&dir, "snippet.yaml"));
    let setup = setup(&[
        "--jobs",
        &jobs,
        "--config",
        &snippet,
        "--placement",
        "rollout: 0",
    ])
    .unwrap();
    let wanted = Some(Components::parse("env: 0-1, rollout: 0").unwrap());
    assert_eq!(setup.components, wanted);
}

#[test]
fn who_sits_where_is_no_part_of_the_identity_and_what_is_run_is() {
    let dir = folder();
    let (jobs, snippet) = (path(&dir, "jobs.json"), path(&dir, "snippet.yaml"));
    let sha = || {
        setup(&["--jobs", &jobs, "--config", &snippet])
            .unwrap()
            .file
            .sha256
    };
    let before = sha();
    let rewrite = |text: &str| std::fs::write(&snippet, text).unwrap();
    rewrite(
        "cluster: {component_placement: {env: 0, rollout: 0}}\nenv: {eval: {total_num_envs: 4}}\n",
    );
    assert_eq!(sha(), before);
    rewrite(
        "cluster: {component_placement: {env: 0, rollout: 0}}\nenv: {eval: {total_num_envs: 2}}\n",
    );
    assert_ne!(sha(), before);
    let plain = setup(&["--jobs", &jobs]).unwrap().file.sha256;
    assert_eq!(plain, JobFile::read(Path::new(&jobs)).unwrap().sha256);
}

#[test]
fn an_uneven_division_names_the_job() {
    let dir = folder();
    let setup = setup(&[
        "--config",
        &path(&dir, "behavior.yaml"),
        "--placement",
        "env: 0-2, rollout: 0",
    ])
    .unwrap();
    let placement = setup.placement(Resources::Labels).unwrap().unwrap();
    assert_eq!(
        setup.check(&placement).unwrap_err().to_string(),
        "job 0 (behavior): total_num_envs is 4, which cannot be divided evenly among 3 environment \
         workers; 3 or 6 can"
    );
}

#[test]
fn what_is_missing_or_twice_is_said() {
    let dir = folder();
    let (jobs, snippet) = (path(&dir, "jobs.json"), path(&dir, "snippet.yaml"));
    assert!(
        setup(&["--config", &snippet])
            .unwrap_err()
            .starts_with("no jobs are given: use --jobs FILE")
    );
    std::fs::write(
        &snippet,
        "jobs: [{name: a, arena_env_args: {environment: reach}, policy_type: scripted}]",
    )
    .unwrap();
    let found = setup(&["--config", &snippet]).unwrap().file.jobs[0]
        .name
        .clone();
    assert_eq!(found, "a");
    assert!(
        setup(&["--jobs", &jobs, "--config", &snippet])
            .unwrap_err()
            .contains("are both given")
    );
    let wrong = setup(&["--jobs", &jobs, "--placement", "envs: 0"]).unwrap_err();
    let told = "--placement: component_placement: unknown component `envs`";
    assert!(wrong.starts_with(told), "{wrong}");
    assert!(
        setup(&["--config", "/nowhere.yaml"])
            .unwrap_err()
            .starts_with("cannot read config `/nowhere.yaml`: No such")
    );
}

#[test]
fn a_configuration_in_the_place_of_a_jobs_file_is_told_its_option() {
    let dir = folder();
    let behavior = path(&dir, "behavior.yaml");
    for words in [
        &["--jobs", &behavior][..],
        &["--jobs", &behavior, "--config", &path(&dir, "snippet.yaml")],
    ] {
        let refusal = setup(words).unwrap_err();
        assert!(
            refusal.contains(&behavior)
                && refusal.contains("for RLinf's YAML, use --config instead"),
            "{refusal}"
        );
    }
}

#[test]
fn a_choice_of_jobs_has_a_folder_of_its_own() {
    let dir = folder();
    let jobs = path(&dir, "jobs.json");
    let chosen = setup(&["--jobs", &jobs, "--only", "reach"]).unwrap();
    assert_eq!(chosen.file.jobs.len(), 1);
    assert_eq!(chosen.output.as_path(), Path::new("outputs/jobs_only"));
    let named = setup(&["--jobs", &jobs, "--only", "reach", "--output", "there"]).unwrap();
    assert_eq!(named.output, Path::new("there"));
    let found = setup(&["--jobs", &jobs, "--only", "push"]).unwrap_err();
    assert_eq!(found, "--only: unknown job `push`; expected one of reach");
}

/// Creates a run folder of another user, whose plan names a program, and a home directory.
fn foreign() -> (tempfile::TempDir, impl Fn(&[&str]) -> Result<Setup, String>) {
    let dir = tempfile::tempdir().unwrap();
    let job = r#"{"name": "a", "arena_env_args": {"environment": "gym:X-v0", "python": "/tmp/evil"}, "policy_type": "scripted",
                  "num_episodes": 1}"#;
    let server = r#"{"command": ["curl", "http://evil/"], "health_port": 1}"#;
    let text = format!(r#"{{"jobs": [{job}], "model_server": {server}}}"#);
    std::fs::write(dir.path().join("jobs.json"), text).unwrap();
    let file = JobFile::read(&dir.path().join("jobs.json")).unwrap();
    let args = EvalArgs::parse_words(&["--jobs".into(), "jobs.json".into()]).unwrap();
    let plan = RunPlan::new(&args, file, 1, String::new());
    plan.settle(&RunFolder::new(&dir.path().join("run")), false)
        .unwrap();
    let home = dir.path().join("home").display().to_string();
    let read = move |words: &[&str]| {
        let args =
            EvalArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>()).unwrap();
        let variable = |name: &str| (name == "XDG_STATE_HOME").then(|| home.clone());
        Setup::read(&args, &variable).map_err(|err| err.to_string())
    };
    (dir, read)
}

#[test]
fn what_a_plan_of_somebody_else_would_run_is_asked_about() {
    let (dir, read) = foreign();
    let (run, jobs) = (path(&dir, "run"), path(&dir, "jobs.json"));
    let told = read(&["--resume", &run]).unwrap_err();
    for text in [
        "the model server `curl http://evil/`",
        "the environment `gym:X-v0` with {\"python\":\"/tmp/evil\"",
        "--trust-plan",
    ] {
        assert!(told.contains(text), "{told}");
    }
    assert!(read(&["--resume", &run, "--trust-plan"]).is_ok());
    assert!(
        read(&["--resume", &run, "--jobs", &jobs]).is_ok(),
        "the user names the jobs"
    );
}

#[test]
fn what_a_user_has_begun_is_gone_on_with_without_a_question() {
    let (dir, read) = foreign();
    let (run, home) = (path(&dir, "run"), path(&dir, "home"));
    let plan = RunPlan::read(&RunFolder::new(Path::new(&run))).unwrap();
    let variable = |name: &str| (name == "XDG_STATE_HOME").then(|| home.clone());
    trust::remember(
        &trust::uses(&plan.jobs, plan.model_server.as_ref()),
        &variable,
    )
    .unwrap();
    assert!(read(&["--resume", &run]).is_ok());
}

#[test]
fn a_secret_in_a_jobs_file_is_refused_before_anything_is_written() {
    let dir = folder();
    let job = r#"{"jobs": [{"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "pi0_remote",
                            "policy_config_dict": {"remote_api_token": "s3cret"}, "num_episodes": 1}]}"#;
    std::fs::write(dir.path().join("jobs.json"), job).unwrap();
    let told = setup(&["--jobs", &path(&dir, "jobs.json")]).unwrap_err();
    let hint = "name that in `remote_api_token_env` if there is";
    assert!(told.contains(hint) && !told.contains("s3cret"), "{told}");
}
