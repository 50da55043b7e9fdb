//! Which environment runs which episode, and which action comes next.

mod together;

use std::collections::{BTreeMap, BTreeSet};

use jobs::journal::Blame;
use jobs::placement::Share;
use proptest::prelude::*;

use super::*;
use crate::eval::rollout::schedule::{Episodes, Feed};
use crate::policy::Chunk;

fn envs(indices: &[usize]) -> Vec<EnvIndex> {
    indices.iter().copied().map(EnvIndex).collect()
}

/// The environments that only step together with one: itself.
fn alone(env: EnvIndex) -> Range<usize> {
    env.0..env.0 + 1
}

fn anyone(episodes: impl Iterator<Item = u64> + 'static) -> Feed {
    Feed {
        lanes: vec![Box::new(episodes)],
        is_leased: false,
    }
}

fn starts(group: &mut Group) -> Vec<(usize, u64)> {
    let starts = group.start(&mut None).into_iter();
    starts.map(|(env, episode)| (env.0, episode)).collect()
}

fn due(group: &mut Group) -> Vec<(usize, f32, bool)> {
    let due = group.due().into_iter();
    due.map(|due| (due.env.0, due.action[0], due.last))
        .collect()
}

/// Returns the numbers that two environments get in a build of a job in steps.
fn in_steps(number: usize, share: Option<Share>) -> Vec<u64> {
    let in_steps = Episodes::Steps {
        build: number,
        of: 3,
    };
    let mut group = Group::new(Feed::new(&in_steps, 0..2, 2, share), 0..2, 1, Some(9));
    let mut numbers = Vec::new();
    for _ in 0..3 {
        for (env, episode) in group.start(&mut None) {
            numbers.push(episode);
            group.end(env);
        }
    }
    numbers
}

#[test]
fn builds_of_a_job_in_steps_have_episodes_of_their_own() {
    let share = Share {
        first: 2,
        count: 2,
        total: 4,
    };
    for share in [None, Some(share)] {
        let of_builds: Vec<_> = (0..3).flat_map(|build| in_steps(build, share)).collect();
        let different: BTreeSet<_> = of_builds.iter().collect();
        let counts = (of_builds.len(), different.len());
        assert_eq!(counts, (18, 18), "{of_builds:?}");
        let is_own = |episode: &u64| share.is_none_or(|share| share.slot(*episode).is_some());
        assert!(of_builds.iter().all(is_own), "{of_builds:?}");
    }
    assert_eq!(in_steps(0, None)[..2], [0, 3], "each third number");
}

#[test]
fn only_environments_without_actions_are_hungry() {
    let mut group = Group::new(anyone(0..2), 0..2, 2, None);
    assert_eq!(starts(&mut group), [(0, 0), (1, 1)]);
    group.add_chunk(EnvIndex(0), Chunk::new(1, vec![1.0, 2.0, 3.0]), 0);
    assert_eq!(group.needs_chunk(), envs(&[1]));
    assert_eq!(due(&mut group), [(0, 1.0, false)]);
    assert_eq!(group.needs_chunk(), envs(&[1]));
    assert_eq!(due(&mut group), [(0, 2.0, true)]);
    // The third action lies beyond the chunk length.
    assert_eq!(group.needs_chunk(), envs(&[0, 1]));
}

#[test]
fn a_new_episode_does_not_get_the_old_ones_actions() {
    let mut group = Group::new(anyone(0..2), 0..1, 4, None);
    group.start(&mut None);
    group.add_chunk(EnvIndex(0), Chunk::new(1, vec![1.0, 2.0]), 0);
    group.due();
    group.end(EnvIndex(0));
    assert_eq!(starts(&mut group), [(0, 1)]);
    assert_eq!(group.needs_chunk(), envs(&[0]));
    assert!(group.due().is_empty());
}

#[test]
fn the_last_step_of_a_chunk_has_to_be_looked_at() {
    let mut group = Group::new(anyone(0..1), 0..1, 3, None);
    group.start(&mut None);
    group.add_chunk(EnvIndex(0), Chunk::new(1, vec![0.0; 3]), 0);
    let last: Vec<_> = (0..3).map(|_| due(&mut group)[0].2).collect();
    assert_eq!(last, [false, false, true]);
}

#[test]
fn a_lost_episode_begins_again_where_it_was() {
    let mut group = Group::new(anyone(5..9), 2..4, 3, None);
    assert_eq!(starts(&mut group), [(2, 5), (3, 6)]);
    group.again(EnvIndex(3), 6);
    assert_eq!(starts(&mut group), [(3, 6)]);
    group.end(EnvIndex(2));
    assert_eq!(starts(&mut group), [(2, 7)]);
}

#[test]
fn episodes_of_their_own_stay_with_their_environments() {
    let share = Share {
        first: 0,
        count: 2,
        total: 2,
    };
    let feed = Feed::new(&Episodes::These((0..4).collect()), 0..2, 2, Some(share));
    let mut group = Group::new(feed, 0..2, 3, None);
    assert_eq!(starts(&mut group), [(0, 0), (1, 1)]);
    group.end(EnvIndex(1));
    assert_eq!(starts(&mut group), [(1, 3)]);
    group.end(EnvIndex(1));
    assert_eq!(starts(&mut group), []);
}

#[test]
fn each_environment_takes_as_many_steps_as_it_may() {
    let mut group = Group::new(anyone(0..), 0..2, 2, Some(3));
    let mut taken = [0; 2];
    loop {
        group.start(&mut None);
        group
            .needs_chunk()
            .into_iter()
            .for_each(|env| group.add_chunk(env, Chunk::new(1, vec![0.0; 2]), 0));
        let due = group.due();
        due.iter().for_each(|due| taken[due.env.0] += 1);
        if due.is_empty() {
            break;
        }
        group.end(EnvIndex(0));
    }
    assert_eq!(taken, [3, 3]);
}

#[test]
fn groups_are_even_and_share_out_the_episodes() {
    assert_eq!(groups(5, 2, alone), [0..2, 2..5]);
    assert_eq!(groups(1, 2, alone), vec![0..1; 1]);
    assert_eq!(deal(10..17, 5, 0..2).collect::<Vec<_>>(), [10, 11, 15, 16]);
    assert_eq!(deal(10..17, 5, 2..5).collect::<Vec<_>>(), [12, 13, 14]);
}

/// Loses the processes of some episodes at some of their steps, and returns who was given up.
fn given_up(run: &LossyRun) -> BTreeSet<u64> {
    let (num_envs, count) = (run.num_envs, run.lengths.len() as u64);
    let process = |env: EnvIndex| {
        let first = env.0 / run.per_process * run.per_process;
        first..(first + run.per_process).min(num_envs)
    };
    let mut retries = Retries::new(1);
    let group = |envs: Range<usize>| {
        let episodes = deal(0..count, num_envs, envs.clone());
        Group::new(anyone(episodes), envs, 1, None)
    };
    let mut groups: Vec<_> = groups(num_envs, 2, alone).into_iter().map(group).collect();
    let mut running: BTreeMap<EnvIndex, (u64, usize)> = BTreeMap::new();
    let (mut ended, mut given_up) = (BTreeSet::new(), BTreeSet::new());
    let index_of = |env: EnvIndex| usize::from(env.0 >= num_envs / 2 && num_envs > 1);
    // Twice around without a start or a step is the end: a group may have waited for the other.
    let mut idle = 0;
    for turn in 0.. {
        assert!(turn < 100_000, "it does not end");
        let index = turn % groups.len();
        let starts = start(&mut groups, index, &mut retries, &mut None, process);
        idle = if starts.is_empty() { idle + 1 } else { 0 };
        running.extend(starts.iter().map(|(env, episode)| (*env, (*episode, 0))));
        for env in groups[index].envs.clone().map(EnvIndex) {
            let Some((episode, steps)) = running.get_mut(&env) else {
                continue;
            };
            (*steps, idle) = (*steps + 1, 0);
            let (episode, steps) = (*episode, *steps);
            if steps < run.lengths[episode as usize] {
                continue;
            }
            if !run.is_faulty(episode) {
                running.remove(&env);
                groups[index].end(env);
                assert!(ended.insert(episode), "{episode} ran twice");
                continue;
            }
            // The process ends, and the episodes of all its environments.
            for other in process(env).map(EnvIndex) {
                let Some((lost, _)) = running.remove(&other) else {
                    continue;
                };
                let blame = match (run.is_known, other == env) {
                    (false, _) => Blame::Unknown,
                    (true, true) => Blame::Own,
                    (true, false) => Blame::Neighbour,
                };
                let group = &mut groups[index_of(other)];
                if retries.on_loss(lost, blame, process(other).len()).again {
                    group.again(other, lost);
                } else {
                    group.end(other);
                    given_up.insert(lost);
                }
            }
        }
        if idle > 2 * groups.len() {
            break;
        }
    }
    let over: Vec<_> = ended.union(&given_up).copied().collect();
    assert_eq!(over, (0..count).collect::<Vec<_>>(), "some never ended");
    given_up
}

/// Episodes of which some end their processes at their last step.
#[derive(Debug)]
struct LossyRun {
    lengths: Vec<usize>,
    faulty: Vec<bool>,
    num_envs: usize,
    per_process: usize,
    is_known: bool,
}

impl LossyRun {
    fn is_faulty(&self, episode: u64) -> bool {
        self.faulty[episode as usize]
    }
}

proptest! {
    #[test]
    fn exactly_the_episodes_that_end_their_processes_are_given_up(
        (lengths, faulty) in proptest::collection::vec((1usize..12, proptest::bool::weighted(0.3)), 0..30)
            .prop_map(|episodes| episodes.into_iter().unzip()),
        num_envs in 1usize..9, per_process in 1usize..9, is_known in any::<bool>()
    ) {
        let run = LossyRun { lengths, faulty, num_envs, per_process, is_known };
        let expected: BTreeSet<_> = (0..run.lengths.len() as u64).filter(|e| run.is_faulty(*e)).collect();
        prop_assert_eq!(given_up(&run), expected);
    }
}
