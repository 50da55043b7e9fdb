//! Tests of episodes that a copy begins by itself: they show the same as after a command, and what
//! they do says nothing about the episode before.

use std::collections::VecDeque;

use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::clock::{now, timespec};
use crate::env::NextEpisode;

/// Time in which a simulator has answered, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(60);

/// An environment and its answers as they come.
struct Raw {
    env: PythonEnv,
    answers: VecDeque<(EnvIndex, Answer)>,
}

impl Raw {
    fn start(args: Value, num_envs: usize) -> Self {
        let env = make(&job(args), PythonConfig::new(num_envs)).unwrap();
        let answers = VecDeque::new();
        Self { env, answers }
    }

    fn reset(&mut self, index: usize, seed: u64) {
        let (episode, render) = (seed, Render::No);
        let reset = Command::Reset {
            seed,
            episode,
            render,
        };
        self.env.send(vec![(EnvIndex(index), reset)]);
        assert!(matches!(self.next(), (at, Answer::Reset(Ok(_))) if at == index));
    }

    /// Steps copies, with an offer of these episodes.
    fn step(&mut self, offers: &[(usize, u64)]) {
        let command = |&(index, seed): &(usize, u64)| {
            let (action, render, episode) = (vec![0.1, 0.2], Render::No, seed);
            let next = Some(NextEpisode { seed, episode });
            (
                EnvIndex(index),
                Command::Step {
                    action,
                    next,
                    render,
                },
            )
        };
        self.env.send(offers.iter().map(command).collect());
    }

    /// Takes the first step of an episode of two, with an offer of another, and begins the second.
    fn nearly_end(&mut self, next: u64) {
        self.reset(0, 3);
        self.step(&[(0, next)]);
        self.midway();
        self.step(&[(0, next)]);
    }

    fn next(&mut self) -> (usize, Answer) {
        let end = now() + LIMIT;
        while self.answers.is_empty() {
            let until = self.env.due().map_or(end, |due| due.min(end));
            let left = timespec(until.saturating_duration_since(now()));
            let mut ready = [PollFd::from_borrowed_fd(self.env.ready(), PollFlags::IN)];
            poll(&mut ready, Some(&left)).unwrap();
            self.answers.extend(self.env.take());
            assert!(now() < end, "no answer");
        }
        let (env, answer) = self.answers.pop_front().unwrap();
        (env.0, answer)
    }

    /// Returns a step that ended no episode.
    fn midway(&mut self) -> Step {
        match self.next() {
            (_, Answer::Step(step)) => step.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the last step of an episode, and the number of the one that begins.
    fn last(&mut self) -> (Step, u64) {
        match self.next() {
            (_, Answer::Last { step, next }) => (step.unwrap(), next),
            other => panic!("{other:?}"),
        }
    }

    fn begun(&mut self) -> Result<Observation, EnvError> {
        match self.next() {
            (_, Answer::Reset(begun)) => begun,
            other => panic!("{other:?}"),
        }
    }
}

fn short(kwargs: Value) -> Value {
    let mut all = kwargs;
    all["length"] = json!(2);
    json!({ "env_kwargs": all })
}

#[test]
fn a_copy_begins_the_episode_it_is_offered_when_its_own_ends() {
    let mut alone = start(short(json!({})), 1);
    let first = reset(&mut alone, 0, 7).unwrap();
    let second = step(&mut alone, 0, [0.1, 0.2]).unwrap().observation;
    let mut raw = Raw::start(short(json!({})), 1);
    raw.reset(0, 3);
    raw.step(&[(0, 7)]);
    let middle = raw.midway();
    raw.step(&[(0, 7)]);
    let (last, next) = raw.last();
    assert!(last.terminated && next == 7);
    assert_ne!(last.observation.state, middle.observation.state);
    assert_ne!(last.observation.state, first.state);
    let begun = raw.begun().unwrap();
    assert_eq!((begun.state, begun.language), (first.state, first.language));
    raw.step(&[(0, 8)]);
    assert_eq!(raw.midway().observation.state, second.state);
}

#[test]
fn the_end_of_an_episode_is_told_whatever_the_next_one_does() {
    let mut raw = Raw::start(short(json!({"fault": "kill", "at": 0, "of": 7})), 1);
    raw.nearly_end(7);
    assert!(raw.last().0.terminated);
    let (_, reason, _) = lost(raw.begun());
    let wanted = "the simulator was killed by SIGKILL; its last call was `reset` of environment 0, episode 7, seed 7; ";
    assert!(reason.starts_with(wanted), "{reason}");
    raw.reset(0, 8);
}

#[test]
fn a_process_that_dies_in_a_batch_loses_the_copies_that_it_has() {
    let mut args = short(json!({"fault": "kill", "at": 0, "of": 7}));
    args["envs_per_process"] = json!(2);
    let mut raw = Raw::start(args, 2);
    raw.reset(0, 3);
    raw.step(&[(0, 6)]);
    raw.midway();
    raw.reset(1, 4);
    // The first copy ends and takes the offer that kills; the second is midway.
    raw.step(&[(0, 7), (1, 6)]);
    assert!(raw.last().0.terminated);
    raw.midway();
    assert_eq!(lost(raw.begun()).0, 0);
    raw.step(&[(1, 6)]);
    let (index, answer) = raw.next();
    assert_eq!(index, 1);
    let Answer::Step(step) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(lost(step).0, 1, "its episode died with the process");
    raw.reset(1, 4);
}

#[test]
fn an_ending_with_a_value_that_cannot_be_begins_the_next_episode_all_the_same() {
    let mut raw = Raw::start(short(json!({"fault": "nan", "at": 2, "of": 3})), 1);
    raw.nearly_end(7);
    let (_, answer) = raw.next();
    let Answer::Last { step, next: 7 } = answer else {
        panic!("{answer:?}")
    };
    assert!(matches!(step, Err(EnvError::Episode { .. })));
    assert!(raw.begun().is_ok());
    raw.step(&[(0, 8)]);
    raw.midway();
}

#[test]
fn nobody_takes_an_offer_where_processes_are_replaced() {
    let mut args = short(json!({}));
    args["recycle_after"] = json!(1);
    let mut raw = Raw::start(args, 1);
    raw.nearly_end(7);
    assert!(raw.midway().terminated);
    raw.reset(0, 7);
}
