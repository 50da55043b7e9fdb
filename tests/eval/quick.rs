//! Tests of `--quick`.

use jobs::layout::RunFolder;
use serde_json::json;

use crate::eval::command::{Eval, job};

/// Returns the folder of the quick runs of an evaluation.
fn quick_folder(eval: &Eval) -> RunFolder {
    let root = eval.folder().root().to_owned();
    let name = root.file_name().unwrap().to_string_lossy().into_owned();
    RunFolder::new(&root.with_file_name(name + "_quick"))
}

/// Returns job, number and seed of the episodes of a run, and the end of its standard output.
fn ran(folder: &RunFolder) -> Vec<(String, u64, u64)> {
    let text = std::fs::read_to_string(folder.episodes()).unwrap();
    let lines = text.lines().map(|line| {
        let episode: jobs::episode::Episode = serde_json::from_str(line).unwrap();
        (episode.job, episode.episode, episode.seed)
    });
    let mut all: Vec<_> = lines.collect();
    all.sort();
    all
}

#[test]
fn a_quick_run_is_the_first_episode_of_each_job_and_is_replaced_by_the_next() {
    let jobs = [job("reach", 6, 4), job("push", 3, 2)];
    let whole = Eval::new(&jobs).nproc(2).with_video().finished();
    let first: Vec<_> = ran(&whole.folder())
        .into_iter()
        .filter(|(_, number, _)| *number == 0)
        .collect();

    let quick = whole.words(&["--quick"]);
    let folder = quick_folder(&quick);
    for _ in 0..2 {
        quick
            .run()
            .succeeds()
            .stderr_has("everything runs: the quick run took ")
            .stderr_has("the whole run: rrun --nproc-per-node 2 eval --jobs ");
        assert_eq!(ran(&folder), first);
        let left = folder.root().join("reach");
        let files = left.read_dir().map_or(0, Iterator::count);
        assert_eq!(files, 0, "neither videos nor datasets");
        std::fs::write(folder.root().join("of_the_last_run"), "").unwrap();
    }
    quick.run().succeeds();
    assert!(!folder.root().join("of_the_last_run").exists());
    assert_eq!(ran(&quick.folder()).len(), 9, "the whole run is untouched");
}

#[test]
fn a_quick_run_fails_if_a_job_does() {
    let mut broken = job("reach", 6, 4);
    // Only a rank looks for the dataset, which an earlier job may record.
    broken["policy_type"] = json!("replay_action");
    broken["policy_config_dict"] = json!({"replay_file_path": "/nowhere.hdf5"});
    let quick = Eval::new(&[broken]).words(&["--quick"]);
    quick
        .run()
        .fails_with(1)
        .stderr_has("not everything runs: the quick run took ");
}
