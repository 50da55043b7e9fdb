//! Hashes of checkpoints, and the warning about other files.

use std::process::Command;

use serde_json::json;

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

fn jobs_of(model: &Path, replay: &Path) -> Vec<Job> {
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
    jobs::file::parse(&entries).unwrap()
}

fn shell(folder: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn lines(found: Vec<HashedFiles>) -> Vec<PolicyFiles> {
    let files = |found: HashedFiles| match found.line {
        Line::PolicyFiles(files) => files,
        other => panic!("{other:?}"),
    };
    found.into_iter().map(files).collect()
}

#[test]
fn files_and_folders_have_the_sums_that_sha256sum_gives() {
    let dir = checkpoint();
    let model = dir.path().join("model");
    let jobs = jobs_of(&model, &dir.path().join("blob"));
    let found = lines(PolicyHashing::start(&jobs, &[], dir.path().join("cache")).finish());
    let of_folder = "find -L . -type f -not -path '*/.*' -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum";
    let wanted = [
        shell(&model, of_folder),
        shell(dir.path(), "sha256sum blob"),
    ];
    assert_eq!(
        found
            .iter()
            .map(|files| files.sha256.clone())
            .collect::<Vec<_>>(),
        wanted
    );
    let about: Vec<_> = found
        .iter()
        .map(|files| (files.policy_type.as_str(), files.bytes))
        .collect();
    let blob = BLOB as u64;
    assert_eq!(about, [("gr00t", blob + 11 + 15), ("replay_action", blob)]);
}

#[test]
fn a_line_that_is_there_is_not_written_again_and_other_files_are_said() {
    let dir = checkpoint();
    let model = dir.path().join("model");
    let jobs = jobs_of(&model, &dir.path().join("blob"));
    let read =
        |before: &[Line]| PolicyHashing::start(&jobs, before, dir.path().join("cache")).finish();
    let first: Vec<Line> = read(&[]).into_iter().map(|found| found.line).collect();
    assert_eq!(read(&first).len(), 0);
    fs::write(model.join("config.json"), "other").unwrap();
    let found = read(&first);
    assert_eq!(found.len(), 1);
    let warning = found[0].warning.as_deref().unwrap();
    assert!(
        warning.contains("model` has different files than before"),
        "{warning}"
    );
}

#[test]
fn what_was_read_before_is_read_again_only_when_it_has_changed() {
    let dir = checkpoint();
    let (blob, path) = (dir.path().join("blob"), dir.path().join("cache"));
    let go_on = AtomicBool::new(false);
    let first = HashCache::open(&path).file(&blob, &go_on).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(&first.sha256, "remembered")).unwrap();
    assert_eq!(
        HashCache::open(&path).file(&blob, &go_on).unwrap().sha256,
        "remembered"
    );
    fs::write(&blob, "other").unwrap();
    assert_ne!(
        HashCache::open(&path).file(&blob, &go_on).unwrap().sha256,
        "remembered"
    );
    fs::write(&path, "no cache").unwrap();
    assert_eq!(HashCache::open(&path).file(&blob, &go_on).unwrap().bytes, 5);
}

#[test]
fn a_rank_that_ends_ends_the_reading() {
    let stop = AtomicBool::new(true);
    assert_eq!(
        hash(Path::new("/dev/zero"), &stop).unwrap_err().to_string(),
        "nobody waits for it any more"
    );
}
