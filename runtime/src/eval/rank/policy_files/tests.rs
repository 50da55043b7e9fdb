//! Hashes of checkpoints and other inputs.

use std::fs;
use std::process::Command;

use serde_json::json;

use jobs::inputs::InputFile;

use super::*;

/// Size of the test file: more than one read block.
const BLOB: usize = (3 << 20) + 5;

/// Creates a folder like a checkpoint, with a symbolic link and hidden files.
fn checkpoint() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    fs::create_dir_all(model.join("vlm")).unwrap();
    fs::create_dir(model.join(".cache")).unwrap();
    fs::write(dir.path().join("blob"), vec![7; BLOB]).unwrap();
    std::os::unix::fs::symlink(dir.path().join("blob"), model.join("model.safetensors")).unwrap();
    for name in [
        "config.json",
        "vlm/config.json",
        ".cache/x",
        ".gitattributes",
    ] {
        fs::write(model.join(name), name).unwrap();
    }
    dir
}

fn plan_of(model: &Path, replay: &Path) -> RunPlan {
    let entry = |name: &str, policy: &str, config: serde_json::Value| {
        json!({"name": name, "arena_env_args": {"environment": "reach"}, "policy_type": policy,
               "policy_config_dict": config, "num_episodes": 1})
    };
    let entries = json!({"jobs": [
        entry("a", "gr00t", json!({"model_path": model})),
        entry("b", "gr00t_closedloop", json!({"model_path": model})),
        entry("c", "replay_action", json!({"replay_file_path": replay})),
        entry("d", "scripted", json!({})),
    ]});
    RunPlan {
        jobs: jobs::file::parse(&entries).unwrap(),
        ..RunPlan::default()
    }
}

fn shell(folder: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

fn lines(found: Vec<Line>) -> Vec<PolicyFiles> {
    let files = |found: Line| match found {
        Line::PolicyFiles(files) => files,
        other => panic!("{other:?}"),
    };
    found.into_iter().map(files).collect()
}

#[test]
fn files_and_folders_have_the_sums_that_sha256sum_gives() {
    let dir = checkpoint();
    let model = dir.path().join("model");
    let plan = plan_of(&model, &dir.path().join("blob"));
    let found = lines(PolicyHashing::start(&plan, &[], dir.path().join("cache")).take(PATIENCE));
    let of_folder = "find -L . -type f -not -path '*/.*' -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum";
    let sums = [
        shell(&model, of_folder),
        shell(dir.path(), "sha256sum blob"),
    ];
    assert!(
        found.iter().map(|files| &files.sha256).eq(&sums),
        "{found:?}"
    );
    let about = found
        .iter()
        .map(|files| (files.policy_type.as_str(), files.bytes));
    let blob = BLOB as u64;
    assert!(about.eq([("gr00t", blob + 11 + 15), ("replay_action", blob)]));
}

#[test]
fn a_line_that_is_there_is_not_written_again() {
    let dir = checkpoint();
    let model = dir.path().join("model");
    let plan = plan_of(&model, &dir.path().join("blob"));
    let read = |before: &[Line]| {
        PolicyHashing::start(&plan, before, dir.path().join("cache")).take(PATIENCE)
    };
    let first = read(&[]);
    assert_eq!(read(&first).len(), 0);
    fs::write(model.join("config.json"), "other").unwrap();
    assert_eq!(read(&first).len(), 1);
}

#[test]
fn large_inputs_that_are_no_policy_have_sums_for_the_next_start() {
    let dir = checkpoint();
    let (blob, cache) = (dir.path().join("blob"), dir.path().join("cache"));
    let file = InputFile::at(&blob).unwrap();
    let plan = RunPlan {
        inputs: [(blob.display().to_string(), file.clone())].into(),
        ..RunPlan::default()
    };
    assert_eq!(
        PolicyHashing::start(&plan, &[], cache.clone()).take(PATIENCE),
        []
    );
    let sum = shell(dir.path(), "sha256sum blob");
    assert_eq!(SumCache::open(&cache).sum(&blob, &file), Some(&*sum));
}
