//! Tests of the files that a run leaves on disk, and of what it prints.

use std::path::Path;

use serde_json::json;

use crate::eval::command::{Eval, job};
use crate::eval::given::{merged, named, printed};

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string());
    let mut names: Vec<_> = names.collect::<Result<_, _>>().unwrap();
    names.sort();
    names
}

#[test]
fn datasets_are_in_robomimics_layout_and_h5py_reads_each_demonstration_that_the_journal_names() {
    let eval = Eval::new(&[job("push", 6, 3)]).nproc(1).finished();
    let read = printed(
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
         assert all(demo.attrs['success'] for demo in demos)\n\
         print(env['env_name'], env['type'], *sorted(f\"{name}:{data[name].attrs['seed']}:{data[name].attrs['num_samples']}\" for name in data))",
        &[&eval.folder().dataset("push", 0, 1)],
    );
    let named = eval.episodes().into_iter().map(|episode| {
        let demo = episode.dataset.unwrap().demo;
        format!("{demo}:{}:{}", episode.seed, episode.length)
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    assert_eq!(read, format!("push 2 {}", named.join(" ")));
}

#[test]
fn each_environment_has_its_video_and_each_rank_its_dataset() {
    let eval = Eval::new(&[job("reach", 2, 2), job("push", 2, 1)])
        .nproc(2)
        .with_video()
        .finished();
    let folders = ["push", "reach"].map(|name| names_in(&eval.folder().job(name)));
    let expected = [
        "dataset_push_rank1.hdf5",
        "push_video_rank1_gpu0_env0.mp4",
        "dataset_reach_rank0.hdf5",
        "reach_video_rank0_gpu0_env0.mp4",
        "reach_video_rank0_gpu0_env1.mp4",
    ];
    assert_eq!(folders.concat(), expected);
    assert_eq!(eval.report().per_job[0].videos.len(), 2);
    assert!(
        eval.episodes()
            .iter()
            .all(|episode| episode.video.as_ref().unwrap().frames == episode.length + 1)
    );
}

#[test]
fn episodes_and_workers_have_videos_of_their_own_in_h264_where_asked_for() {
    let films = json!({"per_episode": true, "grid": true, "cameras": ["front"],
                       "use_high_res_cameras": false});
    let job = merged(job("reach", 2, 2), json!({"video_cfg": films}));
    let eval = Eval::new(&[job]).nproc(1).with_video();
    let eval = eval.words(&["--export-mode=none"]).finished();
    let folder = eval.folder().job("reach");
    let expected = [
        "reach_video_rank0_gpu0_env0.mp4",
        "reach_video_rank0_gpu0_env0_episode0_success.mp4",
        "reach_video_rank0_gpu0_env1.mp4",
        "reach_video_rank0_gpu0_env1_episode1_success.mp4",
        "reach_video_rank0_gpu0_grid.mp4",
    ];
    assert_eq!(names_in(&folder), expected);
    let episodes = eval.episodes().into_iter();
    let files: Vec<_> = episodes
        .filter_map(|episode| episode.episode_video)
        .collect();
    assert_eq!(files.len(), 2);
    assert!(
        files
            .iter()
            .all(|file| eval.folder().root().join(file).is_file())
    );

    let video = std::fs::read(folder.join(expected[0])).unwrap();
    assert_eq!(&video[4..8], b"ftyp");
    let has = |name: &[u8]| video.windows(4).any(|window| window == name);
    assert!(has(b"moov") && has(b"mdat"));
    let entry = video.windows(4).rposition(|window| window == b"avc1");
    let entry = entry.expect("it is H.264");
    let number = |at: usize| u16::from_be_bytes([video[entry + at], video[entry + at + 1]]);
    assert_eq!((number(28), number(30)), (128, 128));
}

#[test]
fn failed_episodes_go_to_a_file_of_their_own_where_asked_for() {
    let mut lazy = merged(job("reach", 2, 1), json!({"policy_type": "zero_action"}));
    lazy["arena_env_args"]["max_episode_steps"] = json!(5);
    let eval = Eval::new(&[lazy]).nproc(1);
    let eval = eval.words(&["--export-mode", "separate"]).finished();
    let failed = eval.folder().job("reach").join("dataset_reach_failed.hdf5");
    let script = "import sys, h5py\nprint(*sorted(h5py.File(sys.argv[1])['data']))";
    assert_eq!(printed(script, &[&failed]), "demo_0 demo_1");
    let episodes = eval.episodes().into_iter();
    let files: Vec<_> = episodes
        .map(|episode| episode.dataset.unwrap().file)
        .collect();
    assert_eq!(files, ["reach/dataset_reach_failed.hdf5"; 2]);
}

#[test]
fn nothing_is_recorded_or_printed_that_was_not_asked_for() {
    let eval = Eval::new(&[job("reach", 1, 1)])
        .nproc(1)
        .launcher_words(&["--quiet"])
        .words(&["--export-mode=none"]);
    eval.run()
        .succeeds()
        .stdout_has("METRICS SUMMARY")
        .stdout_has("1 of 1 episode")
        .stdout_has("report: ")
        .stdout_has("page:   ")
        .stdout_lacks("pending");
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
fn the_opening_table_of_a_resumed_run_has_what_is_done() {
    let begun = Eval::new(&[job("reach", 1, 1), job("push", 1, 1)]).nproc(1);
    begun.run().succeeds().stdout_has("| reach    | pending | ");
    let eval = begun.jobs(&[job("reach", 1, 1), job("push", 2, 1)]);
    eval.words(&["--accept-changed-jobs"])
        .run()
        .succeeds()
        .stdout_has("| reach    | completed, 1 done | ")
        .stdout_has("| push     | pending, 1 done   | ");
}

#[test]
fn a_job_leaves_no_memory_behind() {
    let jobs: Vec<_> = (0..12)
        .map(|index| named(&format!("reach{index}"), 1, job("reach", 1, 1)))
        .collect();
    let eval = Eval::new(&jobs).nproc(1).with_video().finished();
    let report = eval.report();
    let peaks: Vec<_> = report
        .per_job
        .iter()
        .map(|job| job.costs.peak_rss_bytes)
        .collect();
    // A leaked renderer would cost 20 MB per job.
    assert!(peaks[11] - peaks[3] < 60_000_000, "{peaks:?}");
}
