//! Decides which environment runs which episode, and which action of its chunk comes next. Pure: no
//! I/O.
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

use std::collections::BTreeMap;
use std::ops::Range;

use jobs::placement::Share;

use crate::env::EnvIndex;
use crate::eval::lease::Leases;
use crate::eval::rollout::schedule::company::{Occupant, Retries};
use crate::eval::rollout::schedule::group::Group;

pub mod action_queue;
pub mod company;
pub mod group;
#[cfg(test)]
mod tests;

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
    groups: &mut [Group],
    index: usize,
    retries: &mut Retries,
    leases: &mut Option<Leases>,
    process: impl Fn(EnvIndex) -> Range<usize>,
) -> Vec<(EnvIndex, u64)> {
    if !retries.is_restricting() {
        return groups[index].start(leases);
    }
    let all = groups.iter();
    let occupants: Vec<_> = all.flat_map(|group| group.occupants()).collect();
    let mut company = retries.company(&occupants, &process);
    let room_of = |found: &Occupant| Some((found.env, retries.room(found.episode)?));
    let rooms: BTreeMap<_, _> = occupants.iter().filter_map(room_of).collect();
    let group = &mut groups[index];
    let mut starts = Vec::new();
    for env in group.envs.clone().map(EnvIndex) {
        let (first, room) = (process(env).start, rooms.get(&env).copied());
        if company.may_start(first, room)
            && let Some(episode) = group.start_in(env, leases)
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
}

/// Episode numbers in ascending order. An iterator, because a job in steps has too many to store.
pub type Numbers = Box<dyn Iterator<Item = u64>>;

/// The episodes of one build of the environments.
pub enum Episodes {
    /// A fixed list of episodes.
    These(Vec<u64>),
    /// As many episodes as fit into the job's steps. How many they are is not known in advance, so
    /// the builds of a job take turns with the numbers of episodes.
    Steps {
        /// Number of the build within the job.
        build: usize,
        /// Number of builds, at least 1.
        of: usize,
    },
    /// The episodes that the rank gets leases for.
    Leased,
}

/// The episodes of a group that have not started yet.
pub struct Feed {
    /// One lane for all environments or, if episodes belong to environments, one for each.
    lanes: Vec<Numbers>,
    /// Whether leases are asked for more.
    is_leased: bool,
}

impl Feed {
    /// Returns those of `episodes` that are for the environments `envs` of `num_envs`. Those of a
    /// shared job belong to environments, so that each environment has the same ones at any number
    /// of ranks. Those of another job go to any free environment.
    pub fn new(
        episodes: &Episodes,
        envs: Range<usize>,
        num_envs: usize,
        share: Option<Share>,
    ) -> Self {
        let numbers = |slot: usize| -> Numbers {
            let envs = envs.clone();
            match (episodes, share) {
                (Episodes::Leased, _) => Box::new(std::iter::empty()),
                (Episodes::These(these), None) => Box::new(deal(these.clone(), num_envs, envs)),
                (Episodes::These(these), Some(share)) => {
                    let is_own = move |episode: &u64| share.slot(*episode) == Some(slot);
                    Box::new(these.clone().into_iter().filter(is_own))
                }
                (Episodes::Steps { build, of }, None) => {
                    Box::new(deal(0.., num_envs, envs).skip(*build).step_by(*of))
                }
                (Episodes::Steps { build, of }, Some(share)) => {
                    Box::new(share.numbers(slot).skip(*build).step_by(*of))
                }
            }
        };
        let is_leased = matches!(episodes, Episodes::Leased);
        let lanes = match share {
            Some(_) if !is_leased => envs.clone().map(numbers).collect(),
            _ => vec![numbers(0)],
        };
        Self { lanes, is_leased }
    }

    /// Removes the next episode for the environment in `slot`.
    pub fn next(&mut self, slot: usize, leases: &mut Option<Leases>) -> Option<u64> {
        let leases = leases.as_mut().filter(|_| self.is_leased);
        let lane = if self.lanes.len() == 1 { 0 } else { slot };
        let known = self.lanes.get_mut(lane)?.next();
        known.or_else(|| leases?.next_episode())
    }
}
