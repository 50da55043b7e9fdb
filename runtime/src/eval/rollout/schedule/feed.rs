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
    source: Source,
    /// Episodes that were offered and not taken, in ascending order, with the slot to which they
    /// belong if they belong to one.
    offered: VecDeque<(Option<usize>, u64)>,
}

enum Source {
    /// Episodes for any free environment.
    Anyone(Numbers),
    /// Separate episodes for each environment.
    Own(Vec<Numbers>),
    /// Episodes for any free environment that leases have to be asked for.
    Leased,
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
        let of_build =
            |numbers: Numbers, build, of| -> Numbers { Box::new(numbers.skip(build).step_by(of)) };
        let source = match (episodes, share) {
            (Episodes::Leased, _) => Source::Leased,
            (&Episodes::Steps { build, of }, None) => {
                let dealt = Box::new(deal(0.., num_envs, envs));
                Source::Anyone(of_build(dealt, build, of))
            }
            (Episodes::These(episodes), None) => {
                Source::Anyone(Box::new(deal(episodes.clone(), num_envs, envs)))
            }
            (&Episodes::Steps { build, of }, Some(share)) => {
                let own = |slot| of_build(Box::new(share.numbers(slot)), build, of);
                Source::Own(envs.map(own).collect())
            }
            (Episodes::These(episodes), Some(share)) => {
                let own = |slot| -> Numbers {
                    let all = episodes.iter().copied();
                    let own = all.filter(|episode| share.slot(*episode) == Some(slot));
                    Box::new(own.collect::<Vec<_>>().into_iter())
                };
                Source::Own(envs.map(own).collect())
            }
        };
        Self::of(source)
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            offered: VecDeque::new(),
        }
    }

    /// Returns a feed of these episodes for any environment.
    #[cfg(test)]
    pub fn anyone(episodes: impl Iterator<Item = u64> + 'static) -> Self {
        Self::of(Source::Anyone(Box::new(episodes)))
    }

    /// Removes the next episode for the environment in `slot`.
    pub fn next(&mut self, slot: usize, leases: &mut Option<Leases>) -> Option<u64> {
        let owner = self.owner(slot);
        if let Some(at) = self.offered.iter().position(|(of, _)| *of == owner) {
            return self.offered.remove(at).map(|(_, episode)| episode);
        }
        match &mut self.source {
            Source::Anyone(numbers) => numbers.next(),
            Source::Own(slots) => slots.get_mut(slot)?.next(),
            Source::Leased => leases.as_mut()?.next(),
        }
    }

    /// Returns an episode for each of these slots, as far as there are any: what each may start
    /// next if all end now. They are not removed, and no lease is asked for.
    pub fn offer(&mut self, slots: &[usize], leases: &mut Option<Leases>) -> Vec<Option<u64>> {
        let mut taken = Vec::with_capacity(slots.len());
        let offers = slots.iter().map(|&slot| {
            let owner = self.owner(slot);
            let is_free = |(at, (of, _)): (usize, &(Option<usize>, u64))| {
                (*of == owner && !taken.contains(&at)).then_some(at)
            };
            let found = self.offered.iter().enumerate().find_map(is_free);
            let at = match found {
                Some(at) => at,
                None => {
                    let episode = match &mut self.source {
                        Source::Anyone(numbers) => numbers.next(),
                        Source::Own(slots) => slots.get_mut(slot)?.next(),
                        Source::Leased => leases.as_mut()?.queued(),
                    }?;
                    self.offered.push_back((owner, episode));
                    self.offered.len() - 1
                }
            };
            taken.push(at);
            Some(self.offered[at].1)
        });
        offers.collect()
    }

    /// Removes an episode that an environment has begun.
    pub fn take(&mut self, episode: u64) {
        self.offered.retain(|(_, offered)| *offered != episode);
    }

    /// Returns the slot that alone may start an episode of `slot`; `None` if any may.
    fn owner(&self, slot: usize) -> Option<usize> {
        matches!(self.source, Source::Own(_)).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jobs::assign::lease::NextStep;

    use super::*;
    use crate::eval::lease::testing::{client, serve, work};

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
        let (mut feed, mut leases) = (Feed::of(Source::Leased), Some(leases));
        assert_eq!(claim.episodes, 0..3);
        assert_eq!(feed.offer(&[0, 1], &mut leases), [Some(2), None]);
        let next = [1, 0].map(|slot| feed.next(slot, &mut leases));
        assert_eq!(next, [Some(2), Some(3)]);
    }
}
