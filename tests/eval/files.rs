//! What a run leaves on the disk.

use std::path::Path;
use std::process::Command;

use crate::command::{Eval, binaries, job};

/// The Python of the project's own venv, in which `setup.sh test` put h5py.
fn python() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python")
}

fn h5py(script: &str, file: &Path) -> String {
    let output = Command::new(python()).arg("-c").arg(script).arg(file).output().expect("setup.sh test made the venv");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
         assert all(demo['obs/joint_position'].shape == (demo.attrs['num_samples'], 7) for demo in demos)\n\
         assert all(demo['initial_state/articulation/robot/joint_position'].shape[0] == 1 for demo in demos)\n\
         assert data.attrs['total'] == sum(demo.attrs['num_samples'] for demo in demos)\n\
         print(env['env_name'], env['type'], sorted(data), [bool(demo.attrs['success']) for demo in demos])",
        &eval.folder().dataset("push", 0, 1),
    );
    assert_eq!(read, "push 2 ['demo_0', 'demo_1', 'demo_2'] [True, True, True]");
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
        .map(|episode| format!("{}:{}:{}", episode.dataset.as_ref().unwrap().demo, episode.seed, episode.length))
        .collect();
    named.sort();
    assert_eq!(seeds, named.join(" "));
}

#[test]
fn each_environment_has_its_video_and_each_rank_its_dataset() {
    let eval = Eval::new(&[job("reach", 2, 2), job("push", 2, 1)]).nproc(2).with_video();
    eval.run().succeeds();
    let mut names: Vec<_> = ["reach", "push"]
        .iter()
        .flat_map(|name| std::fs::read_dir(eval.folder().job(name)).unwrap().flatten())
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
    assert!(eval.episodes().iter().all(|episode| episode.video.as_ref().unwrap().frames == episode.length + 1));
}

#[test]
fn videos_are_h264_in_mp4() {
    let eval = Eval::new(&[job("reach", 1, 1)]).nproc(1).with_video().words(&["--video-size", "64x96"]);
    eval.run().succeeds();
    let video = std::fs::read(eval.folder().job("reach").join("reach_video_rank0_gpu0_env0.mp4")).unwrap();
    assert_eq!(&video[4..8], b"ftyp");
    let has = |name: &[u8]| video.windows(4).any(|window| window == name);
    assert!(has(b"moov") && has(b"avc1") && has(b"mdat"));
    // Two cameras side by side: the width in the sample entry is twice that of one.
    let entry = video.windows(4).rposition(|window| window == b"avc1").unwrap();
    let number = |at: usize| u16::from_be_bytes([video[entry + at], video[entry + at + 1]]);
    assert_eq!((number(28), number(30)), (192, 64));
}

#[test]
fn nothing_is_recorded_that_was_not_asked_for() {
    let eval = Eval::new(&[job("reach", 1, 1)]).nproc(1).words(&["--no-dataset"]);
    eval.run().succeeds();
    assert!(!eval.folder().job("reach").exists());
    for file in ["plan.json", "report.json", "final_benchmark_report.json", "metrics.json", "episodes.jsonl"] {
        assert!(eval.folder().root().join(file).is_file(), "{file}");
    }
}

#[test]
fn the_rank_stands_beside_the_launcher() {
    assert!(binaries().join("rrun").is_file(), "cargo test --workspace builds both");
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
    let peaks: Vec<_> = eval.report().per_job.iter().map(|job| job.peak_rss_bytes).collect();
    // A renderer that is not given back is 20 MB a job.
    assert!(peaks[11] - peaks[3] < 60_000_000, "{peaks:?}");
}
