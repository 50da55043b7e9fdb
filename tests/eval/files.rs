//! Tests of the files that a run leaves on disk.

use std::path::Path;
use std::process::Command;

use crate::eval::command::{Eval, binaries, job};

/// Returns the Python of the project's venv, in which `setup.sh test` installed h5py.
fn python() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python")
}

fn h5py(script: &str, file: &Path) -> String {
    let output = Command::new(python())
        .arg("-c")
        .arg(script)
        .arg(file)
        .output()
        .expect("setup.sh test made the venv");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn datasets_are_in_robomimics_layout_and_h5py_reads_them() {
    let eval = Eval::new(&[job("push", 3, 2)]).nproc(1);
    eval.run().succeeds();
    let read = h5py(
        "import sys, h5py, json\n\
         data = h5py.File(sys.argv[1])['data']\n\
         env = json.loads(data.attrs['env_args'])\n\
         demos = [data[name] for name in data]\n\
         assert all(demo['actions'].shape == (demo.attrs['num_samples'], 7) for demo in demos)\n\
         assert all(abs(demo['processed_actions'][:]).max() <= 1 for demo in demos)\n\
         assert all((demo['processed_actions'][:] == demo['actions'][:].clip(-1, 1)).all() for demo in demos)\n\
         assert all(demo['obs/joint_position'].shape == (demo.attrs['num_samples'], 7) for demo in demos)\n\
         assert all(demo['initial_state/articulation/robot/joint_position'].shape[0] == 1 for demo in demos)\n\
         assert data.attrs['total'] == sum(demo.attrs['num_samples'] for demo in demos)\n\
         print(env['env_name'], env['type'], sorted(data), [bool(demo.attrs['success']) for demo in demos])",
        &eval.folder().dataset("push", 0, 1),
    );
    assert_eq!(
        read,
        "push 2 ['demo_0', 'demo_1', 'demo_2'] [True, True, True]"
    );
}

#[test]
fn every_journaled_episode_is_the_demonstration_that_it_names() {
    let eval = Eval::new(&[job("reach", 6, 3)]).nproc(1);
    eval.run().succeeds();
    let path = eval.folder().dataset("reach", 0, 1);
    let seeds = h5py(
        "import sys, h5py\n\
         data = h5py.File(sys.argv[1])['data']\n\
         print(*sorted(f\"{name}:{data[name].attrs['seed']}:{data[name].attrs['num_samples']}\" for name in data))",
        &path,
    );
    let mut named: Vec<_> = eval
        .episodes()
        .iter()
        .map(|episode| {
            format!(
                "{}:{}:{}",
                episode.dataset.as_ref().unwrap().demo,
                episode.seed,
                episode.length
            )
        })
        .collect();
    named.sort();
    assert_eq!(seeds, named.join(" "));
}

#[test]
fn each_environment_has_its_video_and_each_rank_its_dataset() {
    let eval = Eval::new(&[job("reach", 2, 2), job("push", 2, 1)])
        .nproc(2)
        .with_video();
    eval.run().succeeds();
    let mut names: Vec<_> = ["reach", "push"]
        .iter()
        .flat_map(|name| {
            std::fs::read_dir(eval.folder().job(name))
                .unwrap()
                .flatten()
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let expected = [
        "dataset_push_rank1.hdf5",
        "dataset_reach_rank0.hdf5",
        "push_video_rank1_gpu0_env0.mp4",
        "reach_video_rank0_gpu0_env0.mp4",
        "reach_video_rank0_gpu0_env1.mp4",
    ];
    assert_eq!(names, expected);
    let report = eval.report();
    assert_eq!(report.per_job[0].videos.len(), 2);
    assert!(
        eval.episodes()
            .iter()
            .all(|episode| episode.video.as_ref().unwrap().frames == episode.length + 1)
    );
}

fn names_in(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn episodes_and_workers_have_videos_of_their_own_where_asked_for() {
    let words = [
        "--no-dataset",
        "--video-per-episode",
        "--video-grid",
        "--video-cameras",
        "front",
    ];
    let eval = Eval::new(&[job("reach", 2, 2)])
        .nproc(1)
        .with_video()
        .words(&words);
    eval.run().succeeds();
    let expected = [
        "reach_video_rank0_gpu0_env0.mp4",
        "reach_video_rank0_gpu0_env0_episode0_success.mp4",
        "reach_video_rank0_gpu0_env1.mp4",
        "reach_video_rank0_gpu0_env1_episode1_success.mp4",
        "reach_video_rank0_gpu0_grid.mp4",
    ];
    assert_eq!(names_in(&eval.folder().job("reach")), expected);
    let named = eval
        .episodes()
        .iter()
        .filter_map(|episode| episode.episode_video.clone())
        .collect::<Vec<_>>();
    assert_eq!(named.len(), 2);
    assert!(
        named
            .iter()
            .all(|file| eval.folder().root().join(file).is_file()),
        "{named:?}"
    );
}

#[test]
fn a_camera_that_is_not_there_is_refused_with_those_that_are() {
    let eval = Eval::new(&[job("reach", 1, 1)])
        .nproc(1)
        .with_video()
        .words(&["--video-cameras", "back"]);
    eval.run()
        .fails_with(1)
        .stderr_has("`back`")
        .stderr_has("front")
        .stderr_has("wrist");
}

#[test]
fn failed_episodes_go_to_a_file_of_their_own_where_asked_for() {
    let mut lazy = job("reach", 2, 1);
    lazy["policy_type"] = serde_json::json!("zero_action");
    lazy["arena_env_args"]["max_episode_steps"] = serde_json::json!(5);
    let eval = Eval::new(&[lazy])
        .nproc(1)
        .words(&["--export-mode", "separate"]);
    eval.run().succeeds();
    let failed = eval.folder().job("reach").join("dataset_reach_failed.hdf5");
    assert_eq!(
        h5py(
            "import sys, h5py\nprint(*sorted(h5py.File(sys.argv[1])['data']))",
            &failed
        ),
        "demo_0 demo_1"
    );
    let said: Vec<_> = eval
        .episodes()
        .iter()
        .map(|episode| episode.dataset.clone().unwrap().file)
        .collect();
    assert_eq!(said, ["reach/dataset_reach_failed.hdf5"; 2]);
}

#[test]
fn lerobot_datasets_count_their_episodes_and_hold_pictures() {
    let eval = Eval::new(&[job("reach", 2, 2)])
        .nproc(1)
        .words(&["--record-format", "lerobot"]);
    eval.run().succeeds();
    let dataset = eval.folder().job("reach").join("dataset_reach");
    let info: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dataset.join("meta/info.json")).unwrap()).unwrap();
    assert_eq!(
        (&info["codebase_version"], &info["total_episodes"]),
        (&"v3.0".into(), &2.into())
    );
    assert!(
        info["features"]["observation.images.front"].is_object(),
        "{info}"
    );
    assert!(dataset.join("meta/modality.json").is_file());
}

#[test]
fn videos_are_h264_in_mp4() {
    let eval = Eval::new(&[job("reach", 1, 1)])
        .nproc(1)
        .with_video()
        .words(&["--video-size", "64x96"]);
    eval.run().succeeds();
    let video = std::fs::read(
        eval.folder()
            .job("reach")
            .join("reach_video_rank0_gpu0_env0.mp4"),
    )
    .unwrap();
    assert_eq!(&video[4..8], b"ftyp");
    let has = |name: &[u8]| video.windows(4).any(|window| window == name);
    assert!(has(b"moov") && has(b"avc1") && has(b"mdat"));
    // Two cameras side by side: the width in the sample entry is twice that of one.
    let entry = video
        .windows(4)
        .rposition(|window| window == b"avc1")
        .unwrap();
    let number = |at: usize| u16::from_be_bytes([video[entry + at], video[entry + at + 1]]);
    assert_eq!((number(28), number(30)), (192, 64));
}

#[test]
fn nothing_is_recorded_that_was_not_asked_for() {
    let eval = Eval::new(&[job("reach", 1, 1)])
        .nproc(1)
        .words(&["--no-dataset"]);
    eval.run().succeeds();
    assert!(!eval.folder().job("reach").exists());
    for file in [
        "plan.json",
        "report.json",
        "final_benchmark_report.json",
        "report.html",
        "metrics.json",
        "episodes.jsonl",
    ] {
        assert!(eval.folder().root().join(file).is_file(), "{file}");
    }
}

#[test]
fn the_rank_stands_beside_the_launcher() {
    assert!(
        binaries().join("rrun").is_file(),
        "cargo test --workspace builds both"
    );
}

#[test]
fn a_job_leaves_no_memory_behind() {
    let jobs: Vec<_> = (0..12)
        .map(|index| {
            let mut entry = job("reach", 1, 1);
            entry["name"] = format!("reach{index}").into();
            entry
        })
        .collect();
    let eval = Eval::new(&jobs).nproc(1).with_video();
    eval.run().succeeds();
    let peaks: Vec<_> = eval
        .report()
        .per_job
        .iter()
        .map(|job| job.peak_rss_bytes)
        .collect();
    // A leaked renderer would cost 20 MB per job.
    assert!(peaks[11] - peaks[3] < 60_000_000, "{peaks:?}");
}
