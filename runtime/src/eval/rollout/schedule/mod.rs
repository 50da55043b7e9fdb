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
pub mod feed;
pub mod group;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::env::EnvIndex;
use crate::eval::lease::Leases;
use crate::eval::rollout::schedule::company::{Occupant, Retries};
use crate::eval::rollout::schedule::group::Group;

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
    /// The episode that the environment may begin if this step ends the one before.
    pub next: Option<u64>,
}
