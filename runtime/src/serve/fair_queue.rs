//! Decides whose turn it is: start-time fair queueing, a data structure without sockets or clocks.
//!
//! Each client has a virtual time up to which it has been served. A job is tagged with the client's
//! time, or with that of the queue if the client was idle, and its cost is added to the client's
//! time. The job with the lowest tag is next. So a client with small requests overtakes the backlog
//! of one with large requests, and no client with waiting work falls behind another by more than
//! the cost of their largest jobs. Goyal, Vin, Cheng: Start-time Fair Queuing, SIGCOMM 1996.

use std::collections::{BTreeMap, HashMap};

use crate::serve::connections::ConnectionId;

/// A queue of the clients' jobs in fair order.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// Tag of the job that was taken last.
    virtual_time: u64,
    /// Ordered by tag. Among equal tags, the job of a client that was idle comes first, then the
    /// cheaper one, then the older one.
    waiting: BTreeMap<QueuePosition, (ConnectionId, T)>,
    /// Tags of the next jobs of clients that were served ahead of the virtual time.
    served_until: HashMap<ConnectionId, u64>,
    pushed: u64,
}

/// The position of a job in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    tag: u64,
    /// True if the client has been served up to this tag; false if it was idle.
    is_backlogged: bool,
    cost: u64,
    number: u64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            virtual_time: 0,
            waiting: BTreeMap::new(),
            served_until: HashMap::new(),
            pushed: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Returns the number of waiting jobs.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no job is waiting.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a job of a client that costs `cost`, in any unit that is the same for all jobs.
    pub fn push(&mut self, client: ConnectionId, cost: u64, job: T) {
        let served_until = self.served_until.get(&client).copied().unwrap_or_default();
        let place = QueuePosition {
            tag: served_until.max(self.virtual_time),
            is_backlogged: served_until > self.virtual_time,
            cost,
            number: self.pushed,
        };
        self.served_until
            .insert(client, place.tag.saturating_add(cost));
        self.pushed += 1;
        self.waiting.insert(place, (client, job));
    }

    /// Returns the jobs in the order in which they would be taken if no others came.
    pub fn iter(&self) -> impl Iterator<Item = (QueuePosition, ConnectionId, &T)> {
        self.waiting
            .iter()
            .map(|(place, (client, job))| (*place, *client, job))
    }

    /// Removes a job out of turn. The virtual time of the queue is not set back by the jobs it
    /// overtook.
    pub fn take(&mut self, place: QueuePosition) -> Option<(ConnectionId, T)> {
        let taken = self.waiting.remove(&place)?;
        self.virtual_time = self.virtual_time.max(place.tag);
        Some(taken)
    }

    /// Drops the jobs for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(ConnectionId, &T) -> bool) {
        self.waiting.retain(|_, (client, job)| keep(*client, job));
    }

    /// Removes a client and its jobs.
    pub fn leave(&mut self, client: ConnectionId) {
        self.retain(|other, _| other != client);
        self.served_until.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl<T> FairQueue<T> {
        /// Removes and returns the next job.
        fn pop(&mut self) -> Option<(ConnectionId, T)> {
            let place = *self.waiting.first_key_value()?.0;
            self.take(place)
        }
    }

    /// Returns the jobs in the order in which they are taken: `1*9:ab` are two of client 1 that
    /// cost 9 each, `-2` takes two, and `!1` is the end of client 1.
    fn order(given: &str) -> String {
        let mut queue = FairQueue::default();
        let mut taken = String::new();
        for word in given.split_whitespace() {
            if let Some(count) = word.strip_prefix('-') {
                let count: usize = count.parse().unwrap();
                taken.extend((0..count).map(|_| queue.pop().unwrap().1));
            } else if let Some(client) = word.strip_prefix('!') {
                queue.leave(ConnectionId(client.parse().unwrap()));
            } else {
                let (whose, jobs) = word.split_once(':').unwrap();
                let (client, cost) = whose.split_once('*').unwrap();
                let client = ConnectionId(client.parse().unwrap());
                for job in jobs.chars() {
                    queue.push(client, cost.parse().unwrap(), job);
                }
            }
        }
        let left = queue.len();
        taken.extend(std::iter::from_fn(|| queue.pop().map(|(_, job)| job)));
        assert!(taken.len() >= left && queue.is_empty());
        taken
    }

    #[test]
    fn clients_take_turns_by_what_their_jobs_cost() {
        rig::cases::check("src/serve/fair_queue.txt", order);
    }

    proptest! {
        /// The theorem of the paper: for two clients that both have work waiting all the time, the
        /// service they received differs by at most one largest job of each.
        #[test]
        fn clients_with_work_waiting_are_served_alike(
            costs in proptest::collection::vec(proptest::collection::vec(1u64..50, 60..100), 2..6),
            late in 0usize..30,
        ) {
            let mut queue = FairQueue::default();
            let largest: Vec<u64> = costs.iter().map(|costs| costs.iter().copied().max().unwrap_or(0)).collect();
            let push = |queue: &mut FairQueue<u64>, client: usize| {
                costs[client].iter().for_each(|cost| queue.push(ConnectionId(client as u64), *cost, *cost));
            };
            (1..costs.len()).for_each(|client| push(&mut queue, client));
            for _ in 0..late {
                queue.pop();
            }
            // One client comes late.
            push(&mut queue, 0);
            let mut served = vec![0; costs.len()];
            let mut left: Vec<usize> =
                (0..costs.len()).map(|client| queue.iter().filter(|(_, id, _)| id.0 == client as u64).count()).collect();
            while left.iter().all(|left| *left > 0) {
                let (client, cost) = queue.pop().unwrap();
                served[client.0 as usize] += cost;
                left[client.0 as usize] -= 1;
                for (a, b) in (0..costs.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
                    prop_assert!(u64::abs_diff(served[a], served[b]) <= largest[a] + largest[b], "{served:?}");
                }
            }
        }

        #[test]
        fn every_job_is_taken_once(jobs in proptest::collection::vec((0u64..5, 0u64..9), 0..100)) {
            let mut queue = FairQueue::default();
            jobs.iter().enumerate().for_each(|(job, (client, cost))| queue.push(ConnectionId(*client), *cost, job));
            let mut taken: Vec<usize> = std::iter::from_fn(|| queue.pop().map(|(_, job)| job)).collect();
            taken.sort_unstable();
            prop_assert_eq!(taken, (0..jobs.len()).collect::<Vec<_>>());
        }
    }
}
