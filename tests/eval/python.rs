//! Tests of jobs with a Python environment: `tests/fixtures/envs/toy.py`, which misbehaves on
//! request.

use std::path::{Path, PathBuf};

use jobs::episode::Episode;
use jobs::journal::Line;
use serde_json::{Value, json};

use crate::eval::command::{Eval, signal, wait_until};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Returns a job with the toy environment and these arguments.
pub fn toy(args: Value) -> Value {
    let mut all = json!({
        "environment": format!("{}:Toy", root().join("tests/fixtures/envs/toy.py").display()),
        "python": root().join(".venv/bin/python"), "max_episode_steps": 50, "num_envs": 4,
    });
    all.as_object_mut()
        .unwrap()
        .extend(args.as_object().unwrap().clone());
    json!({"name": "toy", "arena_env_args": all, "policy_type": "random_action", "num_episodes": 12})
}

#[test]
fn episodes_of_a_simulator_that_dies_begin_again_and_end_as_undisturbed() {
    let undisturbed = Eval::new(&[toy(json!({}))]).with_video();
    undisturbed.run().succeeds();
    let folder = tempfile::tempdir().unwrap();
    let kwargs = json!({"fault": "kill", "at": 3, "once": folder.path().join("once")});
    let eval = Eval::new(&[toy(json!({"env_kwargs": kwargs, "envs_per_process": 2}))]).with_video();
    eval.run()
        .succeeds()
        .stderr_has("starts again: environment ")
        .stderr_has("the simulator was killed by SIGKILL");
    let outcomes = |eval: &Eval| {
        eval.episodes()
            .iter()
            .map(|episode| episode.outcome())
            .collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&eval), outcomes(&undisturbed));
    let lost: Vec<_> = eval
        .journal()
        .into_iter()
        .filter_map(|line| match line {
            Line::EnvLost(lost) => Some(lost),
            _ => None,
        })
        .collect();
    assert!(
        (1..=2).contains(&lost.len()),
        "one process has two copies: {lost:?}"
    );
    assert!(
        lost.iter().all(|lost| lost.stderr == ["about to: kill"]),
        "{lost:?}"
    );
    assert!(
        lost.iter().any(|lost| lost
            .reason
            .contains("its last call was `step 3` of environment ")),
        "{lost:?}"
    );
}

#[test]
fn a_simulator_that_always_dies_costs_its_episodes_and_no_more() {
    let kwargs = json!({"fault": "raise", "at": 2});
    let eval = Eval::new(&[toy(json!({"env_kwargs": kwargs, "num_envs": 1}))]).words(&[
        "--env-restarts",
        "1",
        "--no-dataset",
    ]);
    eval.run()
        .fails_with(1)
        .stderr_has("raised ValueError: the gripper is not there");
    let episodes = eval.episodes();
    assert_eq!(episodes.len(), 12);
    assert!(episodes.iter().all(|episode| {
        episode
            .error
            .as_ref()
            .is_some_and(|error| error.contains("gripper"))
    }));
}

#[test]
fn an_episode_goes_on_after_its_success_unless_the_job_ends_it_there() {
    let ends = |end_on_success: bool| {
        let args = json!({"env_kwargs": {"solved_at": 2}, "end_on_success": end_on_success, "num_envs": 2});
        let eval = Eval::new(&[toy(args)]).words(&["--no-dataset"]);
        eval.run().succeeds();
        let end = |episode: &Episode| (episode.length, episode.success, episode.success_at_end);
        eval.episodes().iter().map(end).collect::<Vec<_>>()
    };
    assert_eq!(ends(false), [(5, Some(true), Some(false)); 12]);
    assert_eq!(ends(true), [(2, Some(true), Some(true)); 12]);
}

#[test]
fn a_replay_repeats_actions_beyond_their_range_and_they_are_counted() {
    let kwargs = json!({"strict": false});
    let wide = json!({"action": {"low": [-3, -3], "high": [3, 3]}});
    let recorded = Eval::new(&[toy(json!({"env_kwargs": kwargs, "mapping": wide}))]).nproc(1);
    recorded.run().succeeds();
    let mut replay = toy(json!({"env_kwargs": kwargs}));
    replay["policy_type"] = json!("replay_action");
    replay["policy_config_dict"] =
        json!({"replay_file_path": recorded.folder().dataset("toy", 0, 1)});
    let replayed = Eval::new(&[replay]).nproc(1);
    replayed
        .run()
        .succeeds()
        .stderr_has("toy: 60 actions, of which");
    let of = |eval: &Eval| {
        let mut ends: Vec<_> = eval
            .episodes()
            .iter()
            .map(|e| (e.seed, e.length, e.return_.to_bits()))
            .collect();
        ends.sort_unstable();
        ends
    };
    assert_eq!(of(&replayed), of(&recorded));
    let outside = replayed.report().overall.actions_out_of_bounds;
    assert!((30..60).contains(&outside), "{outside}");
    assert_eq!(
        recorded.report().overall.actions_out_of_bounds,
        outside,
        "a range that the policy is given changes nothing"
    );
}

#[test]
fn a_success_that_is_no_truth_value_is_an_error_of_each_episode() {
    let mut job = toy(json!({"env_kwargs": {"success": "nan"}, "num_envs": 2}));
    let toy = job["arena_env_args"]["environment"]
        .as_str()
        .unwrap()
        .replace(":Toy", ":Saying");
    job["arena_env_args"]["environment"] = json!(toy);
    let eval = Eval::new(&[job]).words(&["--no-dataset"]);
    eval.run()
        .fails_with(1)
        .stderr_has("toy: the first step gave info `is_success` as float nan");
    let overall = eval.report().overall;
    assert_eq!(
        (overall.episodes, overall.successes, overall.errors),
        (12, 0, 12)
    );
    let errors: Vec<_> = eval
        .episodes()
        .into_iter()
        .filter_map(|episode| episode.error)
        .collect();
    let wanted = "the simulator gave info `is_success` as float nan, expected a bool (or 0 or 1); at step 1 of episode";
    assert!(
        errors.len() == 12 && errors.iter().all(|error| error.starts_with(wanted)),
        "{errors:?}"
    );
}

/// Returns the seed that the simulator gets for an episode of [`toy`] in a run with the default
/// base seed: 31 bits of the episode's seed.
pub fn seed(episode: u64) -> u64 {
    let job = jobs::file::parse(&json!({"jobs": [toy(json!({}))]}))
        .unwrap()
        .remove(0);
    jobs::seed::episode(42, &job, episode) & ((1 << 31) - 1)
}

#[test]
fn an_episode_that_kills_its_rank_is_found_and_given_up() {
    let undisturbed = Eval::new(&[toy(json!({}))]);
    undisturbed.run().succeeds();
    let kwargs = json!({"fault": "kill rank", "at": 3, "of": seed(5)});
    let eval =
        Eval::new(&[toy(json!({"env_kwargs": kwargs}))]).launcher_words(&["--max-restarts", "4"]);
    eval.run()
        .fails_with(1)
        .stderr_has("toy episode 5: its rank died 3 times while it was under way");
    let (found, expected) = (eval.episodes(), undisturbed.episodes());
    let broken: Vec<_> = found
        .iter()
        .filter(|episode| episode.error.is_some())
        .map(|e| e.episode)
        .collect();
    assert_eq!(broken, [5]);
    let others = |episodes: &[jobs::episode::Episode]| {
        episodes
            .iter()
            .filter(|e| e.episode != 5)
            .map(|e| e.outcome())
            .collect::<Vec<_>>()
    };
    assert_eq!(others(&found), others(&expected));
    assert!(eval.report().duplicates.is_empty());
}

#[test]
fn what_does_not_fit_ends_the_job_before_its_first_episode() {
    let mapping = json!({"video": {"front": "pixels.tip"}});
    let eval = Eval::new(&[toy(json!({"mapping": mapping}))]);
    eval.run()
        .fails_with(1)
        .stderr_has("did you mean `pixels.top`?")
        .stderr_has("the environment shows `pixels.top` uint8");
    Eval::new(&[toy(json!({"env_kwarg": {}}))])
        .run()
        .fails_with(1)
        .stderr_has("did you mean `env_kwargs`?");
}

#[test]
fn a_killed_rank_takes_its_simulators_along() {
    let mark = format!("rrun-test-{}", std::process::id());
    let args = json!({"env_kwargs": {"fault": "hang", "at": 2}, "env": {"RRUN_MARK": mark}});
    let eval = Eval::new(&[toy(args)]).launcher_words(&["--max-restarts", "0"]);
    let running = eval.start();
    wait_until("four simulators and their fork server", || {
        marked(&mark) == 5
    });
    signal(running.ranks()[0], "KILL");
    wait_until("their end", || marked(&mark) == 0);
    running.wait().fails_with(1);
}

/// Returns the number of processes with this mark in their environment.
pub fn marked(mark: &str) -> usize {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path().join("environ"));
    pids.filter(|path| {
        std::fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(mark))
    })
    .count()
}
