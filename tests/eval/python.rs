//! Jobs whose environment is in Python: `tests/fixtures/envs/toy.py`, which misbehaves as it is told.

use std::path::{Path, PathBuf};

use jobs::journal::Line;
use serde_json::{Value, json};

use crate::command::{Eval, signal, wait_until};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn toy(args: Value) -> Value {
    let mut all = json!({
        "environment": format!("{}:Toy", root().join("tests/fixtures/envs/toy.py").display()),
        "python": root().join(".venv/bin/python"), "max_episode_steps": 50, "num_envs": 4,
    });
    all.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
    json!({"name": "toy", "arena_env_args": all, "policy_type": "random_action", "num_episodes": 12})
}

#[test]
fn episodes_of_a_simulator_that_dies_begin_again_and_end_as_undisturbed() {
    let undisturbed = Eval::new(&[toy(json!({}))]).with_video();
    undisturbed.run().succeeds();
    let folder = tempfile::tempdir().unwrap();
    let kwargs = json!({"fault": "kill", "at": 3, "once": folder.path().join("once")});
    let eval = Eval::new(&[toy(json!({"env_kwargs": kwargs, "envs_per_process": 2}))]).with_video();
    eval.run().succeeds().stderr_has("begins again: environment ").stderr_has("the simulator was killed by SIGKILL");
    let outcomes = |eval: &Eval| eval.episodes().iter().map(|episode| episode.outcome()).collect::<Vec<_>>();
    assert_eq!(outcomes(&eval), outcomes(&undisturbed));
    let lost: Vec<_> = eval
        .journal()
        .into_iter()
        .filter_map(|line| match line {
            Line::EnvLost(lost) => Some(lost),
            _ => None,
        })
        .collect();
    assert!((1..=2).contains(&lost.len()), "one process has two copies: {lost:?}");
    assert!(lost.iter().all(|lost| lost.stderr == ["about to: kill"]), "{lost:?}");
    assert!(lost.iter().any(|lost| lost.reason.contains("its last call was `step 3` of environment ")), "{lost:?}");
}

#[test]
fn a_simulator_that_always_dies_costs_its_episodes_and_no_more() {
    let kwargs = json!({"fault": "raise", "at": 2});
    let eval =
        Eval::new(&[toy(json!({"env_kwargs": kwargs, "num_envs": 1}))]).words(&["--env-restarts", "1", "--no-dataset"]);
    eval.run().fails_with(1).stderr_has("raised ValueError: the gripper is not there");
    let episodes = eval.episodes();
    assert_eq!(episodes.len(), 12);
    assert!(episodes.iter().all(|episode| episode.error.as_ref().is_some_and(|error| error.contains("gripper"))));
}

/// What the simulator gets as the seed of an episode of [`toy`] in a run with the default base seed: 31 bits of it.
fn seed(episode: u64) -> u64 {
    let job = jobs::file::parse(&json!({"jobs": [toy(json!({}))]})).unwrap().remove(0);
    jobs::seed::episode(42, &job, episode) & ((1 << 31) - 1)
}

#[test]
fn an_episode_that_kills_its_rank_is_found_and_given_up() {
    let undisturbed = Eval::new(&[toy(json!({}))]);
    undisturbed.run().succeeds();
    let kwargs = json!({"fault": "kill parent", "at": 3, "of": seed(5)});
    let eval = Eval::new(&[toy(json!({"env_kwargs": kwargs}))]).launcher_words(&["--max-restarts", "4"]);
    eval.run().fails_with(1).stderr_has("toy episode 5: its rank died 3 times while it was under way");
    let (found, expected) = (eval.episodes(), undisturbed.episodes());
    let broken: Vec<_> = found.iter().filter(|episode| episode.error.is_some()).map(|e| e.episode).collect();
    assert_eq!(broken, [5]);
    let others = |episodes: &[jobs::episode::Episode]| {
        episodes.iter().filter(|e| e.episode != 5).map(|e| e.outcome()).collect::<Vec<_>>()
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
    Eval::new(&[toy(json!({"env_kwarg": {}}))]).run().fails_with(1).stderr_has("did you mean `env_kwargs`?");
}

#[test]
fn a_killed_rank_takes_its_simulators_along() {
    let mark = format!("rrun-test-{}", std::process::id());
    let args = json!({"env_kwargs": {"fault": "hang", "at": 2}, "env": {"RRUN_MARK": mark}});
    let eval = Eval::new(&[toy(args)]).launcher_words(&["--max-restarts", "0"]);
    let running = eval.start();
    wait_until("four simulators", || marked(&mark) == 4);
    signal(running.ranks()[0], "KILL");
    wait_until("their end", || marked(&mark) == 0);
    running.wait().fails_with(1);
}

/// Processes with this mark in their environment.
fn marked(mark: &str) -> usize {
    let pids = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("environ"));
    pids.filter(|path| std::fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(mark))).count()
}
