//! Tests of LeRobot folders: contents, resuming, a kill between two files, and loading with lerobot
//! itself.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::env::EnvIndex;
use crate::record::tests::{SUCCESS, begin, demos, episode, plan, steps};
use crate::record::{EpisodeEnd, Format, RecordPlan, Recorder};

const FAILURE: EpisodeEnd = EpisodeEnd {
    success: false,
    terminated: false,
    truncated: true,
};

fn folder(dir: &Path) -> RecordPlan {
    let mut plan = plan(dir, true, false);
    let dataset = plan.dataset.as_mut().unwrap();
    (dataset.format, dataset.cameras) = (Format::LeRobot, true);
    dataset.path = dir.join("lerobot");
    plan
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Loads the folder with lerobot if `RRUN_LEROBOT_PYTHON` names an interpreter that has the
/// package.
fn check_with_lerobot(root: &Path, episodes: usize, frames: usize) {
    let python = std::env::var_os("RRUN_LEROBOT_PYTHON").filter(has_lerobot);
    let Some(python) = python else {
        eprintln!(
            "lerobot did not load the dataset: RRUN_LEROBOT_PYTHON names no interpreter that has the package"
        );
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|up| up.join("tests/fixtures/check_lerobot.py"));
    let script = script.into_iter().find(|script| script.exists()).unwrap();
    let words = [episodes, frames].map(|count| count.to_string());
    let output = Command::new(python)
        .arg(script)
        .arg(root)
        .args(words)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn has_lerobot(python: &OsString) -> bool {
    Command::new(python)
        .args(["-c", "import lerobot.datasets"])
        .output()
        .is_ok_and(|output| output.status.success())
}

#[test]
fn a_folder_counts_its_episodes_and_lerobot_loads_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::start(folder(dir.path())).unwrap();
    episode(&mut recorder, 0, 7, 4);
    begin(&mut recorder, 1, 8, true);
    steps(&mut recorder, 1, 3, true);
    recorder.end(EnvIndex(1), FAILURE).unwrap();
    let recorded = recorder.finish().unwrap();
    assert_eq!(demos(&recorded), ["episode_0", "episode_1"]);
    let root = dir.path().join("lerobot");
    assert_eq!(recorded[0].dataset.as_deref(), Some(root.as_path()));

    let info = read(&root.join("meta/info.json"));
    let counts = ["total_episodes", "total_frames", "total_tasks", "fps"]
        .map(|name| info[name].as_u64().unwrap());
    assert_eq!(
        (counts, &info["splits"]["train"]),
        ([2, 7, 1, 10], &json!("0:2"))
    );
    assert_eq!(info["features"]["observation.state"]["shape"], json!([3]));
    assert_eq!(info["features"]["action"]["names"], json!(["x", "grip"]));
    assert_eq!(
        info["features"]["observation.images.wrist"]["shape"],
        json!([32, 30, 3])
    );
    let modality = read(&root.join("meta/modality.json"));
    assert_eq!(
        modality["state"]["joint_position"],
        json!({"start": 0, "end": 3})
    );
    assert_eq!(
        modality["video"]["front"]["original_key"],
        "observation.images.front"
    );
    let stats = read(&root.join("meta/stats.json"));
    assert_eq!(stats["action"]["max"], json!([4.0, -1.0]));
    assert_eq!(
        stats["observation.images.front"]["min"],
        json!([[[40.0 / 255.0]], [[40.0 / 255.0]], [[40.0 / 255.0]]])
    );
    let told = fs::read_to_string(root.join("meta/rrun_episodes.jsonl")).unwrap();
    let told: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&told[0]["seed"], &told[1]["success"]),
        (&json!(107), &json!(false))
    );
    check_with_lerobot(&root, 2, 7);
}

#[test]
fn a_camera_that_a_video_cannot_show_as_it_is_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = folder(dir.path());
    (plan.env.cameras[1].height, plan.env.cameras[1].width) = (33, 31);
    let reason = Recorder::start(plan).err().unwrap().to_string();
    assert!(
        reason.starts_with(
            "camera `wrist` has 33 rows and 31 columns: the videos of a LeRobot dataset"
        ),
        "{reason}"
    );
    assert!(!dir.path().join("lerobot").exists());
}

#[test]
fn a_resumed_folder_goes_on_and_what_a_kill_left_is_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("lerobot");
    let mut recorder = Recorder::start(folder(dir.path())).unwrap();
    episode(&mut recorder, 0, 0, 3);
    recorder.finish().unwrap();
    // The state after a process died before it counted the second episode.
    let left = root.join("data/chunk-000/file-001.parquet");
    fs::copy(root.join("data/chunk-000/file-000.parquet"), &left).unwrap();
    let mut recorder = Recorder::start(folder(dir.path())).unwrap();
    assert_eq!(recorder.warnings(), [""; 0]);
    assert!(!left.exists());
    episode(&mut recorder, 0, 1, 5);
    assert_eq!(demos(&recorder.finish().unwrap()), ["episode_1"]);
    assert_eq!(
        read(&root.join("meta/stats.json"))["index"]["count"],
        json!([8])
    );
    check_with_lerobot(&root, 2, 8);
}

#[test]
fn an_episode_with_other_features_is_refused_and_the_next_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::start(folder(dir.path())).unwrap();
    episode(&mut recorder, 0, 0, 2);
    begin(&mut recorder, 0, 1, false);
    steps(&mut recorder, 0, 2, false);
    recorder.end(EnvIndex(0), SUCCESS).unwrap();
    episode(&mut recorder, 0, 2, 2);
    let recorded = recorder.finish().unwrap();
    let reason = recorded[1].error.as_deref().unwrap();
    assert!(
        reason.ends_with(
            "`observation.images.front` is missing in the episode and [32,32,3] in the dataset"
        ),
        "{reason}"
    );
    assert_eq!(demos(&recorded), ["episode_0", "episode_1"]);
}

#[test]
fn a_folder_that_cannot_be_read_is_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let meta = dir.path().join("lerobot/meta");
    fs::create_dir_all(&meta).unwrap();
    fs::write(meta.join("info.json"), "{").unwrap();
    let mut recorder = Recorder::start(folder(dir.path())).unwrap();
    assert!(
        recorder.warnings()[0].contains("lerobot.damaged1"),
        "{:?}",
        recorder.warnings()
    );
    episode(&mut recorder, 0, 0, 2);
    assert_eq!(demos(&recorder.finish().unwrap()), ["episode_0"]);
    assert_eq!(
        fs::read_to_string(dir.path().join("lerobot.damaged1/meta/info.json")).unwrap(),
        "{"
    );
}
