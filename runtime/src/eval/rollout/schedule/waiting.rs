//! The episodes that have not started yet. Pure: no I/O.
//!
//! An episode that is offered to an environment stays here, at the front, until it starts: in that
//! environment or, if another is free first, there.

use std::collections::VecDeque;

/// Episode numbers in ascending order. An iterator, because a job in steps has too many to store.
pub type NextEpisodes<'l> = Box<dyn Iterator<Item = u64> + 'l>;

/// Where episodes come from.
pub enum WaitingEpisodes<'l> {
    /// Episodes for any free environment.
    Anyone(NextEpisodes<'l>),
    /// Episodes for any free environment that have to be asked for, and those of them that were
    /// given already.
    Leased {
        /// Asks if none was given.
        all: NextEpisodes<'l>,
        /// Never asks.
        given: NextEpisodes<'l>,
    },
    /// Separate episodes for each environment.
    Own(Vec<NextEpisodes<'l>>),
}

/// The episodes of a group that have not started yet.
pub struct WaitingQueue<'l> {
    source: WaitingEpisodes<'l>,
    /// Episodes that were offered and not taken, in ascending order, with the slot to which they
    /// belong if they belong to one.
    offered: VecDeque<(Option<usize>, u64)>,
}

impl<'l> WaitingQueue<'l> {
    /// Creates a queue from which nothing was offered.
    pub fn new(source: WaitingEpisodes<'l>) -> Self {
        Self {
            source,
            offered: VecDeque::new(),
        }
    }

    /// Removes the next episode for the environment in `slot`.
    pub fn next(&mut self, slot: usize) -> Option<u64> {
        let owner = self.owner(slot);
        if let Some(at) = self.offered.iter().position(|(of, _)| *of == owner) {
            return self.offered.remove(at).map(|(_, episode)| episode);
        }
        match &mut self.source {
            WaitingEpisodes::Anyone(numbers) | WaitingEpisodes::Leased { all: numbers, .. } => {
                numbers.next()
            }
            WaitingEpisodes::Own(slots) => slots.get_mut(slot)?.next(),
        }
    }

    /// Returns an episode for each of these slots, as far as there are any: what each may start next
    /// if all end now. They are not removed.
    pub fn offer(&mut self, slots: &[usize]) -> Vec<Option<u64>> {
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
                    let episode = self.known(slot)?;
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

    /// Returns the next episode of the source, if that needs no question.
    fn known(&mut self, slot: usize) -> Option<u64> {
        match &mut self.source {
            WaitingEpisodes::Anyone(numbers) | WaitingEpisodes::Leased { given: numbers, .. } => {
                numbers.next()
            }
            WaitingEpisodes::Own(slots) => slots.get_mut(slot)?.next(),
        }
    }

    /// Returns the slot that alone may start an episode of `slot`; `None` if any may.
    fn owner(&self, slot: usize) -> Option<usize> {
        matches!(self.source, WaitingEpisodes::Own(_)).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(source: WaitingEpisodes<'static>) -> WaitingQueue<'static> {
        WaitingQueue::new(source)
    }

    #[test]
    fn an_offer_stays_at_the_front_until_it_is_taken() {
        let mut queue = queue(WaitingEpisodes::Anyone(Box::new(3..6)));
        assert_eq!(queue.offer(&[0, 1]), [Some(3), Some(4)]);
        assert_eq!(queue.offer(&[1]), [Some(3)]);
        queue.take(4);
        assert_eq!(queue.offer(&[0, 1, 2]), [Some(3), Some(5), None]);
        assert_eq!([queue.next(2), queue.next(1)], [Some(3), Some(5)]);
        assert_eq!((queue.next(0), queue.offer(&[0])), (None, vec![None]));
    }

    #[test]
    fn an_environment_with_episodes_of_its_own_is_offered_no_others() {
        let own: Vec<NextEpisodes> = vec![Box::new([0, 2].into_iter()), Box::new([1].into_iter())];
        let mut queue = queue(WaitingEpisodes::Own(own));
        assert_eq!(queue.offer(&[1, 0]), [Some(1), Some(0)]);
        assert_eq!([queue.next(1), queue.next(1)], [Some(1), None]);
        assert_eq!([queue.next(0), queue.next(0)], [Some(0), Some(2)]);
    }

    #[test]
    fn nothing_is_asked_for_an_offer() {
        let (all, given) = (Box::new(10u64..), Box::new(3u64..4));
        let mut queue = queue(WaitingEpisodes::Leased { all, given });
        assert_eq!(queue.offer(&[0, 1]), [Some(3), None]);
        assert_eq!([queue.next(1), queue.next(0)], [Some(3), Some(10)]);
    }
}
