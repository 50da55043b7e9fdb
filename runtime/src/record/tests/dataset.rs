//! Tests of the dataset layout, resumed files, damaged files and full disks.

use std::fs;
use std::path::Path;

use hdf5::types::VarLenUnicode;
use jobs::eval_args::ExportMode;
use rig::PYTHON;
use rig::need::{Need, need};

use crate::env::EnvIndex;
use crate::record::tests::{
    FAILURE, SUCCESS, begin, check_with, demo, demos, end, episode, finish, observation, plan,
    recorded, start, step_to, steps,
};
use crate::record::{self, EpisodeEnd, Finished, Recorder};

fn open(dir: &tempfile::TempDir) -> hdf5::File {
    hdf5::File::open(dir.path().join("dataset.hdf5")).unwrap()
}

fn text(group: &hdf5::Group, name: &str) -> String {
    let attribute = group.attr(name).unwrap();
    attribute
        .read_scalar::<VarLenUnicode>()
        .unwrap()
        .to_string()
}

fn number(group: &hdf5::Group, name: &str) -> i64 {
    group.attr(name).unwrap().read_scalar().unwrap()
}

#[test]
fn a_demo_has_the_names_shapes_and_attributes_of_isaac_lab() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(plan(dir.path(), true, false), |to| episode(to, 1, 7, 4));
    assert_eq!(demos(&recorded), ["demo_0"]);

    let file = open(&dir);
    assert_eq!(file.member_names().unwrap(), ["data"]);
    let data = file.group("data").unwrap();
    assert_eq!(number(&data, "total"), 4);
    assert_eq!(text(&data, "env_args"), r#"{"env_name":"Lift","type":2}"#);
    let demo = data.group("demo_0").unwrap();
    let numbers = ["num_samples", "seed", "episode", "env"].map(|name| number(&demo, name));
    assert_eq!(numbers, [4, 107, 7, 1]);
    assert!(demo.attr("success").unwrap().read_scalar::<bool>().unwrap());
    let values = |name: &str| {
        let dataset = demo.dataset(name).unwrap();
        (dataset.shape(), dataset.read_raw::<f32>().unwrap())
    };
    assert_eq!(
        values("actions"),
        (vec![4, 2], vec![1.0, -1.0, 2.0, -1.0, 3.0, -1.0, 4.0, -1.0])
    );
    assert_eq!(values("processed_actions"), (vec![4, 1], vec![0.25; 4]));
    let positions = [[0.0; 3], [1.0; 3], [2.0; 3], [3.0; 3]].concat();
    assert_eq!(values("obs/joint_position"), (vec![4, 3], positions));
    let states = [[1.5; 4], [2.5; 4], [3.5; 4], [4.5; 4]].concat();
    assert_eq!(
        values("states/articulation/robot/joint_position"),
        (vec![4, 4], states)
    );
    assert_eq!(
        values("initial_state/articulation/robot/joint_position"),
        (vec![1, 4], vec![0.5; 4])
    );
    assert_eq!(values("rewards"), (vec![4], vec![1.0, 2.0, 3.0, 4.0]));
    let dones = demo.dataset("dones").unwrap();
    assert_eq!(dones.read_raw::<u8>().unwrap(), [0, 0, 0, 1]);
    let success = demo.dataset("success").unwrap();
    assert_eq!(success.read_raw::<bool>().unwrap(), [true]);
}

#[test]
fn the_last_step_is_done_whoever_has_ended_the_episode() {
    let dir = tempfile::tempdir().unwrap();
    recorded(plan(dir.path(), true, false), |recorder| {
        begin(recorder, 0, 3, false);
        for t in 1..=3 {
            let step = step_to(observation(t, false));
            recorder.step(EnvIndex(0), &[0.0, 0.0], &step).unwrap();
        }
        let on_success = EpisodeEnd {
            terminated: false,
            ..SUCCESS
        };
        end(recorder, 0, 0, on_success);
    });
    let file = open(&dir);
    let dones = file.dataset("data/demo_0/dones").unwrap();
    assert_eq!(dones.read_raw::<u8>().unwrap(), [0, 0, 1]);
}

#[test]
fn pictures_are_kept_before_the_action_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(dir.path(), true, false);
    plan.dataset.as_mut().unwrap().cameras = true;
    recorded(plan, |recorder| episode(recorder, 0, 0, 3));
    let file = open(&dir);
    let wrist = file.dataset("data/demo_0/obs/wrist").unwrap();
    assert_eq!(wrist.shape(), [3, 32, 30, 3]);
    let bytes = wrist.read_raw::<u8>().unwrap();
    assert!(bytes.iter().step_by(32 * 30 * 3).eq(&[200, 201, 202]));
}

#[test]
fn a_resumed_run_goes_on_after_the_highest_demo() {
    let dir = tempfile::tempdir().unwrap();
    // More than are copied at once, and fewer.
    for numbers in [0..70, 70..82] {
        let found = recorded(plan(dir.path(), true, false), |recorder| {
            for number in numbers.clone() {
                episode(recorder, (number % 2) as usize, number, 2);
            }
        });
        let names: Vec<String> = numbers.map(|number| format!("demo_{number}")).collect();
        assert_eq!(demos(&found), names);
    }
    let file = open(&dir);
    let data = file.group("data").unwrap();
    assert_eq!((data.len(), number(&data, "total")), (82, 164));
    drop((data, file));
    check_with_h5py(&dir.path().join("dataset.hdf5"), 82);
}

#[test]
fn an_incomplete_demo_is_left_out_of_a_resumed_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.hdf5");
    let file = hdf5::File::create(&path).unwrap();
    file.create_group("data/demo_4").unwrap();
    file.close().unwrap();
    let recorded = recorded(plan(dir.path(), true, false), |to| episode(to, 0, 0, 2));
    assert_eq!(demos(&recorded), ["demo_5"]);
    assert_eq!(record::demos(&path).unwrap(), ["demo_5"]);
}

#[test]
fn a_demo_that_is_left_out_is_dropped_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.hdf5");
    recorded(plan(dir.path(), true, false), |recorder| {
        (0..4).for_each(|number| episode(recorder, 0, number, 3));
    });
    let mut again = plan(dir.path(), true, false);
    let earlier = &mut again.dataset.as_mut().unwrap().earlier;
    (earlier.next, earlier.left_out) = (3, ["demo_1", "demo_3"].map(str::to_owned).into());
    let recorded = recorded(again, |recorder| {
        assert_eq!(record::demos(&path).unwrap(), ["demo_0", "demo_2"]);
        episode(recorder, 0, 3, 5);
    });
    assert_eq!(demos(&recorded), ["demo_3"]);
    record::leave_out(&path, &["demo_0".to_owned()].into()).unwrap();
    assert_eq!(record::demos(&path).unwrap(), ["demo_2", "demo_3"]);
    let file = open(&dir);
    assert_eq!(file.member_names().unwrap(), ["data"]);
    let data = file.group("data").unwrap();
    assert_eq!(number(&data, "total"), 8);
    assert_eq!(text(&data, "env_args"), r#"{"env_name":"Lift","type":2}"#);
}

#[test]
fn a_file_that_cannot_be_read_is_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.hdf5");
    fs::write(&path, "not HDF5").unwrap();
    let (mut recorder, notes) = Recorder::start(plan(dir.path(), true, false)).unwrap();
    assert!(notes[0].contains("dataset.hdf5.damaged"), "{notes:?}");
    episode(&mut recorder, 0, 0, 2);
    assert_eq!(demos(&finish(recorder)), ["demo_0"]);
    assert_eq!(
        fs::read_to_string(dir.path().join("dataset.hdf5.damaged")).unwrap(),
        "not HDF5"
    );
}

#[test]
fn a_discarded_episode_is_no_demo_and_has_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(plan(dir.path(), true, false), |recorder| {
        begin(recorder, 0, 0, false);
        steps(recorder, 0, 3, false);
        recorder.forget(EnvIndex(0)).unwrap();
        episode(recorder, 0, 1, 2);
    });
    assert_eq!((recorded.len(), recorded[0].episode.episode), (1, 1));
    assert_eq!(demos(&recorded), ["demo_0"]);
}

#[test]
fn an_episode_without_a_step_is_a_demo_without_samples() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(plan(dir.path(), true, false), |recorder| {
        begin(recorder, 0, 0, false);
        end(recorder, 0, 0, SUCCESS);
    });
    assert_eq!(demos(&recorded), ["demo_0"]);
    check_with_h5py(&dir.path().join("dataset.hdf5"), 1);
}

#[test]
fn a_changed_state_costs_its_episode_only() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(plan(dir.path(), true, false), |recorder| {
        begin(recorder, 0, 0, false);
        let mut step = step_to(observation(1, false));
        step.observation.state.clear();
        for _ in 0..2 {
            recorder.step(EnvIndex(0), &[0.0, 0.0], &step).unwrap();
        }
        end(recorder, 0, 0, SUCCESS);
        episode(recorder, 0, 1, 2);
    });
    let reason = &recorded[0].errors[0];
    assert!(
        reason.ends_with("`obs/joint_position` has 1 rows, the episode has 2"),
        "{reason}"
    );
    assert_eq!(demo(&recorded[1]), Some("demo_0"));
}

#[test]
fn a_full_disk_costs_the_episode_and_nothing_before_it() {
    if !need(Need::Root) {
        return;
    }
    let disk = rig::disk::SmallDisk::mount("2m").expect("root may mount it");
    let mut recorder = start(plan(disk.path(), true, false));
    episode(&mut recorder, 0, 0, 2);
    let ballast = disk.path().join("ballast");
    wait(&mut recorder);
    fs::write(&ballast, vec![1; 1 << 21]).unwrap_err();
    episode(&mut recorder, 0, 1, 2);
    let reason = wait(&mut recorder).errors.remove(0);
    assert!(
        reason.contains("dataset.hdf5") && reason.contains("No space left on device"),
        "{reason}"
    );
    fs::remove_file(&ballast).unwrap();
    episode(&mut recorder, 0, 2, 2);
    assert_eq!(demos(&finish(recorder)), ["demo_1"]);
    check_with_h5py(&disk.path().join("dataset.hdf5"), 2);
}

/// Waits for the episode that is being written.
fn wait(recorder: &mut Recorder) -> Finished {
    let limit = std::time::Duration::from_secs(60);
    recorder.poll_within(limit).unwrap().remove(0)
}

/// Reads the whole file with h5py, on which the users' tools are based.
pub(super) fn check_with_h5py(path: &Path, demos: usize) {
    if need(Need::Python("h5py")) {
        check_with(PYTHON, "check_dataset.py", path, &[demos]);
    }
}

#[test]
fn failed_episodes_go_where_the_export_says() {
    let counts = |export| {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(dir.path(), true, false);
        plan.dataset.as_mut().unwrap().export = export;
        plan.dataset.as_mut().unwrap().earlier_failed.next = 5;
        let recorded = recorded(plan, |recorder| {
            episode(recorder, 0, 0, 2);
            begin(recorder, 0, 1, false);
            steps(recorder, 0, 3, false);
            end(recorder, 0, 0, FAILURE);
            episode(recorder, 0, 2, 2);
        });
        let named = recorded.iter().map(|recorded| {
            let dataset = recorded.episode.dataset.as_ref()?;
            Some(format!("{} {}", dataset.file, dataset.demo))
        });
        let named: Vec<String> = named.map(Option::unwrap_or_default).collect();
        let files = ["dataset.hdf5", "dataset_failed.hdf5"].map(|name| dir.path().join(name));
        for file in files.iter().filter(|file| file.exists()) {
            let of_file = format!("{} ", file.file_name().unwrap().to_str().unwrap());
            let own = named.iter().filter(|name| name.starts_with(&of_file));
            check_with_h5py(file, own.count());
        }
        (named.join(", "), files[1].exists())
    };
    for (export, names, has_failed) in [
        (
            ExportMode::All,
            "dataset.hdf5 demo_0, dataset.hdf5 demo_1, dataset.hdf5 demo_2",
            false,
        ),
        (
            ExportMode::Succeeded,
            "dataset.hdf5 demo_0, , dataset.hdf5 demo_1",
            false,
        ),
        (
            ExportMode::Separate,
            "dataset.hdf5 demo_0, dataset_failed.hdf5 demo_5, dataset.hdf5 demo_1",
            true,
        ),
    ] {
        assert_eq!(counts(export), (names.to_owned(), has_failed));
    }
}

#[test]
fn observations_may_have_groups() {
    let dir = tempfile::tempdir().unwrap();
    let nested = |t: u32| {
        let mut observation = observation(t, false);
        observation
            .state
            .insert("policy/eef/position".to_owned(), vec![t as f32; 3]);
        observation
    };
    recorded(plan(dir.path(), true, false), |recorder| {
        recorder.begin(EnvIndex(0), 0, 1, &nested(0)).unwrap();
        let mut step = step_to(nested(1));
        step.processed_action = vec![0.5, 0.5];
        recorder.step(EnvIndex(0), &[0.0, 0.0], &step).unwrap();
        end(recorder, 0, 0, SUCCESS);
    });
    check_with_h5py(&dir.path().join("dataset.hdf5"), 1);
    let demo = open(&dir).group("data/demo_0").unwrap();
    let position = demo.dataset("obs/policy/eef/position").unwrap();
    assert_eq!(position.shape(), [1, 3]);
    let processed = demo.dataset("processed_actions").unwrap();
    assert_eq!(processed.read_raw::<f32>().unwrap(), [0.5, 0.5]);
}
