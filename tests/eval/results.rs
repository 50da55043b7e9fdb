//! Tests of the reported numbers, which depend only on base seed, job and episode.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use jobs::episode::Episode;
use jobs::job::Status;
use serde_json::{Value, json};

use crate::eval::command::{Eval, job};
use crate::eval::given::{demo_policy, merged, named, printed, rrun};

/// Returns a job in which all environments of all ranks take so many steps.
fn in_epochs() -> Value {
    let mut epochs = named("epochs", 1, job("reach", 1, 1));
    epochs.as_object_mut().unwrap().remove("num_episodes");
    let args = epochs["arena_env_args"].as_object_mut().unwrap();
    args.remove("num_envs");
    let length = json!({
        "total_num_envs": 12, "auto_reset": true,
        "max_steps_per_rollout_epoch": 60, "rollout_epoch": 2,
    });
    merged(epochs, length)
}

/// Returns a job of each kind: long and short ones, one in steps, one with rebuilds, one whose
/// environments are shared out, and a task with and without a latency.
fn jobs(num_envs: u64) -> Vec<Value> {
    let task =
        |task: &str, name: &str, more: Value| merged(named(name, 5, job(task, 5, num_envs)), more);
    let mut steps = named("steps", 1, job("reach", 1, 1));
    steps.as_object_mut().unwrap().remove("num_episodes");
    vec![
        named("long", 20, job("reach", 20, num_envs)),
        job("push", 4, num_envs),
        job("pick_and_place", 4, num_envs),
        task("push", "prompt", json!({"seed": 3})),
        task(
            "push",
            "at_once",
            json!({"seed": 3, "latency": {"steps": 0}}),
        ),
        task("push", "late", json!({"seed": 3, "latency": {"steps": 4}})),
        task("reach", "rebuilt", json!({"num_rebuilds": 3})),
        merged(steps, json!({"num_steps": 150})),
        in_epochs(),
    ]
}

fn run(num_envs: u64, ranks: usize, words: &[&str]) -> Eval {
    let eval = Eval::new(&jobs(num_envs)).nproc(ranks);
    eval.words(&["--export-mode=none"]).words(words).finished()
}

/// Returns the run by one rank with one environment.
fn alone() -> &'static Eval {
    static ALONE: OnceLock<Eval> = OnceLock::new();
    ALONE.get_or_init(|| run(1, 1, &["--pipeline-stages", "1"]))
}

#[test]
fn results_are_the_same_whoever_runs_the_episodes_by_whatever_rule() {
    let wanted = alone().outcomes();
    for (num_envs, ranks, words) in [
        (4, 1, &["--pipeline-stages", "3"][..]),
        (4, 3, &["--assign", "dynamic"]),
        (2, 2, &["--assign", "block", "--shard", "episodes"]),
        (3, 4, &["--shard", "episodes"]),
    ] {
        let eval = run(num_envs, ranks, words);
        let place = format!("{num_envs} environments, {ranks} ranks, {words:?}");
        assert_eq!(eval.outcomes(), wanted, "{place}");
        assert_eq!(
            eval.journaled(),
            wanted.len(),
            "nothing runs twice: {place}"
        );
        assert!(eval.report().complete(), "{place}");
    }
}

#[test]
fn a_job_is_as_long_as_its_kind_says_and_a_latency_changes_results_unless_it_is_nothing() {
    let (episodes, report) = (alone().episodes(), alone().report());
    let of = |name: &str| {
        let mut episodes = episodes.clone();
        episodes.retain(|episode| episode.job == name);
        episodes
    };
    let ends = |name: &str| {
        let episodes = of(name).into_iter();
        let ends = episodes.map(|episode| (episode.seed, episode.length, episode.return_));
        ends.collect::<Vec<_>>()
    };
    assert_eq!(ends("at_once"), ends("prompt"));
    assert_ne!(ends("late"), ends("prompt"));
    let builds: Vec<_> = of("rebuilt")
        .iter()
        .map(|episode| episode.rebuild)
        .collect();
    assert_eq!(builds, [0, 0, 1, 1, 2]);
    let steps: Vec<_> = report
        .per_job
        .iter()
        .map(|job| job.costs.env_steps)
        .collect();
    assert_eq!(steps[7..], [150, 12 * 2 * 60]);
}

#[test]
fn only_what_is_chosen_runs_and_is_what_it_was_in_the_whole() {
    let some = run(2, 2, &["--only", "push;long:0,7-8", "--assign", "dynamic"]);
    let chosen = |episode: &Episode| match &*episode.job {
        "long" => [0, 7, 8].contains(&episode.episode),
        job => job == "push",
    };
    let mut wanted = alone().episodes();
    wanted.retain(chosen);
    let wanted: Vec<_> = wanted.iter().map(Episode::outcome).collect();
    assert_eq!(some.outcomes(), wanted);
    assert_eq!(some.report().overall.expected, Some(7));
}

/// The trained policy has matrix products whose last bits depend on the number of rows.
#[test]
fn a_network_on_a_cpu_reaches_what_it_sees_and_does_the_same_in_any_company_to_the_last_bit() {
    let found = |num_envs, ranks, stages| {
        let mut job = merged(job("reach", 4, num_envs), json!({"seed": 1}));
        job["policy_type"] = json!("gr00t_closedloop");
        job["policy_config_dict"] = json!({"model_path": demo_policy(), "action_chunk_length": 4});
        let words = [
            "--export-mode=none",
            "--shard",
            "episodes",
            "--pipeline-stages",
            stages,
        ];
        Eval::new(&[job]).nproc(ranks).words(&words).finished()
    };
    let alone = found(1, 1, "1");
    let solved = alone.report().overall.successes;
    assert!(solved >= 3, "{solved} of 4");
    assert_eq!(found(4, 1, "2").outcomes(), alone.outcomes());
    assert_eq!(found(2, 2, "1").outcomes(), alone.outcomes());
}

#[test]
fn another_seed_gives_other_episodes() {
    let eval = Eval::new(&jobs(2)).nproc(1).words(&["--export-mode=none"]);
    let other = eval.words(&["--only", "push", "--seed", "7"]).finished();
    let seeds = |eval: &Eval| {
        let episodes = eval.episodes().into_iter();
        let of_push = episodes.filter(|episode| episode.job == "push");
        of_push.map(|episode| episode.seed).collect::<Vec<_>>()
    };
    let (one, other) = (seeds(alone()), seeds(&other));
    assert!(one.len() == 4 && other.len() == 4);
    assert!(
        one.iter().all(|seed| !other.contains(seed)),
        "{one:?} {other:?}"
    );
}

#[test]
fn the_report_is_complete_and_the_summary_is_arenas() {
    let tasks = [("reach", 5), ("push", 4), ("pick_and_place", 4)];
    let jobs = tasks.map(|(name, episodes)| job(name, episodes, 2));
    let eval = Eval::new(&jobs).nproc(2);
    let ended = eval.run().succeeds();
    let report = eval.report();
    assert!(report.complete());
    let overall = &report.overall;
    let counts = (overall.expected, overall.episodes, overall.errors);
    assert_eq!(counts, (Some(13), 13, 0));
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
    let ranks: Vec<_> = report.per_rank.iter().map(|rank| rank.episodes).collect();
    assert_eq!(ranks, [9, 4]);
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

/// Returns the run of which [`recorded`] is the dataset.
fn recording() -> &'static Eval {
    static RECORDING: OnceLock<Eval> = OnceLock::new();
    RECORDING.get_or_init(|| Eval::new(&[job("push", 3, 2)]).nproc(1).finished())
}

/// Returns a dataset of three episodes of `push`.
pub fn recorded() -> PathBuf {
    recording().folder().dataset("push", 0, 1)
}

/// Returns a job that repeats a dataset.
pub fn replay(name: &str, environment: &str, dataset: &Path) -> Value {
    json!({
        "name": name, "arena_env_args": {"environment": environment},
        "policy_type": "replay_action", "policy_config_dict": {"replay_file_path": dataset},
    })
}

#[test]
fn a_replay_of_a_dataset_ends_as_the_recording_did() {
    let replayed = Eval::new(&[replay("again", "push", &recorded())]);
    let replayed = replayed.nproc(1).finished();
    let of = |eval: &Eval| {
        let mut ends: Vec<_> = eval
            .episodes()
            .iter()
            .map(|e| (e.seed, e.success, e.length, e.return_.to_bits()))
            .collect();
        ends.sort_unstable();
        ends
    };
    assert_eq!(of(&replayed), of(recording()));
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
        printed(script, &[&path, Path::new(third)]);
    };
    let mut job = replay("replay", "reach", &path);
    job["arena_env_args"]["max_episode_steps"] = json!(6);
    let eval = Eval::new(&[job]).nproc(1).words(&["--export-mode=none"]);
    write("nan");
    for _ in 0..2 {
        eval.run().fails_with(1).stderr_has(", 1 error\n");
        assert_eq!(eval.report().overall.errors, 1);
    }
    assert_eq!(eval.journaled(), 3, "one episode ran twice");
    write("0");
    eval.run().fails_with(1).stderr_has("replay.hdf5` SHA-256");
    let eval = eval.words(&["--accept-changed-jobs"]).finished();
    assert!(eval.report().complete());
}

#[test]
fn what_was_felt_of_a_latency_is_in_journal_and_report_and_a_measured_one_is_not_repeated() {
    let delayed = |name: &str, latency: Value| merged(job(name, 6, 2), json!({"latency": latency}));
    let jobs = [
        delayed("reach", json!({"steps": 2})),
        delayed("push", json!("measured")),
    ];
    let eval = Eval::new(&jobs)
        .nproc(1)
        .words(&["--export-mode=none"])
        .finished();
    for episode in eval.episodes() {
        let felt = episode.latency.unwrap().inferences;
        assert_eq!(felt, episode.infer_calls - 1, "all but the first");
    }
    let report = eval.report();
    let of = |index: usize| report.per_job[index].latency.clone().unwrap();
    let fixed = of(0);
    assert_eq!((fixed.min_steps, fixed.max_steps), (Some(2), Some(2)));
    assert_eq!((fixed.mean_steps, fixed.held_actions), (Some(2.0), 0));
    // An inference takes some time, and so at least a step.
    assert!(of(1).min_steps >= Some(1) && of(1).given.is_none());
    let page = std::fs::read_to_string(eval.folder().page()).unwrap();
    assert!(page.contains("Success by latency of the policy") && page.contains("measured"));
    let folder = eval.folder().root().to_string_lossy().into_owned();
    let told = rrun(&["verify", "--rerun", "8", &folder]);
    assert!(told.contains("run again: 6 episodes"), "{told}");
    let measured = "not run again, because latency is measured: push";
    assert!(told.contains(measured), "{told}");
}
