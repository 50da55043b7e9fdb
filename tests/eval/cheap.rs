//! Tests of environments that cost less than the way to them: their processes begin episodes by
//! themselves, and several journal lines share a sync.

use std::collections::BTreeMap;

use jobs::episode::{Episode, EpisodeOutcome};
use jobs::journal::Line;
use serde_json::{Value, json};

use crate::eval::command::{Eval, alive, wait_until};
use crate::eval::python::{seed, toy};

/// Returns an evaluation without files beside the journal, whose episodes begin in the process of
/// the simulator.
fn cheap(args: Value, episodes: u64) -> Eval {
    let mut job = toy(args);
    job["num_episodes"] = json!(episodes);
    Eval::new(&[job]).words(&["--no-dataset"])
}

fn outcomes(eval: &Eval) -> Vec<EpisodeOutcome> {
    eval.episodes().iter().map(Episode::outcome).collect()
}

fn lost_episodes(eval: &Eval) -> Vec<u64> {
    let lines = eval.journal().into_iter();
    let lost = lines.filter_map(|line| match line {
        Line::EnvLost(lost) => Some(lost.episode),
        _ => None,
    });
    lost.collect()
}

#[test]
fn results_are_the_same_however_many_copies_a_process_has() {
    let run = |args| {
        let eval = cheap(args, 23);
        eval.run().succeeds();
        outcomes(&eval)
    };
    // A process that is replaced begins no episode by itself.
    let alone = run(json!({"num_envs": 1, "recycle_after": 1000}));
    assert_eq!(alone.len(), 23);
    for (num_envs, per_process) in [(1, 1), (3, 1), (4, 4), (5, 2)] {
        let args = json!({"num_envs": num_envs, "envs_per_process": per_process});
        assert_eq!(run(args), alone, "{num_envs} in processes of {per_process}");
    }
}

#[test]
fn a_video_shows_the_first_image_of_every_episode() {
    let eval = cheap(json!({"num_envs": 2}), 6).with_video();
    eval.run().succeeds();
    let frames = |episode: Episode| episode.video.map(|video| video.frames);
    let frames: Vec<_> = eval.episodes().into_iter().map(frames).collect();
    assert_eq!(frames, [Some(6); 6]);
}

#[test]
fn an_episode_whose_reset_always_kills_its_simulator_costs_no_other() {
    let undisturbed = cheap(json!({}), 12);
    undisturbed.run().succeeds();
    let kwargs = json!({"fault": "kill", "at": 0, "of": seed(5)});
    let eval = cheap(json!({"env_kwargs": kwargs}), 12).words(&["--env-restarts", "1"]);
    eval.run().fails_with(1);
    let errors = eval.episodes().into_iter().filter(|e| e.error.is_some());
    assert_eq!(errors.map(|e| e.episode).collect::<Vec<_>>(), [5]);
    let without = |eval: &Eval| {
        let others = eval.episodes().into_iter().filter(|e| e.episode != 5);
        others.map(|e| e.outcome()).collect::<Vec<_>>()
    };
    assert_eq!(without(&eval), without(&undisturbed));
    assert_eq!(lost_episodes(&eval), [5, 5], "it was started again once");
}

#[test]
fn an_episode_whose_reset_kills_the_rank_is_found_and_given_up() {
    let kwargs = json!({"fault": "kill rank", "at": 0, "of": seed(9)});
    let eval = cheap(json!({"env_kwargs": kwargs}), 12).launcher_words(&["--max-restarts", "4"]);
    eval.run()
        .fails_with(1)
        .stderr_has("toy episode 9: its rank died 3 times while it was under way");
    let errors = eval.episodes().into_iter().filter(|e| e.error.is_some());
    assert_eq!(errors.map(|e| e.episode).collect::<Vec<_>>(), [9]);
    assert!(eval.report().duplicates.is_empty());
}

#[test]
fn a_kill_between_two_syncs_costs_no_finished_episode_and_repeats_none() {
    const EPISODES: u64 = 3000;
    let args = json!({"envs_per_process": 4});
    let undisturbed = cheap(args.clone(), EPISODES);
    undisturbed.run().succeeds();
    let eval = cheap(args, EPISODES).nproc(1);
    let running = eval.start();
    eval.wait_for_episodes(300);
    let ranks = running.ranks();
    running.signal("KILL");
    wait_until("the end of the rank", || {
        ranks.iter().all(|pid| !alive(*pid))
    });
    drop(running);
    let journaled = eval.journaled();
    assert!((300..EPISODES as usize).contains(&journaled), "{journaled}");
    eval.run()
        .succeeds()
        .stderr_has(&format!(": {journaled} episodes done"));
    assert!(eval.report().complete() && eval.report().duplicates.is_empty());
    assert_eq!(outcomes(&eval), outcomes(&undisturbed));
    let mut lines: BTreeMap<u64, usize> = BTreeMap::new();
    for line in eval.journal() {
        if let Line::Episode(episode) = line {
            *lines.entry(episode.episode).or_default() += 1;
        }
    }
    assert_eq!(lines.len() as u64, EPISODES);
    assert!(lines.values().all(|count| *count == 1), "one line for each");
}
