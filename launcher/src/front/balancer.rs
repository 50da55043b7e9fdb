//! Which rank gets the next connection: the one that has the fewest; of those that have equally
//! few, the next one in turn. Pure.

use std::collections::BTreeMap;

/// Identifies the link of one start of a rank; a rank that starts again has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// The ranks that take connections, and how many each of them has.
#[derive(Debug, Default)]
pub struct Balancer {
    ranks: BTreeMap<LinkId, RankLoad>,
    /// The place in turn of the rank that got the last connection.
    last: Option<(usize, LinkId)>,
}

#[derive(Clone, Copy, Debug)]
struct RankLoad {
    local_rank: usize,
    /// Connections that it got here and that are open.
    connections: u64,
}

impl Balancer {
    /// Adds a rank that is ready.
    pub fn join(&mut self, link: LinkId, local_rank: usize) {
        let load = RankLoad {
            local_rank,
            connections: 0,
        };
        self.ranks.insert(link, load);
    }

    /// Removes a rank with its connections. Returns its local rank, if it was there.
    pub fn leave(&mut self, link: LinkId) -> Option<usize> {
        self.ranks.remove(&link).map(|load| load.local_rank)
    }

    /// Counts a connection that a rank got.
    pub fn opened(&mut self, link: LinkId) {
        if let Some(load) = self.ranks.get_mut(&link) {
            load.connections += 1;
            self.last = Some((load.local_rank, link));
        }
    }

    /// Counts connections of a rank that were closed.
    pub fn closed(&mut self, link: LinkId, count: u64) {
        if let Some(load) = self.ranks.get_mut(&link) {
            load.connections = load.connections.saturating_sub(count);
        }
    }

    /// Returns the ranks in the order in which the next connection is offered to them.
    pub fn order(&self) -> Vec<LinkId> {
        let mut ranks: Vec<_> = self.ranks.iter().collect();
        ranks.sort_by_key(|(link, load)| {
            let place = (load.local_rank, **link);
            let had_its_turn = self.last.is_some_and(|last| place <= last);
            (load.connections, had_its_turn, place)
        });
        ranks.into_iter().map(|(link, _)| *link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a balancer in which the local ranks `0..count` are ready.
    fn balancer(count: usize) -> Balancer {
        let mut balancer = Balancer::default();
        for local_rank in 0..count {
            balancer.join(LinkId(local_rank as u64), local_rank);
        }
        balancer
    }

    /// Gives away one connection; returns who got it.
    fn give(balancer: &mut Balancer) -> u64 {
        let link = balancer.order()[0];
        balancer.opened(link);
        link.0
    }

    fn give_many(balancer: &mut Balancer, count: usize) -> Vec<u64> {
        (0..count).map(|_| give(balancer)).collect()
    }

    #[test]
    fn connections_are_spread_evenly() {
        let mut balancer = balancer(3);
        assert_eq!(give_many(&mut balancer, 6), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn the_rank_with_the_fewest_connections_is_next() {
        let mut balancer = balancer(3);
        give_many(&mut balancer, 6);
        balancer.closed(LinkId(1), 2);
        assert_eq!([give(&mut balancer), give(&mut balancer)], [1, 1]);
        assert_eq!(give(&mut balancer), 2);
    }

    #[test]
    fn ranks_with_equally_few_take_turns_even_if_each_connection_is_short() {
        let mut balancer = balancer(3);
        let mut given = Vec::new();
        for _ in 0..4 {
            let link = give(&mut balancer);
            balancer.closed(LinkId(link), 1);
            given.push(link);
        }
        assert_eq!(given, [0, 1, 2, 0]);
    }

    #[test]
    fn a_rank_that_comes_back_begins_without_connections() {
        let mut balancer = balancer(2);
        give_many(&mut balancer, 4);
        assert_eq!(balancer.leave(LinkId(0)), Some(0));
        assert_eq!(balancer.leave(LinkId(0)), None);
        assert_eq!(give(&mut balancer), 1);
        balancer.join(LinkId(9), 0);
        assert_eq!(give_many(&mut balancer, 3), [9, 9, 9]);
    }

    #[test]
    fn nobody_is_ready_at_first() {
        assert!(balancer(0).order().is_empty());
    }
}
