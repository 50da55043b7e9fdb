//! Tests of jobs with a Python environment: `tests/fixtures/envs/toy.py`, which misbehaves on
//! request.

use std::sync::OnceLock;

use jobs::episode::Episode;
use rig::process::send;
use serde_json::json;

use crate::eval::command::{Eval, Signal, until};
use crate::eval::given::{marked, seed, toy};
use crate::eval::results::replay;

/// Returns the run of the toy job that nothing has disturbed.
fn undisturbed() -> &'static Eval {
    static UNDISTURBED: OnceLock<Eval> = OnceLock::new();
    UNDISTURBED.get_or_init(|| Eval::new(&[toy(json!({}))]).finished())
}

#[test]
fn episodes_of_a_simulator_that_dies_begin_again_and_end_as_undisturbed() {
    let folder = tempfile::tempdir().unwrap();
    let kwargs = json!({"fault": "kill", "at": 3, "once": folder.path().join("once")});
    let eval = Eval::new(&[toy(json!({"env_kwargs": kwargs, "envs_per_process": 2}))]).with_video();
    eval.run()
        .succeeds()
        .stderr_has("starts again: environment ")
        .stderr_has("the simulator was killed by SIGKILL");
    assert_eq!(eval.outcomes(), undisturbed().outcomes());
    let lost = eval.losses();
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
fn an_episode_goes_on_after_its_success_unless_the_job_ends_it_there() {
    let ends = |end_on_success: bool| {
        let args = json!({"env_kwargs": {"solved_at": 2}, "end_on_success": end_on_success, "num_envs": 2});
        let eval = Eval::new(&[toy(args)])
            .words(&["--export-mode=none"])
            .finished();
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
    let recorded = Eval::new(&[toy(json!({"env_kwargs": kwargs, "mapping": wide}))]);
    let recorded = recorded.nproc(1).finished();
    let dataset = recorded.folder().dataset("toy", 0, 1);
    let mut again = replay("toy", "", &dataset);
    again["arena_env_args"] = toy(json!({"env_kwargs": kwargs}))["arena_env_args"].take();
    let replayed = Eval::new(&[again]);
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
fn an_episode_that_kills_its_rank_is_found_and_given_up() {
    let kwargs = json!({"fault": "kill rank", "at": 3, "of": seed(5)});
    let eval =
        Eval::new(&[toy(json!({"env_kwargs": kwargs}))]).launcher_words(&["--max-restarts", "4"]);
    eval.run()
        .fails_with(1)
        .stderr_has("toy episode 5: its rank died 3 times while it was under way");
    assert_eq!(eval.errors(), [5]);
    let others = |eval: &Eval| {
        let mut outcomes = eval.outcomes();
        outcomes.retain(|outcome| outcome.episode != 5);
        outcomes
    };
    assert_eq!(others(&eval), others(undisturbed()));
    assert!(eval.report().duplicates.is_empty());
}

#[test]
fn a_killed_rank_takes_its_simulators_along() {
    let mark = format!("rrun-test-{}", std::process::id());
    let args = json!({"env_kwargs": {"fault": "hang", "at": 2}, "env": {"RRUN_MARK": mark}});
    let eval = Eval::new(&[toy(args)]).launcher_words(&["--max-restarts", "0"]);
    let running = eval.start();
    until("four simulators and their fork server", || {
        marked(&mark).len() == 5
    });
    send(running.ranks()[0], Signal::KILL);
    until("their end", || marked(&mark).is_empty());
    running.wait().fails_with(1);
}
