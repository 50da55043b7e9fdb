//! Decides which environment runs which episode, and which action of its chunk comes next. Pure: no
//! I/O.
//!
//! An episode belongs to an environment from its start. None is started beyond the last, and every
//! started episode is waited for. So N episodes are the first N, not the N that end first: stopping
//! after N ends would favour short, successful episodes.
//!
//! Environments are split into groups with their own schedules: while the policy infers for one
//! group, the other steps. The number of an episode decides its group, not which environment is
//! free first, so a run is reproducible.

pub mod group;

use std::ops::Range;

use crate::env::EnvIndex;
use crate::policy::Chunk;

/// Splits the environments into `groups` contiguous ranges that are as equal as possible.
pub fn groups(num_envs: usize, groups: usize) -> Vec<Range<usize>> {
    let groups = groups.clamp(1, num_envs.max(1));
    (0..groups)
        .map(|group| group * num_envs / groups..(group + 1) * num_envs / groups)
        .collect()
}

/// Deals the episodes to `num_envs` environments in turn, and returns those for the environments in
/// `group`.
pub fn deal<I>(
    episodes: I,
    num_envs: usize,
    group: Range<usize>,
) -> impl Iterator<Item = u64> + use<I>
where
    I: IntoIterator<Item = u64>,
{
    let dealt = episodes.into_iter().enumerate();
    dealt
        .filter(move |(position, _)| group.contains(&(position % num_envs)))
        .map(|(_, episode)| episode)
}

/// Episode numbers in ascending order. An iterator, because a job in steps has too many to store.
pub type Numbers = Box<dyn Iterator<Item = u64>>;

/// The episodes that have not started yet.
pub enum Waiting {
    /// Episodes for any free environment.
    Anyone(Numbers),
    /// Separate episodes for each environment.
    Own(Vec<Numbers>),
}

impl Waiting {
    fn next(&mut self, slot: usize) -> Option<u64> {
        match self {
            Self::Anyone(numbers) => numbers.next(),
            Self::Own(slots) => slots.get_mut(slot)?.next(),
        }
    }
}

/// The episodes that have not started yet, and the state of each environment in a group.
pub struct Schedule {
    waiting: Waiting,
    /// Index of the first environment.
    first: usize,
    slots: Vec<Slot>,
    chunk_length: usize,
}

/// The state of one environment.
struct Slot {
    doing: Doing,
    /// Remaining steps, for a job in steps.
    left: Option<u64>,
}

enum Doing {
    Nothing,
    /// Has to start this episode again.
    Again(u64),
    /// Runs an episode; `chunk` is set while it has an action left.
    Episode {
        number: u64,
        chunk: Option<Chunk>,
        next: usize,
    },
}

/// The next step of one environment.
#[derive(Debug, PartialEq)]
pub struct Due {
    /// The environment that steps.
    pub env: EnvIndex,
    /// The action to take.
    pub action: Vec<f32>,
    /// True if the policy sees the observation after this step: the chunk has no further action.
    pub last: bool,
}

impl Slot {
    fn has_steps(&self) -> bool {
        self.left != Some(0)
    }
}

impl Schedule {
    /// Creates a schedule that takes the first `chunk_length` actions of each chunk, or fewer if it
    /// is shorter. With `steps`, each environment stops after that many.
    pub fn new(
        waiting: Waiting,
        envs: Range<usize>,
        chunk_length: usize,
        steps: Option<u64>,
    ) -> Self {
        let first = envs.start;
        let slots = envs
            .map(|_| Slot {
                doing: Doing::Nothing,
                left: steps,
            })
            .collect();
        Self {
            waiting,
            first,
            slots,
            chunk_length,
        }
    }

    /// Starts waiting episodes in idle environments, both in ascending order.
    pub fn start(&mut self) -> Vec<(EnvIndex, u64)> {
        let mut starts = Vec::new();
        for (index, slot) in self
            .slots
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| slot.has_steps())
        {
            let episode = match slot.doing {
                Doing::Episode { .. } => None,
                Doing::Again(episode) => Some(episode),
                Doing::Nothing => self.waiting.next(index),
            };
            if let Some(number) = episode {
                slot.doing = Doing::Episode {
                    number,
                    chunk: None,
                    next: 0,
                };
                starts.push((EnvIndex(self.first + index), number));
            }
        }
        starts
    }

    /// Returns the environments that need a new action chunk before they can step.
    pub fn needs_chunk(&self) -> Vec<EnvIndex> {
        let needs_chunk = |slot: &Slot| {
            slot.has_steps() && matches!(slot.doing, Doing::Episode { chunk: None, .. })
        };
        let slots = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| needs_chunk(slot));
        slots
            .map(|(index, _)| EnvIndex(self.first + index))
            .collect()
    }

    /// Sets the next action chunk of an environment.
    pub fn set_chunk(&mut self, env: EnvIndex, fresh: Chunk) {
        if let Some(Slot {
            doing: Doing::Episode { chunk, next, .. },
            ..
        }) = self.slot(env)
        {
            (*chunk, *next) = (Some(fresh), 0);
        }
    }

    /// Returns the next step of each running environment with a chunk, and advances past it.
    pub fn due(&mut self) -> Vec<Due> {
        let (first, length) = (self.first, self.chunk_length);
        let running = self
            .slots
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| slot.has_steps());
        let due = running.filter_map(|(index, slot)| {
            let Doing::Episode {
                chunk: held, next, ..
            } = &mut slot.doing
            else {
                return None;
            };
            let chunk = held.as_ref()?;
            let action = chunk.action(*next)?.to_vec();
            *next += 1;
            let last = *next >= chunk.horizon().min(length);
            if last {
                *held = None;
            }
            slot.left = slot.left.map(|left| left - 1);
            Some(Due {
                env: EnvIndex(first + index),
                action,
                last,
            })
        });
        due.collect()
    }

    /// Ends the episode of an environment and drops the rest of its chunk.
    pub fn end(&mut self, env: EnvIndex) {
        if let Some(slot) = self.slot(env) {
            slot.doing = Doing::Nothing;
        }
    }

    /// Starts the episode of an environment again, because it was lost.
    pub fn again(&mut self, env: EnvIndex) {
        if let Some(slot) = self.slot(env)
            && let Doing::Episode { number, .. } = slot.doing
        {
            slot.doing = Doing::Again(number);
        }
    }

    fn slot(&mut self, env: EnvIndex) -> Option<&mut Slot> {
        self.slots.get_mut(env.0.checked_sub(self.first)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn envs(indices: &[usize]) -> Vec<EnvIndex> {
        indices.iter().copied().map(EnvIndex).collect()
    }

    fn anyone(episodes: impl Iterator<Item = u64> + 'static) -> Waiting {
        Waiting::Anyone(Box::new(episodes))
    }

    fn starts(schedule: &mut Schedule) -> Vec<(usize, u64)> {
        schedule
            .start()
            .into_iter()
            .map(|(env, episode)| (env.0, episode))
            .collect()
    }

    fn due(schedule: &mut Schedule) -> Vec<(usize, f32, bool)> {
        schedule
            .due()
            .into_iter()
            .map(|due| (due.env.0, due.action[0], due.last))
            .collect()
    }

    #[test]
    fn only_environments_without_actions_are_hungry() {
        let mut schedule = Schedule::new(anyone(0..2), 0..2, 2, None);
        assert_eq!(starts(&mut schedule), [(0, 0), (1, 1)]);
        schedule.set_chunk(EnvIndex(0), Chunk::new(1, vec![1.0, 2.0, 3.0]));
        assert_eq!(schedule.needs_chunk(), envs(&[1]));
        assert_eq!(due(&mut schedule), [(0, 1.0, false)]);
        assert_eq!(schedule.needs_chunk(), envs(&[1]));
        assert_eq!(due(&mut schedule), [(0, 2.0, true)]);
        assert_eq!(
            schedule.needs_chunk(),
            envs(&[0, 1]),
            "the third action lies beyond the chunk length"
        );
    }

    #[test]
    fn a_new_episode_does_not_get_the_old_ones_actions() {
        let mut schedule = Schedule::new(anyone(0..2), 0..1, 4, None);
        schedule.start();
        schedule.set_chunk(EnvIndex(0), Chunk::new(1, vec![1.0, 2.0]));
        schedule.due();
        schedule.end(EnvIndex(0));
        assert_eq!(starts(&mut schedule), [(0, 1)]);
        assert_eq!(schedule.needs_chunk(), envs(&[0]));
        assert!(schedule.due().is_empty());
    }

    #[test]
    fn the_last_step_of_a_chunk_has_to_be_looked_at() {
        let mut schedule = Schedule::new(anyone(0..1), 0..1, 3, None);
        schedule.start();
        schedule.set_chunk(EnvIndex(0), Chunk::new(1, vec![0.0; 3]));
        let last: Vec<_> = (0..3).map(|_| due(&mut schedule)[0].2).collect();
        assert_eq!(last, [false, false, true]);
    }

    #[test]
    fn a_lost_episode_begins_again_where_it_was() {
        let mut schedule = Schedule::new(anyone(5..9), 2..4, 3, None);
        assert_eq!(starts(&mut schedule), [(2, 5), (3, 6)]);
        schedule.again(EnvIndex(3));
        assert_eq!(starts(&mut schedule), [(3, 6)]);
        schedule.end(EnvIndex(2));
        assert_eq!(starts(&mut schedule), [(2, 7)]);
    }

    #[test]
    fn episodes_of_their_own_stay_with_their_environments() {
        let own: Vec<Numbers> = vec![Box::new([0, 2].into_iter()), Box::new([1, 3].into_iter())];
        let mut schedule = Schedule::new(Waiting::Own(own), 0..2, 3, None);
        assert_eq!(starts(&mut schedule), [(0, 0), (1, 1)]);
        schedule.end(EnvIndex(1));
        assert_eq!(starts(&mut schedule), [(1, 3)]);
        schedule.end(EnvIndex(1));
        assert_eq!(starts(&mut schedule), []);
    }

    #[test]
    fn each_environment_takes_as_many_steps_as_it_may() {
        let mut schedule = Schedule::new(anyone(0..), 0..2, 2, Some(3));
        let mut taken = [0; 2];
        loop {
            schedule.start();
            schedule
                .needs_chunk()
                .into_iter()
                .for_each(|env| schedule.set_chunk(env, Chunk::new(1, vec![0.0; 2])));
            let due = schedule.due();
            due.iter().for_each(|due| taken[due.env.0] += 1);
            if due.is_empty() {
                break;
            }
            schedule.end(EnvIndex(0));
        }
        assert_eq!(taken, [3, 3]);
    }

    #[test]
    fn groups_are_even_and_share_out_the_episodes() {
        assert_eq!(groups(5, 2), [0..2, 2..5]);
        assert_eq!(groups(1, 2), vec![0..1; 1]);
        assert_eq!(deal(10..17, 5, 0..2).collect::<Vec<_>>(), [10, 11, 15, 16]);
        assert_eq!(deal(10..17, 5, 2..5).collect::<Vec<_>>(), [12, 13, 14]);
    }

    proptest! {
        #[test]
        fn every_episode_runs_exactly_once_however_long_each_takes(
            lengths in proptest::collection::vec(1usize..12, 0..30), num_envs in 1usize..6, chunk in 1usize..5,
            stages in 1usize..4
        ) {
            let mut ended = Vec::new();
            for group in groups(num_envs, stages) {
                let episodes: Vec<_> = deal(0..lengths.len() as u64, num_envs, group.clone()).collect();
                let mut schedule = Schedule::new(anyone(episodes.into_iter()), group, chunk, None);
                let mut running = vec![None; num_envs];
                for _ in 0..1000 {
                    for (env, episode) in schedule.start() {
                        prop_assert!(running[env.0].replace((episode, 0)).is_none());
                    }
                    for env in schedule.needs_chunk() {
                        schedule.set_chunk(env, Chunk::new(1, vec![0.0; 4]));
                    }
                    let due = schedule.due();
                    if due.is_empty() { break; }
                    for Due { env, .. } in due {
                        let (episode, steps) = running[env.0].as_mut().unwrap();
                        *steps += 1;
                        if *steps == lengths[*episode as usize] {
                            ended.push(*episode);
                            running[env.0] = None;
                            schedule.end(env);
                        }
                    }
                }
            }
            ended.sort_unstable();
            prop_assert_eq!(ended, (0..lengths.len() as u64).collect::<Vec<_>>());
        }
    }
}
