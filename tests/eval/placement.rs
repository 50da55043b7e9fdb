//! Tests of RLinf's YAML and of placements through the command line: the options of s000 and the
//! examples of s001, as in the documents.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::eval::command::{Ended, Eval, job};

/// Returns the path of a file in this repository.
fn file(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.parent().unwrap().join(path).display().to_string()
}

/// Returns an evaluation of the suite `behavior.yaml` with a snippet of a document on top of it.
fn behavior(snippet: &str) -> Eval {
    let snippet = file(&format!("tests/fixtures/placement/{snippet}.yaml"));
    Eval::without_jobs().with_video().words(&[
        "--config",
        &file("jobs/suites/behavior.yaml"),
        "--config",
        &snippet,
    ])
}

fn videos(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name.contains("_video_")).collect();
    names.sort();
    names
}

/// Runs a snippet; returns the names of its videos.
fn filmed(snippet: &str, says: &[&str]) -> Vec<String> {
    let eval = behavior(snippet);
    let ended = says
        .iter()
        .fold(eval.run().succeeds(), |ended: Ended, text| {
            ended.stderr_has(text)
        });
    drop(ended);
    let report = eval.report();
    let total = report.per_job[0].num_envs;
    assert_eq!(
        (report.overall.episodes, report.overall.successes),
        (total as u64, total as u64),
        "one each, all solved"
    );
    let names = videos(&eval.folder().job("behavior"));
    assert_eq!(
        names.len(),
        total,
        "s001: the number of videos is total_num_envs"
    );
    names
}

#[test]
fn s000_option_1_has_its_environments_and_policies_apart() {
    let says = [
        "rrun: GPU 0: EnvWorker 0 (1 environment)\n",
        "rrun: GPU 1: EnvWorker 1 (1 environment)\n",
        "rrun: GPU 2: RolloutWorker 0 (policy inference)\n",
        "rrun: GPU 3: RolloutWorker 1 (policy inference)\n",
        "no GPU here: the numbers of the placement are labels",
    ];
    let names = filmed(
        "s000_option_1_dedicated",
        &says[..if has_gpu() { 0 } else { 5 }],
    );
    assert_eq!(
        names,
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank1_gpu1_env0.mp4"
        ]
    );
}

#[test]
fn s000_option_2_shares_two_gpus() {
    let says = [
        "GPU 0: EnvWorker 0 + RolloutWorker 0 (shared)",
        "GPU 1: EnvWorker 1 + RolloutWorker 1 (shared)",
    ];
    let names = filmed("s000_option_2_shared", &says);
    assert_eq!(
        names,
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank1_gpu1_env0.mp4"
        ]
    );
}

#[test]
fn s000_option_3_is_one_rank() {
    let names = filmed(
        "s000_option_3_single",
        &["GPU 0: EnvWorker 0 + RolloutWorker 0 (shared)"],
    );
    assert_eq!(names, ["behavior_video_rank0_gpu0_env0.mp4"]);
}

#[test]
fn s001_example_1_has_two_workers_with_two_environments_each() {
    let says = [
        "Worker 0 (GPU 0): Manages 2 environments (env 0, env 1)",
        "Worker 1 (GPU 1): Manages 2 environments (env 0, env 1)",
    ];
    assert_eq!(
        filmed("s001_example_1_two_workers", &says),
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank0_gpu0_env1.mp4",
            "behavior_video_rank1_gpu1_env0.mp4",
            "behavior_video_rank1_gpu1_env1.mp4",
        ]
    );
}

#[test]
fn s001_example_2_has_four_workers_with_one_environment_each() {
    assert_eq!(
        filmed(
            "s001_example_2_four_workers",
            &["Worker 3 (GPU 3): Manages 1 environment (env 0)"]
        ),
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank1_gpu1_env0.mp4",
            "behavior_video_rank2_gpu2_env0.mp4",
            "behavior_video_rank3_gpu3_env0.mp4",
        ]
    );
}

#[test]
fn s001_example_3_has_one_worker_with_four_environments() {
    assert_eq!(
        filmed(
            "s001_example_3_one_worker",
            &["Worker 0 (GPU 0): Manages 4 environments (env 0, 1, 2, 3)"]
        ),
        [
            "behavior_video_rank0_gpu0_env0.mp4",
            "behavior_video_rank0_gpu0_env1.mp4",
            "behavior_video_rank0_gpu0_env2.mp4",
            "behavior_video_rank0_gpu0_env3.mp4",
        ]
    );
}

#[test]
fn every_snippet_of_the_documents_is_accepted_over_a_jobs_file() {
    let folder = file("tests/fixtures/placement");
    let mut count = 0;
    for path in std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
    {
        let eval =
            Eval::new(&[job("reach", 1, 4), job("push", 1, 4)]).launcher_words(&["--dry-run=json"]);
        let ended = eval.words(&["--config", path.to_str().unwrap()]).run();
        let lacks_gpus = ended.stderr.contains("GPU ") && ended.stderr.contains(" does not exist");
        assert!(
            ended.status.success() || (has_gpu() && lacks_gpus),
            "{}: {}",
            path.display(),
            ended.stderr
        );
        count += 1;
    }
    assert_eq!(count, 15);
}

#[test]
fn episodes_do_not_depend_on_who_sits_where() {
    let outcomes = |placement: &str| {
        let behavior = file("jobs/suites/behavior.yaml");
        let words = [
            "--config",
            &behavior,
            "--placement",
            placement,
            "--no-dataset",
        ];
        let eval = Eval::without_jobs().words(&words);
        eval.run().succeeds();
        eval.episodes()
            .iter()
            .map(jobs::episode::Episode::outcome)
            .collect::<Vec<_>>()
    };
    let alone = outcomes("env: 0, rollout: 0");
    assert_eq!(alone.len(), 4);
    assert_eq!(
        outcomes("env: 0:0-1, rollout: 0:0-3"),
        alone,
        "two workers, four policies"
    );
    assert_eq!(
        outcomes("env: 0:0-3, rollout: 0:0-1"),
        alone,
        "four workers, two policies"
    );
}

#[test]
fn a_shared_job_goes_on_with_another_number_of_ranks() {
    let shared = || {
        let mut entry = job("reach", 8, 1);
        entry["arena_env_args"]
            .as_object_mut()
            .unwrap()
            .remove("num_envs");
        entry["total_num_envs"] = json!(4);
        entry
    };
    let whole = Eval::new(&[shared()]).nproc(1);
    whole.run().succeeds();
    let parted = Eval::new(&[shared()]).nproc(2);
    let running = parted.start();
    parted.wait_for_episodes(2);
    running.signal("TERM");
    running.wait();
    let parted = parted.world_of(4);
    parted.run().succeeds();
    let outcomes = |eval: &Eval| {
        eval.episodes()
            .iter()
            .map(jobs::episode::Episode::outcome)
            .collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&parted), outcomes(&whole));
    assert!(
        parted.report().duplicates.is_empty(),
        "{:?}",
        parted.report().duplicates
    );
}

#[test]
fn epochs_of_steps_end_when_every_environment_has_taken_them() {
    let mut entry = job("reach", 1, 1);
    let fields = entry.as_object_mut().unwrap();
    fields.remove("num_episodes");
    fields["arena_env_args"]
        .as_object_mut()
        .unwrap()
        .remove("num_envs");
    fields.extend(
        json!({"total_num_envs": 4, "auto_reset": true, "max_steps_per_rollout_epoch": 60, "rollout_epoch": 2})
            .as_object()
            .unwrap()
            .clone(),
    );
    let numbers = |ranks: usize| {
        let eval = Eval::new(&[entry.clone()]).nproc(ranks);
        eval.run().succeeds();
        assert_eq!(eval.report().per_job[0].env_steps, 4 * 120);
        let episodes = eval.episodes();
        episodes
            .iter()
            .map(jobs::episode::Episode::outcome)
            .map(|o| (o.episode, o.seed, o.length))
            .collect::<Vec<_>>()
    };
    let alone = numbers(1);
    assert!(alone.len() >= 4, "{alone:?}");
    assert_eq!(
        numbers(2),
        alone,
        "the same episodes by the same environments"
    );
}

#[test]
fn an_episode_whose_end_is_ignored_lasts_as_long_as_it_may_and_is_solved_all_the_same() {
    let mut entry = job("reach", 4, 2);
    entry["arena_env_args"]["max_episode_steps"] = json!(70);
    let lengths = |entry: &serde_json::Value| {
        let eval = Eval::new(std::slice::from_ref(entry)).nproc(1);
        eval.run().succeeds();
        assert_eq!(eval.report().overall.successes, 4);
        eval.episodes()
            .iter()
            .map(|episode| episode.length)
            .collect::<Vec<_>>()
    };
    assert!(lengths(&entry).iter().all(|length| *length < 70));
    entry["ignore_terminations"] = json!(true);
    assert_eq!(lengths(&entry), [70; 4]);
    entry["max_steps_per_rollout_epoch"] = json!(60);
    assert_eq!(
        lengths(&entry),
        [60; 4],
        "without auto_reset an epoch is one episode"
    );
}

#[test]
fn contradictions_are_refused_before_anything_is_started() {
    let refused = |launcher: &[&str], words: &[&str]| {
        let eval = Eval::new(&[job("reach", 1, 1)])
            .launcher_words(launcher)
            .words(words);
        let stderr = eval.run().fails_with(1).stderr;
        assert!(!eval.folder().root().exists(), "nothing was made");
        stderr
    };
    let placed = ["--placement", "env: 0, rollout: 0:0-1"];
    assert!(
        refused(&["--nproc-per-node", "3"], &placed).contains("--nproc-per-node is 3 on 1 node(s)")
    );
    assert!(
        refused(&["--virtual-local-rank"], &placed)
            .contains("--virtual-local-rank shows each rank one GPU alone")
    );
    assert!(
        refused(&[], &["--placement", "env: 0-, rollout: 0"])
            .contains("`0-` is not a GPU or a range")
    );
}

#[test]
fn under_another_launcher_the_world_size_must_be_that_of_the_placement() {
    let rank = crate::eval::command::binaries()
        .join("rrun-rank")
        .display()
        .to_string();
    let eval = Eval::new(&[job("reach", 1, 1)])
        .launched_by(&[rank])
        .words(&["--placement", "env: 0, rollout: 0:0-1"]);
    eval.run()
        .fails_with(i32::from(jobs::exit::FINAL))
        .stderr_has(
            "the placement has 2 rollout worker(s), each of which is a rank, but WORLD_SIZE is 1",
        );
}

fn has_gpu() -> bool {
    Path::new("/proc/driver/nvidia/gpus").exists()
}
