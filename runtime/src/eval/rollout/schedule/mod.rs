//! Decides which environment runs which episode, and which action of its chunk comes next. Pure: no
//! I/O.
//!
//! An environment may begin its next episode by itself when one ends: it is offered one with each
//! step. What it does not take is offered again, so that no episode waits for an environment while
//! another is free.
//!
//! An episode belongs to an environment from its start. None is started beyond the last, and every
//! started episode is waited for. So N episodes are the first N, not the N that end first: stopping
//! after N ends would favour short, successful episodes.
//!
//! The copies of a VectorEnv step together, so they take whole turns: resets, an inference for all
//! that need one, or a step of each that runs an episode. Other environments step while their
//! neighbours are reset.
//!
//! Environments are split into groups with their own schedules: while the policy infers for one
//! group, the other steps. The number of an episode decides its group, not which environment is
//! free first, so a run is reproducible.

pub mod action_queue;
pub mod company;
pub mod env_group;
pub mod source;
#[cfg(test)]
mod tests;
mod waiting;

pub use waiting::{NextEpisodes, WaitingEpisodes};

use std::collections::BTreeMap;
use std::ops::Range;

use jobs::latency::Hold;

use crate::env::EnvIndex;
use crate::eval::rollout::schedule::action_queue::ActionQueue;
use crate::eval::rollout::schedule::company::{Occupant, Retries};
use crate::eval::rollout::schedule::env_group::EnvGroup;
use crate::eval::rollout::schedule::waiting::WaitingQueue;
use crate::policy::Chunk;

/// Splits the environments into at most `count` contiguous ranges that are as equal as possible.
/// `together` returns the environments that only step together with one: they stay in one group.
pub fn groups(
    num_envs: usize,
    count: usize,
    together: impl Fn(EnvIndex) -> Range<usize>,
) -> Vec<Range<usize>> {
    let count = count.clamp(1, num_envs.max(1));
    let mut groups: Vec<Range<usize>> = Vec::with_capacity(count);
    for group in 1..=count {
        let begin = groups.last().map_or(0, |before| before.end);
        let end = group * num_envs / count;
        if end > begin {
            groups.push(begin..together(EnvIndex(end - 1)).end);
        }
    }
    groups
}

/// Starts the waiting episodes of a group in its idle environments, except those that have to wait
/// for their company. `process` returns the environments that share a process with one.
pub fn start(
    groups: &mut [EnvGroup],
    index: usize,
    retries: &mut Retries,
    process: impl Fn(EnvIndex) -> Range<usize>,
) -> Vec<(EnvIndex, u64)> {
    if !retries.is_restricting() {
        return groups[index].schedule.start();
    }
    let all = groups.iter();
    let occupants: Vec<_> = all.flat_map(|group| group.schedule.occupants()).collect();
    let mut company = retries.company(&occupants, &process);
    let room_of = |found: &Occupant| Some((found.env, retries.room(found.episode)?));
    let rooms: BTreeMap<_, _> = occupants.iter().filter_map(room_of).collect();
    let group = &mut groups[index];
    let mut starts = Vec::new();
    for env in group.envs.clone().map(EnvIndex) {
        let (first, room) = (process(env).start, rooms.get(&env).copied());
        if company.may_start(first, room)
            && let Some(episode) = group.schedule.start_in(env)
        {
            company.start(first, room);
            starts.push((env, episode));
        }
    }
    starts
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

/// The episodes that have not started yet, and the state of each environment in a group.
pub struct Schedule<'l> {
    waiting: WaitingQueue<'l>,
    /// Index of the first environment.
    first: usize,
    slots: Vec<EnvSlot>,
    chunk_length: usize,
    hold: Hold,
    steps_together: bool,
}

/// The state of one environment.
struct EnvSlot {
    doing: SlotState,
    /// Remaining steps, for a job in steps.
    left: Option<u64>,
}

enum SlotState {
    Nothing,
    /// Has to start this episode again.
    Again(u64),
    /// Runs an episode.
    Episode {
        number: u64,
        actions: ActionQueue,
    },
}

/// What the environments of a group do next.
#[derive(Debug, PartialEq)]
pub enum Turn {
    /// The policy infers chunks for these environments.
    Infer(Vec<EnvIndex>),
    /// These episodes start, and these steps are taken.
    Act {
        /// Environments to reset, with their episodes.
        starts: Vec<(EnvIndex, u64)>,
        /// The steps of others.
        due: Vec<DueStep>,
    },
}

/// The next step of one environment.
#[derive(Debug, PartialEq)]
pub struct DueStep {
    /// The environment that steps.
    pub env: EnvIndex,
    /// The action to take.
    pub action: Vec<f32>,
    /// True if the policy sees the observation after this step, because an inference begins then.
    pub last: bool,
    /// True if no chunk had an action for this step.
    pub is_held: bool,
    /// The episode that the environment may begin if this step ends the one before.
    pub next: Option<u64>,
}

impl SlotState {
    fn episode(number: u64) -> Self {
        Self::Episode {
            number,
            actions: ActionQueue::default(),
        }
    }
}

impl EnvSlot {
    fn has_steps(&self) -> bool {
        self.left != Some(0)
    }
}

impl<'l> Schedule<'l> {
    /// Creates a schedule in which an inference begins every `chunk_length` steps, or when its chunk
    /// is used up if that is shorter. With `steps`, each environment stops after that many.
    pub fn new(
        waiting: WaitingEpisodes<'l>,
        envs: Range<usize>,
        chunk_length: usize,
        steps: Option<u64>,
    ) -> Self {
        let first = envs.start;
        let slots = envs
            .map(|_| EnvSlot {
                doing: SlotState::Nothing,
                left: steps,
            })
            .collect();
        Self {
            waiting: WaitingQueue::new(waiting),
            first,
            slots,
            chunk_length,
            hold: Hold::default(),
            steps_together: false,
        }
    }

    /// Says what an environment does without an action.
    pub fn holding(self, hold: Hold) -> Self {
        Self { hold, ..self }
    }

    /// Says whether the environments of a process step together.
    pub fn stepping_together(self, steps_together: bool) -> Self {
        Self {
            steps_together,
            ..self
        }
    }

    /// Starts waiting episodes in idle environments, both in ascending order.
    pub fn start(&mut self) -> Vec<(EnvIndex, u64)> {
        let envs = (self.first..self.first + self.slots.len()).map(EnvIndex);
        envs.filter_map(|env| Some((env, self.start_in(env)?)))
            .collect()
    }

    /// Starts a waiting episode in an environment if it is idle.
    pub fn start_in(&mut self, env: EnvIndex) -> Option<u64> {
        let index = env.0.checked_sub(self.first)?;
        let slot = self.slots.get_mut(index).filter(|slot| slot.has_steps())?;
        let number = match slot.doing {
            SlotState::Episode { .. } => return None,
            SlotState::Again(episode) => episode,
            SlotState::Nothing => self.waiting.next(index)?,
        };
        slot.doing = SlotState::episode(number);
        Some(number)
    }

    /// Returns the episodes that belong to the environments, of those that still take steps.
    pub fn occupants(&self) -> impl Iterator<Item = Occupant> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.has_steps())
            .filter_map(|(index, slot)| {
                let (episode, is_running) = match slot.doing {
                    SlotState::Nothing => return None,
                    SlotState::Again(episode) => (episode, false),
                    SlotState::Episode { number, .. } => (number, true),
                };
                Some(Occupant {
                    env: EnvIndex(self.first + index),
                    episode,
                    is_running,
                })
            })
    }

    /// Returns the turn in which these episodes start. It does not wait for an inference that others
    /// need, so these cannot step: nor can those that only step together with them.
    pub fn turn(&mut self, starts: Vec<(EnvIndex, u64)>) -> Turn {
        if starts.is_empty() {
            let needs_chunk = self.needs_chunk();
            if !needs_chunk.is_empty() {
                return Turn::Infer(needs_chunk);
            }
        }
        let due = match self.steps_together && !starts.is_empty() {
            true => Vec::new(),
            false => self.due(),
        };
        Turn::Act { starts, due }
    }

    /// Returns the environments for which an inference begins before their next step.
    pub fn needs_chunk(&self) -> Vec<EnvIndex> {
        let needs_chunk = |slot: &EnvSlot| {
            slot.has_steps()
                && matches!(&slot.doing, SlotState::Episode { actions, .. } if actions.needs_chunk())
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

    /// Returns the number of steps since the observation of an environment's newest chunk; `None`
    /// before the first of its episode.
    pub fn age(&self, env: EnvIndex) -> Option<usize> {
        let slot = self.slots.get(env.0.checked_sub(self.first)?)?;
        match &slot.doing {
            SlotState::Episode { actions, .. } => actions.age(),
            SlotState::Nothing | SlotState::Again(_) => None,
        }
    }

    /// Adds the next action chunk of an environment, which arrives `delay` steps later, see
    /// [`ActionQueue::add`].
    pub fn add_chunk(&mut self, env: EnvIndex, chunk: Chunk, delay: usize) {
        let interval = self.chunk_length;
        if let Some(EnvSlot {
            doing: SlotState::Episode { actions, .. },
            ..
        }) = self.slot(env)
        {
            actions.add(chunk, delay, interval);
        }
    }

    /// Returns the next step of each running environment with an action, and advances past it.
    pub fn due(&mut self) -> Vec<DueStep> {
        let (first, hold) = (self.first, self.hold);
        let running = self
            .slots
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| slot.has_steps());
        let due = running.filter_map(|(index, slot)| {
            let SlotState::Episode { actions, .. } = &mut slot.doing else {
                return None;
            };
            let next = actions.next(hold)?;
            slot.left = slot.left.map(|left| left - 1);
            Some(DueStep {
                env: EnvIndex(first + index),
                action: next.values,
                last: actions.needs_chunk(),
                is_held: next.is_held,
                next: None,
            })
        });
        due.collect()
    }

    /// Offers the waiting episodes to the environments that step, both in ascending order. An offer
    /// is good for this step.
    pub fn offer(&mut self, due: &mut [DueStep]) {
        let slots = due.iter().map(|due| due.env.0 - self.first);
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].has_steps()).collect();
        let mut offers = self.waiting.offer(&slots).into_iter();
        for due in due {
            if self.slots[due.env.0 - self.first].has_steps() {
                due.next = offers.next().flatten();
            }
        }
    }

    /// Starts the episode that an environment has begun by itself, after the end of the one before.
    pub fn begin(&mut self, env: EnvIndex, number: u64) {
        self.waiting.take(number);
        if let Some(slot) = self.slot(env) {
            slot.doing = SlotState::episode(number);
        }
    }

    /// Ends the episode of an environment and drops its actions.
    pub fn end(&mut self, env: EnvIndex) {
        if let Some(slot) = self.slot(env) {
            slot.doing = SlotState::Nothing;
        }
    }

    /// Starts the episode of an environment again, because it was lost.
    pub fn again(&mut self, env: EnvIndex) {
        if let Some(slot) = self.slot(env)
            && let SlotState::Episode { number, .. } = slot.doing
        {
            slot.doing = SlotState::Again(number);
        }
    }

    fn slot(&mut self, env: EnvIndex) -> Option<&mut EnvSlot> {
        self.slots.get_mut(env.0.checked_sub(self.first)?)
    }
}
