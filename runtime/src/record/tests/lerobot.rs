//! Tests of LeRobot folders: contents, resuming, a kill between two files, and loading with lerobot
//! itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use jobs::layout::RecordFormat;
use serde_json::{Value, json};

use crate::record::tests::{
    FAILURE, SUCCESS, begin, check_with, demos, end, episode, finish, plan, recorded, steps,
};
use crate::record::{self, RecordPlan, Recorder};

fn folder(dir: &Path) -> RecordPlan {
    let mut plan = plan(dir, true, false);
    let dataset = plan.dataset.as_mut().unwrap();
    (dataset.format, dataset.cameras) = (RecordFormat::Lerobot, true);
    dataset.path = dir.join("lerobot");
    plan
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Returns what is written of the episodes.
fn lines(root: &Path) -> Vec<Value> {
    let text = fs::read_to_string(root.join("meta/rrun_episodes.jsonl")).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.map(Result::unwrap).collect()
}

/// Loads the folder with lerobot if `RRUN_LEROBOT_PYTHON` names an interpreter that has the
/// package.
fn check_with_lerobot(root: &Path, episodes: usize, frames: usize) {
    match std::env::var_os("RRUN_LEROBOT_PYTHON").filter(has_lerobot) {
        Some(python) => check_with(python, "check_lerobot.py", root, &[episodes, frames]),
        None => eprintln!(
            "lerobot did not load the dataset: RRUN_LEROBOT_PYTHON names no interpreter that has the package"
        ),
    }
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
    let recorded = recorded(folder(dir.path()), |recorder| {
        episode(recorder, 0, 7, 4);
        begin(recorder, 1, 8, true);
        steps(recorder, 1, 3, true);
        end(recorder, 1, 0, FAILURE);
    });
    assert_eq!(demos(&recorded), ["episode_0", "episode_1"]);
    let root = dir.path().join("lerobot");
    let dataset = recorded[0].episode.dataset.as_ref().unwrap();
    assert_eq!(dataset.file, "lerobot");

    let info = read(&root.join("meta/info.json"));
    let counts = ["total_episodes", "total_frames", "total_tasks", "fps"]
        .map(|name| info[name].as_u64().unwrap());
    assert_eq!(
        (counts, &info["splits"]["train"]),
        ([2, 7, 1, 10], &json!("0:2"))
    );
    assert_eq!(info["features"]["observation.state"]["shape"], json!([3]));
    assert_eq!(info["features"]["action"]["names"], json!(["x", "grip"]));
    let wrist = &info["features"]["observation.images.wrist"];
    assert_eq!(wrist["shape"], json!([32, 30, 3]));
    let modality = read(&root.join("meta/modality.json"));
    let position = json!({"start": 0, "end": 3});
    assert_eq!(modality["state"]["joint_position"], position);
    let front = &modality["video"]["front"];
    assert_eq!(front["original_key"], "observation.images.front");
    let stats = read(&root.join("meta/stats.json"));
    assert_eq!(stats["action"]["max"], json!([4.0, -1.0]));
    let darkest = [[[40.0 / 255.0]]; 3];
    assert_eq!(stats["observation.images.front"]["min"], json!(darkest));
    let told = lines(&root);
    assert_eq!(told[0]["seed"], 107);
    assert_eq!(told[1]["success"], false);
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

/// Returns the contents of all files of a folder, by path; files that are being written do not
/// count.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|ending| ending == "tmp") => {}
                false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    found
}

fn put(files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in files {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Checks that a folder has these episodes, by their numbers in the job, and that all files of
/// `meta` are about them.
fn check_episodes(root: &Path, wanted: &[u64]) {
    let lines = lines(root);
    let numbers = |name: &str| -> Vec<u64> {
        let number = |line: &Value| line[name].as_u64().unwrap();
        lines.iter().map(number).collect()
    };
    assert_eq!(numbers("episode"), wanted);
    assert_eq!(
        numbers("episode_index"),
        Vec::from_iter(0..wanted.len() as u64)
    );
    let frames: u64 = numbers("length").iter().sum();
    let info = read(&root.join("meta/info.json"));
    let of_info = ["total_episodes", "total_frames"].map(|name| info[name].as_u64().unwrap());
    assert_eq!(of_info, [wanted.len() as u64, frames]);
    let stats = read(&root.join("meta/stats.json"));
    assert_eq!(stats["index"]["count"], json!([frames]));
    assert_eq!(stats["index"]["max"], json!([frames as f64 - 1.0]));
    for folder in ["data", "meta/episodes", "videos/observation.images.front"] {
        let files = contents(&root.join(folder));
        assert_eq!(files.len(), wanted.len(), "{folder}: {:?}", files.keys());
    }
}

/// The order in which the files of an episode are moved into place.
const ORDER: [&str; 8] = [
    "videos",
    "data",
    "meta/episodes",
    "meta/tasks.parquet",
    "meta/modality.json",
    "meta/rrun_episodes.jsonl",
    "meta/stats.json",
    "meta/info.json",
];

/// Returns these files in that order.
fn order(root: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<PathBuf> {
    let at = |path: &PathBuf| {
        let path = path.strip_prefix(root).unwrap();
        ORDER
            .iter()
            .position(|first| path.starts_with(first))
            .unwrap()
    };
    let mut paths: Vec<_> = files.keys().cloned().collect();
    paths.sort_by_key(at);
    paths
}

#[test]
fn a_folder_is_whole_after_a_kill_at_each_of_its_files_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("lerobot");
    let record = |number: u64, steps: u32| {
        recorded(folder(dir.path()), |recorder| {
            episode(recorder, 0, number, steps)
        });
    };
    let mut before = BTreeMap::new();
    for (number, steps) in [(0, 3), (1, 4), (2, 5)] {
        record(number, steps);
        let after = contents(&root);
        let mut changed = after.clone();
        changed.retain(|path, bytes| before.get(path) != Some(bytes));
        let written = order(&root, &changed);
        assert!(written.last().unwrap().ends_with("info.json"));
        let counted: Vec<u64> = (0..number).collect();
        // As many of them as a kill leaves, in their order; then each of them alone, and all but
        // one: a system that crashes may keep any of them. Without the last, none of them counts.
        let info = written.len() - 1;
        let cuts = (0..=info).map(|end| (0..end).collect::<Vec<_>>());
        let alone = (0..info).map(|at| vec![at]);
        let but_one = (0..info).map(|at| (0..info).filter(|other| *other != at).collect());
        for kept in cuts.chain(alone).chain(but_one) {
            fs::remove_dir_all(&root).unwrap();
            put(&before);
            let part = kept.iter().map(|at| written[*at].clone());
            put(&part
                .map(|path| (path.clone(), changed[&path].clone()))
                .collect());
            // The next start runs the episode again, and another one after it.
            record(number, steps);
            check_episodes(&root, &[counted.as_slice(), &[number]].concat());
            record(9, 2);
            check_episodes(&root, &[counted.as_slice(), &[number, 9]].concat());
        }
        fs::remove_dir_all(&root).unwrap();
        put(&after);
        before = after;
    }
    check_with_lerobot(&root, 3, 12);
}

#[test]
fn a_folder_that_is_whole_is_opened_without_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("lerobot");
    recorded(folder(dir.path()), |recorder| {
        (0..3).for_each(|number| episode(recorder, 0, number, 3));
    });
    let files = || {
        let meta = fs::read_dir(root.join("meta")).unwrap();
        let inode = |entry: io::Result<fs::DirEntry>| entry.unwrap().metadata().unwrap().ino();
        meta.map(inode).collect::<BTreeSet<_>>()
    };
    let before = files();
    recorded(folder(dir.path()), |_| {});
    assert_eq!(
        files(),
        before,
        "a file that is written again is another one"
    );
}

#[test]
fn a_torn_line_of_an_episode_that_does_not_count_is_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("lerobot");
    recorded(folder(dir.path()), |recorder| episode(recorder, 0, 0, 3));
    let list = root.join("meta/rrun_episodes.jsonl");
    let text = fs::read_to_string(&list).unwrap() + "{\"episode_index\":1,\"epi";
    fs::write(&list, text).unwrap();
    recorded(folder(dir.path()), |recorder| episode(recorder, 0, 1, 2));
    check_episodes(&root, &[0, 1]);
}

#[test]
fn the_last_episodes_that_are_left_out_are_dropped_and_their_places_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("lerobot");
    recorded(folder(dir.path()), |recorder| {
        (0..4).for_each(|number| episode(recorder, 0, number, 3));
    });
    let left_out = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut plan = folder(dir.path());
    plan.dataset.as_mut().unwrap().earlier.left_out = left_out(&["episode_2", "episode_3"]);
    let found = recorded(plan, |recorder| {
        check_episodes(&root, &[0, 1]);
        episode(recorder, 0, 3, 5);
    });
    assert_eq!(demos(&found), ["episode_2"]);
    check_episodes(&root, &[0, 1, 3]);
    check_with_lerobot(&root, 3, 11);
    // One that others follow keeps its place.
    record::leave_out(&root, &left_out(&["episode_0"])).unwrap();
    check_episodes(&root, &[0, 1, 3]);
    record::leave_out(&root, &left_out(&["episode_0", "episode_1", "episode_2"])).unwrap();
    assert_eq!(record::demos(&root).unwrap(), [""; 0]);
    assert_eq!(contents(&root.join("data")), BTreeMap::new());
    recorded(folder(dir.path()), |recorder| episode(recorder, 0, 5, 2));
    check_episodes(&root, &[5]);
}

#[test]
fn an_episode_with_other_features_is_refused_and_the_next_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(folder(dir.path()), |recorder| {
        episode(recorder, 0, 0, 2);
        begin(recorder, 0, 1, false);
        steps(recorder, 0, 2, false);
        end(recorder, 0, 0, SUCCESS);
        episode(recorder, 0, 2, 2);
    });
    let reason = &recorded[1].errors[0];
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
    let (mut recorder, notes) = Recorder::start(folder(dir.path())).unwrap();
    assert!(notes[0].contains("lerobot.damaged"), "{notes:?}");
    episode(&mut recorder, 0, 0, 2);
    assert_eq!(demos(&finish(recorder)), ["episode_0"]);
    assert_eq!(
        fs::read_to_string(dir.path().join("lerobot.damaged/meta/info.json")).unwrap(),
        "{"
    );
}
