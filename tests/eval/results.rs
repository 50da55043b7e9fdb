//! Tests of the reported numbers, which depend only on base seed, job and episode.

use jobs::episode::EpisodeOutcome;
use jobs::job::Status;
use serde_json::{Value, json};

use crate::eval::command::{Eval, job};

fn three_tasks(num_envs: u64) -> Vec<Value> {
    [("reach", 5), ("push", 4), ("pick_and_place", 4)]
        .map(|(name, episodes)| job(name, episodes, num_envs))
        .to_vec()
}

fn results(ranks: usize, num_envs: u64) -> Vec<EpisodeOutcome> {
    outcomes(&three_tasks(num_envs), ranks, &[])
}

fn outcomes(jobs: &[Value], ranks: usize, words: &[&str]) -> Vec<EpisodeOutcome> {
    let eval = Eval::new(jobs)
        .nproc(ranks)
        .words(&["--no-dataset"])
        .words(words);
    eval.run().succeeds();
    eval.episodes()
        .iter()
        .map(|episode| episode.outcome())
        .collect()
}

#[test]
fn results_are_the_same_at_any_world_size_and_number_of_environments() {
    let alone = results(1, 1);
    assert_eq!(alone.len(), 13);
    for (ranks, num_envs) in [(1, 4), (2, 1), (2, 4), (3, 4), (4, 1), (4, 4)] {
        assert_eq!(
            results(ranks, num_envs),
            alone,
            "{ranks} ranks with {num_envs} environments each"
        );
    }
}

#[test]
fn results_do_not_depend_on_the_groups_that_take_turns() {
    let overlapped = outcomes(&three_tasks(4), 1, &[]);
    for stages in ["1", "3", "4"] {
        assert_eq!(
            outcomes(&three_tasks(4), 1, &["--pipeline-stages", stages]),
            overlapped,
            "{stages} groups"
        );
    }
}

/// Returns jobs with the trained policy, whose matrix products have last bits that depend on the
/// number of rows.
fn demo_policy(num_envs: u64) -> Vec<Value> {
    let mut job = job("reach", 4, num_envs);
    job["policy_type"] = json!("gr00t");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites/demo_policy");
    job["policy_config_dict"] = json!({"model_path": path, "action_chunk_length": 6});
    vec![job]
}

#[test]
fn a_network_on_a_cpu_gives_the_same_in_any_company_to_the_last_bit() {
    let found =
        |num_envs, stages| outcomes(&demo_policy(num_envs), 1, &["--pipeline-stages", stages]);
    let alone = found(1, "1");
    assert_eq!(found(4, "2"), alone);
    assert_eq!(found(3, "1"), alone);
}

#[test]
fn a_variation_changes_the_environment_and_one_without_meaning_is_said() {
    let mut varied = job("reach", 2, 1);
    varied["variations"] = json!({"max_episode_steps": 3, "hdr": "hall"});
    let eval = Eval::new(&[varied]).nproc(1).words(&["--no-dataset"]);
    eval.run()
        .succeeds()
        .stderr_has("does not use variations.hdr");
    assert!(eval.episodes().iter().all(|episode| episode.length == 3));
}

#[test]
fn another_seed_gives_other_episodes() {
    let seeds = |words: &[&str]| {
        let eval = Eval::new(&[job("reach", 3, 1)])
            .nproc(1)
            .words(&["--no-dataset"])
            .words(words);
        eval.run().succeeds();
        eval.episodes()
            .iter()
            .map(|episode| episode.seed)
            .collect::<Vec<_>>()
    };
    assert_ne!(seeds(&[]), seeds(&["--seed", "7"]));
    assert_eq!(seeds(&[]), seeds(&["--seed", "42"]));
}

#[test]
fn the_report_is_complete_and_the_summary_is_arenas() {
    let eval = Eval::new(&three_tasks(2)).nproc(2);
    let ended = eval.run().succeeds();
    let report = eval.report();
    assert!(report.complete());
    assert_eq!(
        (
            report.overall.expected,
            report.overall.episodes,
            report.overall.errors
        ),
        (Some(13), 13, 0)
    );
    assert_eq!(
        (report.run.gathered_by.as_str(), report.run.world_size),
        ("store", 2)
    );
    assert!(
        report
            .per_job
            .iter()
            .all(|job| job.status == Status::Completed && job.infer_ms.p50.is_some())
    );
    assert_eq!(
        report
            .per_rank
            .iter()
            .map(|rank| rank.episodes)
            .collect::<Vec<_>>(),
        [9, 4]
    );
    assert_eq!(report.per_rank[1].device, "cpu");
    let rule = "=".repeat(70);
    ended
        .stdout_has(&format!(
            "{rule}\nMETRICS SUMMARY\n{rule}\n\npick_and_place:\n  success_rate                        "
        ))
        .stdout_has("  num_episodes                        4.0000\n")
        .stdout_has("13 of 13 episodes")
        .stderr_has("[rank 1/2] device cpu: ");
}

#[test]
fn jobs_go_to_the_rank_that_their_index_names() {
    let eval = Eval::new(&three_tasks(1)).nproc(2).words(&["--no-dataset"]);
    eval.run().succeeds();
    assert!(
        eval.episodes()
            .iter()
            .all(|episode| episode.rank == episode.job_index.0 % 2)
    );
}

#[test]
fn a_replay_of_a_dataset_ends_as_the_recording_did() {
    let recorded = Eval::new(&[job("push", 3, 2)]).nproc(1);
    recorded.run().succeeds();
    let dataset = recorded.folder().dataset("push", 0, 1);
    let replay = json!({
        "name": "again",
        "arena_env_args": {"environment": "push"},
        "policy_type": "replay_action",
        "policy_config_dict": {"replay_file_path": dataset},
    });
    let replayed = Eval::new(&[replay]).nproc(1);
    replayed.run().succeeds();
    let of = |eval: &Eval| {
        let mut ends: Vec<_> = eval
            .episodes()
            .iter()
            .map(|e| (e.seed, e.success, e.length, e.return_.to_bits()))
            .collect();
        ends.sort_unstable();
        ends
    };
    assert_eq!(of(&replayed), of(&recorded));
}

#[test]
fn policies_that_do_not_try_do_not_succeed() {
    let lazy = |policy: &str| {
        let mut entry = job("pick_and_place", 2, 2);
        entry["policy_type"] = json!(policy);
        entry["name"] = json!(policy);
        entry
    };
    let eval = Eval::new(&[lazy("zero_action"), lazy("random_action")])
        .nproc(2)
        .words(&["--no-dataset"]);
    eval.run().succeeds();
    let report = eval.report();
    assert_eq!((report.overall.episodes, report.overall.successes), (4, 0));
}

#[test]
fn a_job_in_steps_ends_after_them() {
    let mut entry = job("reach", 1, 2);
    entry.as_object_mut().unwrap().remove("num_episodes");
    entry["num_steps"] = json!(200);
    let eval = Eval::new(&[entry]).nproc(1);
    eval.run().succeeds();
    let report = eval.report();
    assert_eq!(report.per_job[0].env_steps, 400);
    assert!(report.overall.episodes >= 2 && report.complete());
}

#[test]
fn rebuilds_share_out_the_episodes() {
    let mut entry = job("reach", 3, 1);
    entry["num_rebuilds"] = json!(2);
    let eval = Eval::new(&[entry]).nproc(1).words(&["--no-dataset"]);
    eval.run().succeeds();
    assert_eq!(
        eval.episodes()
            .iter()
            .map(|episode| episode.rebuild)
            .collect::<Vec<_>>(),
        [0, 0, 1]
    );
}

#[test]
fn an_errored_episode_of_a_replay_runs_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("replay.hdf5");
    let write = |third: &str| {
        let script = "import sys, h5py, numpy as np\n\
                      with h5py.File(sys.argv[1], 'w') as file:\n  \
                        for i in range(2):\n    \
                          actions = np.zeros((4, 7)); actions[2, 0] = float(sys.argv[2]) if i else 0\n    \
                          file[f'data/demo_{i}/actions'] = actions";
        let python = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
        let status = std::process::Command::new(python)
            .args(["-c", script])
            .arg(&path)
            .arg(third)
            .status();
        assert!(status.unwrap().success());
    };
    let replay = json!({"name": "replay", "policy_type": "replay_action",
                        "arena_env_args": {"environment": "reach", "max_episode_steps": 6},
                        "policy_config_dict": {"replay_file_path": path}});
    let eval = Eval::new(&[replay]).nproc(1).words(&["--no-dataset"]);
    write("nan");
    for _ in 0..2 {
        eval.run().fails_with(1).stderr_has(", 1 error\n");
        assert_eq!(eval.report().overall.errors, 1);
    }
    assert_eq!(eval.journaled(), 3, "one episode ran twice");
    write("0");
    eval.run().fails_with(1).stderr_has("replay.hdf5` SHA-256");
    let eval = eval.words(&["--accept-changed-jobs"]);
    eval.run().succeeds();
    assert!(eval.report().complete());
}
