//! Which environment runs which episode, and which action of its chunk comes next. Pure.
//!
//! An episode belongs to an environment from the moment it starts; none is started beyond the last, and every started
//! one is waited for. So N episodes are the first N, not the N that end first: stopping at the Nth end would prefer
//! short, successful ones.

use crate::env::EnvIndex;
use crate::policy::Chunk;

/// Episodes to come, and what each environment is doing.
pub struct Schedule {
    /// The next waiting episode, and those after it; a job in steps has more of them than one would keep in memory.
    next: Option<u64>,
    after: Box<dyn Iterator<Item = u64>>,
    slots: Vec<Slot>,
    chunk_length: usize,
}

#[derive(Debug)]
enum Slot {
    Idle,
    /// Runs an episode; `chunk` is there while it has an action left.
    Running {
        chunk: Option<Chunk>,
        next: usize,
    },
}

impl Schedule {
    /// Of each chunk the first `chunk_length` actions are taken, fewer if it is shorter.
    pub fn new(
        episodes: impl IntoIterator<Item = u64, IntoIter: 'static>,
        num_envs: usize,
        chunk_length: usize,
    ) -> Self {
        let slots = std::iter::repeat_with(|| Slot::Idle).take(num_envs).collect();
        let mut after: Box<dyn Iterator<Item = u64>> = Box::new(episodes.into_iter());
        Self { next: after.next(), after, slots, chunk_length }
    }

    /// Hands waiting episodes to idle environments, both in ascending order.
    pub fn start(&mut self) -> Vec<(EnvIndex, u64)> {
        let idle = self.slots.iter_mut().enumerate().filter(|(_, slot)| matches!(slot, Slot::Idle));
        idle.map_while(|(index, slot)| {
            let episode = std::mem::replace(&mut self.next, self.after.next())?;
            *slot = Slot::Running { chunk: None, next: 0 };
            Some((EnvIndex(index), episode))
        })
        .collect()
    }

    /// Environments that need a chunk before they can step.
    pub fn hungry(&self) -> Vec<EnvIndex> {
        self.running(|chunk, _| chunk.is_none())
    }

    /// Whether an environment will need a chunk after the next step: that step has to be looked at.
    pub fn hungry_next(&self) -> bool {
        !self.running(|chunk, next| chunk.is_none_or(|chunk| next + 1 >= self.usable(chunk))).is_empty()
    }

    /// Gives an environment its next chunk.
    pub fn feed(&mut self, env: EnvIndex, fresh: Chunk) {
        if let Some(Slot::Running { chunk, next }) = self.slots.get_mut(env.0) {
            (*chunk, *next) = (Some(fresh), 0);
        }
    }

    /// The next action of each running environment that has a chunk; the schedule moves on by a step.
    pub fn actions(&mut self) -> Vec<(EnvIndex, Vec<f32>)> {
        let length = self.chunk_length;
        let mut actions = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Slot::Running { chunk: held, next } = slot else { continue };
            let Some(chunk) = held else { continue };
            if let Some(action) = chunk.action(*next) {
                actions.push((EnvIndex(index), action.to_vec()));
            }
            *next += 1;
            if *next >= chunk.horizon().min(length) {
                *held = None;
            }
        }
        actions
    }

    /// The episode of an environment is over; what is left of its chunk is forgotten.
    pub fn end(&mut self, env: EnvIndex) {
        if let Some(slot) = self.slots.get_mut(env.0) {
            *slot = Slot::Idle;
        }
    }

    /// Nothing waits and nothing runs.
    pub fn is_done(&self) -> bool {
        self.next.is_none() && self.slots.iter().all(|slot| matches!(slot, Slot::Idle))
    }

    fn usable(&self, chunk: &Chunk) -> usize {
        chunk.horizon().min(self.chunk_length)
    }

    fn running(&self, wanted: impl Fn(Option<&Chunk>, usize) -> bool) -> Vec<EnvIndex> {
        let of = |(index, slot): (usize, &Slot)| match slot {
            Slot::Running { chunk, next } if wanted(chunk.as_ref(), *next) => Some(EnvIndex(index)),
            _ => None,
        };
        self.slots.iter().enumerate().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn envs(indices: &[usize]) -> Vec<EnvIndex> {
        indices.iter().copied().map(EnvIndex).collect()
    }

    #[test]
    fn only_environments_without_actions_are_hungry() {
        let mut schedule = Schedule::new(0..2, 2, 2);
        assert_eq!(schedule.start(), [(EnvIndex(0), 0), (EnvIndex(1), 1)]);
        schedule.feed(EnvIndex(0), Chunk::new(1, vec![1.0, 2.0, 3.0]));
        assert_eq!(schedule.hungry(), envs(&[1]));
        assert_eq!(schedule.actions(), [(EnvIndex(0), vec![1.0])]);
        assert_eq!(schedule.hungry(), envs(&[1]));
        assert!(schedule.hungry_next());
        assert_eq!(schedule.actions(), [(EnvIndex(0), vec![2.0])]);
        assert_eq!(schedule.hungry(), envs(&[0, 1]), "the third action lies beyond the chunk length");
    }

    #[test]
    fn a_new_episode_does_not_get_the_old_ones_actions() {
        let mut schedule = Schedule::new(0..2, 1, 4);
        schedule.start();
        schedule.feed(EnvIndex(0), Chunk::new(1, vec![1.0, 2.0]));
        schedule.actions();
        schedule.end(EnvIndex(0));
        assert_eq!(schedule.start(), [(EnvIndex(0), 1)]);
        assert_eq!(schedule.hungry(), envs(&[0]));
        assert!(schedule.actions().is_empty());
    }

    #[test]
    fn the_step_before_a_chunk_is_used_up_has_to_be_looked_at() {
        let mut schedule = Schedule::new(0..1, 1, 3);
        schedule.start();
        schedule.feed(EnvIndex(0), Chunk::new(1, vec![0.0; 3]));
        assert!(!schedule.hungry_next());
        schedule.actions();
        assert!(!schedule.hungry_next());
        schedule.actions();
        assert!(schedule.hungry_next());
    }

    proptest! {
        #[test]
        fn every_episode_runs_exactly_once_however_long_each_takes(
            lengths in proptest::collection::vec(1usize..12, 0..30), num_envs in 1usize..6, chunk in 1usize..5
        ) {
            let mut schedule = Schedule::new(0..lengths.len() as u64, num_envs, chunk);
            let (mut running, mut ended) = (vec![None; num_envs], Vec::new());
            for _ in 0..1000 {
                for (env, episode) in schedule.start() {
                    prop_assert!(running[env.0].replace((episode, 0)).is_none());
                }
                for env in schedule.hungry() {
                    schedule.feed(env, Chunk::new(1, vec![0.0; 4]));
                }
                for (env, _) in schedule.actions() {
                    let (episode, steps) = running[env.0].as_mut().unwrap();
                    *steps += 1;
                    if *steps == lengths[*episode as usize] {
                        ended.push(*episode);
                        running[env.0] = None;
                        schedule.end(env);
                    }
                }
                if schedule.is_done() { break; }
            }
            ended.sort_unstable();
            prop_assert_eq!(ended, (0..lengths.len() as u64).collect::<Vec<_>>());
        }
    }
}
