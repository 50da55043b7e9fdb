//! Tests of RLinf's YAML and of placements through the command line. `jobs` tests every option of
//! s000 and example of s001 in the words of the documents.

use serde_json::{Value, json};

use crate::eval::command::{Eval, job};
use crate::eval::given::{merged, named, root};

/// Returns an evaluation of the suite `behavior.yaml`.
fn behavior(words: &[&str]) -> Eval {
    let suite = root().join("jobs/suites/behavior.yaml");
    let eval = Eval::without_jobs().words(&["--config", suite.to_str().unwrap()]);
    eval.words(words)
}

#[test]
fn an_example_of_s001_has_its_workers_and_videos_and_episodes_do_not_depend_on_who_sits_where() {
    let example = rig::fixture("placement/s001_example_1_two_workers.yaml");
    let filmed = behavior(&["--config", example.to_str().unwrap()]).with_video();
    filmed
        .run()
        .succeeds()
        .stderr_has("Worker 0 (GPU 0): Manages 2 environments (env 0, env 1)")
        .stderr_has("Worker 1 (GPU 1): Manages 2 environments (env 0, env 1)");
    let entries = std::fs::read_dir(filmed.folder().job("behavior")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut videos: Vec<_> = names.filter(|name| name.contains("_video_")).collect();
    videos.sort();
    assert_eq!(
        videos,
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank0_gpu0_env1.mp4",
            "behavior_video_rank1_gpu1_env0.mp4",
            "behavior_video_rank1_gpu1_env1.mp4",
        ]
    );
    let wanted = filmed.outcomes();
    assert_eq!(wanted.len(), 4);
    for placement in ["env: 0, rollout: 0", "env: 0:0-1, rollout: 0:0-3"] {
        let eval = behavior(&["--placement", placement, "--export-mode=none"]).finished();
        assert_eq!(eval.outcomes(), wanted, "{placement}");
    }
}

#[test]
fn an_episode_whose_end_is_ignored_lasts_as_long_as_it_may_and_is_solved_all_the_same() {
    let reach = |name: &str, more: Value| {
        let mut entry = merged(named(name, 4, job("reach", 4, 2)), more);
        entry["arena_env_args"]["max_episode_steps"] = json!(70);
        entry
    };
    let epoch = json!({"ignore_terminations": true, "max_steps_per_rollout_epoch": 60});
    let eval = Eval::new(&[
        reach("ends", json!({})),
        reach("ignored", json!({"ignore_terminations": true})),
        reach("epoch", epoch),
    ]);
    let eval = eval.nproc(1).words(&["--export-mode=none"]).finished();
    assert_eq!(eval.report().overall.successes, 12);
    let lengths: Vec<_> = eval
        .episodes()
        .iter()
        .map(|episode| episode.length)
        .collect();
    assert!(lengths[..4].iter().all(|length| *length < 70));
    assert_eq!(lengths[4..8], [70; 4]);
    assert_eq!(
        lengths[8..],
        [60; 4],
        "without auto_reset an epoch is one episode"
    );
}
