use std::path::Path;

use rig::cases;
use serde_json::json;

use super::*;
use crate::samples;

fn setup(words: &[&str]) -> Result<Setup, String> {
    read(words, &|_| None)
}

fn read(words: &[&str], variable: &dyn Fn(&str) -> Option<String>) -> Result<Setup, String> {
    let args = EvalArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>())
        .map_err(|err| err.to_string())?;
    Setup::read(&args, variable).map_err(|err| err.to_string())
}

/// The files of [`folder`]: behavior.yaml is a complete job, snippet.yaml the first example of
/// s001.
const FILES: [(&str, &str); 5] = [
    (
        "jobs.json",
        r#"{"jobs": [{"name": "reach", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted"}]}"#,
    ),
    (
        "behavior.yaml",
        "env: {eval: {environment: push, total_num_envs: 4}}\nrollout: {policy_type: scripted}\nhydra: {}\n",
    ),
    (
        "snippet.yaml",
        "cluster: {component_placement: {env: 0-1, rollout: 2-3}}\nenv: {eval: {total_num_envs: 4}}\n",
    ),
    (
        "list.yaml",
        "jobs: [{name: a, arena_env_args: {environment: reach}, policy_type: scripted}]",
    ),
    (
        "secret.json",
        r#"{"jobs": [{"name": "a", "arena_env_args": {"environment": "reach"}, "policy_type": "pi0_remote",
                      "policy_config_dict": {"remote_api_token": "s3cret"}, "num_episodes": 1}]}"#,
    ),
];

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn path(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

/// Returns what words, a line each, refer to in a folder `DIR`, or why it is refused.
#[test]
fn what_a_command_line_refers_to_is_read_or_refused() {
    let dir = folder();
    let folder = dir.path().display().to_string();
    cases::check("src/setup/cases.txt", |given| {
        let given = given.replace("DIR", &folder);
        let setup = match setup(&given.lines().collect::<Vec<_>>()) {
            Ok(setup) => setup,
            Err(refusal) => return refusal.replace(&folder, "DIR"),
        };
        let names: Vec<_> = setup.file.jobs.iter().map(|job| &job.name).collect();
        let mut said = vec![format!("jobs {names:?} in {}", setup.output.display())];
        said.extend(setup.components.iter().map(|placed| format!("{placed:?}")));
        let placement = setup.placement(Resources::Labels).unwrap();
        said.extend(placement.map(|placement| match setup.check(&placement) {
            Ok(()) => format!(
                "{:?} environments in {} ranks",
                setup.total_num_envs(),
                placement.world_size()
            ),
            Err(refusal) => refusal.to_string(),
        }));
        said.extend(setup.notes);
        said.join("\n")
    });
}

#[test]
fn every_snippet_of_the_documents_is_accepted_over_a_jobs_file() {
    let dir = folder();
    let jobs = path(&dir, "jobs.json");
    let snippets = std::fs::read_dir(rig::fixture("placement")).unwrap();
    let snippets = snippets.map(|snippet| snippet.unwrap().path().display().to_string());
    let placed = snippets.map(|snippet| {
        let setup = setup(&["--jobs", &jobs, "--config", &snippet]).unwrap();
        setup.placement(Resources::new(8, 2)).unwrap();
    });
    assert_eq!(placed.count(), 15);
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
fn what_a_plan_of_somebody_else_would_run_is_asked_about_until_its_user_has_begun_it() {
    let dir = tempfile::tempdir().unwrap();
    let job = samples::entry(
        json!({"arena_env_args": {"environment": "gym:X-v0", "python": "/tmp/evil"}}),
    );
    let server = json!({"command": ["curl", "http://evil/"], "health_port": 1});
    let file = json!({"jobs": [job], "model_server": server}).to_string();
    let [run, jobs, home] = ["run", "jobs.json", "home"].map(|name| path(&dir, name));
    std::fs::write(&jobs, file).unwrap();
    let file = JobFile::read(Path::new(&jobs)).unwrap();
    let plan = RunPlan::new(&samples::eval_args(&[]), file, 1, String::new());
    let uses = trust::uses(&plan.jobs, plan.model_server.as_ref());
    plan.settle(&RunFolder::new(Path::new(&run)), false)
        .unwrap();
    let variable = |name: &str| (name == "XDG_STATE_HOME").then(|| home.clone());
    let read = |words: &[&str]| read(words, &variable);
    let told = read(&["--resume", &run]).unwrap_err();
    for text in [
        "the model server `curl http://evil/`",
        "the environment `gym:X-v0` with {\"python\":\"/tmp/evil\"",
        "--trust-plan",
    ] {
        assert!(told.contains(text), "{told}");
    }
    assert!(read(&["--resume", &run, "--trust-plan"]).is_ok());
    let is_own = read(&["--resume", &run, "--jobs", &jobs]).is_ok();
    assert!(is_own, "the user names the jobs");
    trust::remember(&uses, &variable).unwrap();
    assert!(read(&["--resume", &run]).is_ok());
}
