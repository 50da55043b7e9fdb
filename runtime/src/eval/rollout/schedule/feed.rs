//! The episodes that have not started yet, and how they are dealt to the environments.
//!
//! An episode that is offered to an environment stays here, at the front, until it starts: in that
//! environment or, if another is free first, there.

use std::collections::VecDeque;
use std::ops::Range;

use jobs::placement::Share;

use crate::eval::lease::Leases;
use crate::eval::rollout::schedule::deal;

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
    /// One for all environments or, if episodes belong to environments, one for each.
    lanes: Vec<Lane>,
    /// Whether leases are asked for more.
    is_leased: bool,
}

struct Lane {
    /// Episodes that were offered and not taken, in ascending order.
    offered: VecDeque<u64>,
    numbers: Numbers,
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
        Self::of(lanes, is_leased)
    }

    /// Returns a feed with these lanes: one for each environment, or one for all.
    pub(super) fn of(lanes: Vec<Numbers>, is_leased: bool) -> Self {
        let lane = |numbers| Lane {
            offered: VecDeque::new(),
            numbers,
        };
        let lanes = lanes.into_iter().map(lane).collect();
        Self { lanes, is_leased }
    }

    /// Removes the next episode for the environment in `slot`.
    pub fn next(&mut self, slot: usize, leases: &mut Option<Leases>) -> Option<u64> {
        let leases = leases.as_mut().filter(|_| self.is_leased);
        let lane = self.lane(slot)?;
        let known = lane.offered.pop_front().or_else(|| lane.numbers.next());
        known.or_else(|| leases?.next_episode())
    }

    /// Returns an episode for each of these slots, as far as there are any: what each may start
    /// next if all end now. They are not removed, and no lease is asked for.
    pub fn offer(&mut self, slots: &[usize], leases: &mut Option<Leases>) -> Vec<Option<u64>> {
        let mut leases = leases.as_mut().filter(|_| self.is_leased);
        let mut given = vec![0; self.lanes.len()];
        let offers = slots.iter().map(|&slot| {
            let lane = self.lane(slot)?;
            let given = match &mut given[..] {
                [for_all] => for_all,
                of_each => &mut of_each[slot],
            };
            if *given == lane.offered.len() {
                let queued = || leases.as_mut()?.queued();
                lane.offered.push_back(lane.numbers.next().or_else(queued)?);
            }
            *given += 1;
            Some(lane.offered[*given - 1])
        });
        offers.collect()
    }

    /// Removes an episode that an environment has begun.
    pub fn take(&mut self, episode: u64) {
        for lane in &mut self.lanes {
            lane.offered.retain(|offered| *offered != episode);
        }
    }

    fn lane(&mut self, slot: usize) -> Option<&mut Lane> {
        let slot = if self.lanes.len() == 1 { 0 } else { slot };
        self.lanes.get_mut(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jobs::assign::lease::NextStep;

    use super::*;
    use crate::eval::tests::leases::{client, serve, work};

    #[test]
    fn an_offer_stays_at_the_front_until_it_is_taken() {
        let mut feed = Feed::new(&Episodes::These((3..6).collect()), 0..3, 3, None);
        assert_eq!(feed.offer(&[0, 1], &mut None), [Some(3), Some(4)]);
        assert_eq!(feed.offer(&[1], &mut None), [Some(3)]);
        feed.take(4);
        assert_eq!(feed.offer(&[0, 1, 2], &mut None), [Some(3), Some(5), None]);
        let next = [2, 1, 0].map(|slot| feed.next(slot, &mut None));
        assert_eq!(next, [Some(3), Some(5), None]);
        assert_eq!(feed.offer(&[0], &mut None), [None]);
    }

    #[test]
    fn an_environment_with_episodes_of_its_own_is_offered_no_others() {
        let share = Share {
            first: 0,
            count: 2,
            total: 2,
        };
        let mut feed = Feed::new(&Episodes::These(vec![0, 1, 2]), 0..2, 2, Some(share));
        assert_eq!(feed.offer(&[1, 0], &mut None), [Some(1), Some(0)]);
        let next = [1, 1, 0, 0].map(|slot| feed.next(slot, &mut None));
        assert_eq!(next, [Some(1), None, Some(0), Some(2)]);
    }

    #[test]
    fn no_lease_is_asked_for_an_offer() {
        let (work, store) = (work(12, 1), serve());
        let mut leases = client(&store, 0, std::slice::from_ref(&work), 3);
        let NextStep::Run(claim) = leases.claim(BTreeSet::new()).unwrap() else {
            panic!("there is work")
        };
        assert!(leases.hold(&claim, &work, true, &[0, 1]));
        leases.visit(&work, vec![0, 1], BTreeSet::new());
        leases.next_build();
        let (mut feed, mut leases) = (Feed::new(&Episodes::Leased, 0..2, 2, None), Some(leases));
        assert_eq!(claim.episodes, 0..3);
        assert_eq!(feed.offer(&[0, 1], &mut leases), [Some(2), None]);
        let next = [1, 0].map(|slot| feed.next(slot, &mut leases));
        assert_eq!(next, [Some(2), Some(3)]);
    }
}
