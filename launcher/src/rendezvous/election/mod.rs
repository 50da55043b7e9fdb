//! The election of a new host when the host of the rendezvous is lost. Pure.
//!
//! The host is the node whose launcher serves the store with the shared state. Every other node
//! has all that is needed to replace it:
//!
//! ```text
//! each node       a copy of the state as it last saw it; a store of its own, which serves nobody
//!                 but holds its mail and becomes the store of the launch if the node is elected
//! the state       epoch, host, version, round; `base`: the nodes of the last round that began, in
//!                 the order of their ranks, with the addresses of their stores; `proposed` and
//!                 `doubtful`: those of later rounds
//! ```
//!
//! **Epochs.** A host is elected for an epoch, a number that only grows; the first host has epoch
//! 0. A node gives its vote for an epoch to one node, and remembers the highest epoch that it has
//! voted in (`promised`). Later it follows no host of an earlier epoch. A node lives as long as its
//! process, so a launcher that is started again never breaks the promise of its predecessor.
//!
//! **Quorum.** A host needs the votes of more than half of `base`. Of an even number, half is
//! enough if it includes the node that hosted when the round was completed: both halves cannot.
//! Nodes that leave in an orderly way vote no more from the moment at which they begin to, and do
//! not count once the state says that they have left. Of two nodes the host alone is a quorum, and
//! the other node is none.
//!
//! **Rounds.** A round includes a quorum of `base`. Its ranks start when each of its nodes has
//! acknowledged, in one epoch, that it has read which nodes these are; then they are `base`. From
//! its completion on, a host needs a quorum of its nodes, too (the joint consensus of Raft). If its
//! host is lost before all know that it began, nobody can tell; it counts until another begins
//! (`doubtful`). So whoever is elected knows the last round that began, the next has a higher
//! number, and no rank of a minority starts.
//!
//! **State.** Nobody votes for a node that has seen less than itself, by epoch and version. The
//! state of the new host is therefore the last that a quorum had read, or a later one.
//!
//! ```text
//!                       Host of no earlier epoch
//!             ┌───────────────────────────────────────┐
//!             ▼                                       │
//!  Following ─┴── Lost ──► Seeking ── polls: who lost the host, too? ──┐
//!      ▲                      ▲ │                                      │ a quorum would vote
//!      │                      │ └◄── too few votes ── asks for votes ◄─┘
//!      │                      │                           │ a quorum voted
//!      └── Host of a later epoch ── Hosting ◄─────────────┘
//! ```
//! A node asks for votes only after a quorum has said that it would vote (the pre-vote of Raft), so
//! a flapping cable of one node does not bring down a host that the others reach. Nodes poll in the
//! order of their ranks, one [`STEP`] apart, so the lowest rank that a quorum reaches is elected.
//! A host that hears of a promise beyond its epoch, from a vote that came to nothing, asks for an
//! epoch later still and keeps its store; otherwise the node that promised could never return. Its
//! votes count for the state that the epoch is written into. It asks once in a [`STEP`] at most:
//! three hosts that call each other would otherwise answer every question with two.
//! Hosts announce themselves to `base`, so a host that was cut off hears from its successor, closes
//! its store and joins as any other node. If the successor is lost already, it hears from those who
//! have seen its state, and votes with them.

pub mod electorate;
pub mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::rendezvous::election::electorate::{Contact, Knowledge};
use crate::rendezvous::election::message::{Ballot, Message};
use crate::rendezvous::state::NodeId;

/// How long a node waits for each node of lower rank before it polls, and the unit of the pause
/// between two of its polls. A poll and its answers take two connections each, a few round trips.
pub const STEP: Duration = Duration::from_millis(300);

/// A node that loses its host again within this time does not ask all others at once: it may have
/// been sent to a host that it alone cannot reach.
const SEEK_AGAIN: Duration = Duration::from_secs(1);

/// Interval at which a host announces itself.
const ANNOUNCE: Duration = Duration::from_secs(1);

/// Something that happened to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionEvent {
    /// The store of the host does not answer any more, or has a state of an earlier epoch.
    Lost,
    /// A message of another node.
    Received(Message),
    /// The time returned by [`Election::deadline`] has come.
    Deadline,
}

/// Something for the driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionAction {
    /// Send a message. It may be lost.
    Send {
        /// Where the node is.
        to: Contact,
        /// The message.
        message: Message,
    },
    /// Use the store of this node from now on, or report [`ElectionEvent::Lost`].
    Follow {
        /// The host.
        host: Contact,
        /// Its epoch.
        epoch: u64,
    },
    /// Serve the state, with this epoch, to all nodes.
    Host {
        /// The epoch.
        epoch: u64,
    },
    /// This node hosts already; write this epoch into the state, if these votes are a quorum
    /// according to the state that it replaces. Other nodes may have changed that.
    Raise {
        /// The epoch.
        epoch: u64,
        /// The nodes that voted.
        votes: BTreeSet<NodeId>,
    },
    /// Serve the state no longer: there has been a host of a later epoch, which is not known.
    Close,
}

/// One node's part in elections.
#[derive(Debug)]
pub struct Election {
    /// This node.
    pub me: Contact,
    /// Identifies the launch; messages of other launches are ignored.
    launch: String,
    role: Role,
    known: Knowledge,
    /// The highest epoch for which this node voted, or whose host it follows.
    promised: u64,
    voted: Option<NodeId>,
    /// The highest epoch that any node was heard to have promised.
    heard: u64,
    /// Nodes that would vote for this one.
    willing: BTreeSet<NodeId>,
    /// The epoch for which this node asked for votes, and who voted.
    votes: Option<(u64, BTreeSet<NodeId>)>,
    /// When this node polls, asks or announces itself next.
    due: Option<Instant>,
    /// When this node asked all others for their host last.
    sought: Option<Instant>,
    /// When this node last asked for votes because it was called while it hosted.
    answered: Option<Instant>,
    /// Whether this node leaves, and neither votes nor asks for votes.
    is_leaving: bool,
    /// The endpoint of the launch, if this is not the node that opened its store there.
    endpoint: Option<Contact>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Role {
    Following { host: Option<Contact>, epoch: u64 },
    Seeking,
    Hosting { epoch: u64 },
}

impl Election {
    /// Returns a node of the launch that hosts the first epoch, or follows its host.
    pub fn new(me: Contact, launch: String, is_host: bool) -> Election {
        let role = match is_host {
            true => Role::Hosting { epoch: 0 },
            false => Role::Following {
                host: None,
                epoch: 0,
            },
        };
        Election {
            me,
            launch,
            role,
            known: Knowledge::default(),
            promised: 0,
            voted: None,
            heard: 0,
            willing: BTreeSet::new(),
            votes: None,
            due: None,
            sought: None,
            answered: None,
            is_leaving: false,
            endpoint: None,
        }
    }

    /// Announces this node at the endpoint, too, once it has been elected. A launcher that is
    /// started again there would otherwise begin a launch of its own.
    #[must_use]
    pub fn at_endpoint(self, addr: &str, port: u16) -> Election {
        let endpoint = Contact {
            addr: addr.to_owned(),
            port,
            ..Contact::default()
        };
        Election {
            endpoint: Some(endpoint),
            ..self
        }
    }

    /// Follows the host of another launch, which has been under way for longer than this one.
    #[must_use]
    pub fn moved_to(self, launch: String, host: Contact, epoch: u64) -> Election {
        let followed = Election::new(self.me, launch, false);
        Election {
            role: Role::Following {
                host: Some(host),
                epoch,
            },
            promised: epoch,
            endpoint: self.endpoint,
            ..followed
        }
    }

    /// Ends the part of this node in elections: it leaves the launch. Others may know that already,
    /// and not count it any more, so from now on it must not vote.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.votes = None;
        self.willing.clear();
    }

    /// Returns when the node needs an [`ElectionEvent::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Returns whether this node hosts the store.
    pub fn is_hosting(&self) -> bool {
        matches!(self.role, Role::Hosting { .. })
    }

    /// Returns whether this node has neither a host nor is one.
    pub fn is_seeking(&self) -> bool {
        self.role == Role::Seeking
    }

    /// Returns the nodes that elect, by id.
    pub fn peers(&self) -> BTreeMap<NodeId, Contact> {
        let all = self.known.electorates.iter().flat_map(|it| &it.nodes);
        let others = all.filter(|contact| contact.id != self.me.id);
        others
            .map(|contact| (contact.id.clone(), contact.clone()))
            .collect()
    }

    /// Returns whether the others can elect a host in place of the one that is known.
    pub fn can_replace_host(&self) -> bool {
        let all = self.known.electorates.iter().flat_map(|it| &it.nodes);
        let is_host = |id: &NodeId| self.known.host.as_ref().is_some_and(|host| host.id == *id);
        let others = all.map(|it| it.id.clone()).filter(|id| !is_host(id));
        self.known.is_quorum(&others.collect())
    }

    /// Returns whether a state of this epoch may be that of the host that this node follows.
    pub fn accepts(&self, epoch: u64) -> bool {
        match self.role {
            Role::Following { epoch: least, .. } | Role::Hosting { epoch: least } => epoch >= least,
            Role::Seeking => epoch >= self.promised,
        }
    }

    /// Learns what the state says, unless it is older than what this node has seen. A node that
    /// follows or hosts learns the epoch, too; one that seeks has left the store.
    pub fn learn(&mut self, known: Knowledge, now: Instant) {
        if known.seen < self.known.seen && !self.known.electorates.is_empty() {
            return;
        }
        if let Role::Following { host, epoch } = &mut self.role {
            *epoch = (*epoch).max(known.seen.epoch);
            *host = known.host.clone().or(host.take());
            self.promised = self.promised.max(*epoch);
        }
        self.known = known;
        if let Role::Hosting { epoch } = &mut self.role {
            let is_raised = *epoch < self.known.seen.epoch;
            *epoch = self.known.seen.epoch.max(*epoch);
            if is_raised {
                self.votes = None;
                self.due = Some(now);
            }
            self.due.get_or_insert(now + ANNOUNCE);
        }
    }

    /// Handles an event that happened at `now`, and returns the actions that follow from it.
    pub fn on(&mut self, event: ElectionEvent, now: Instant) -> Vec<ElectionAction> {
        match (event, &self.role) {
            (ElectionEvent::Lost, Role::Hosting { .. } | Role::Seeking) => Vec::new(),
            (ElectionEvent::Lost, Role::Following { .. }) => self.seek(now),
            (ElectionEvent::Received(message), _) => self.received(message, now),
            (ElectionEvent::Deadline, _) if self.due.is_none_or(|due| now < due) => Vec::new(),
            (ElectionEvent::Deadline, Role::Seeking) => self.poll(now),
            (ElectionEvent::Deadline, Role::Hosting { epoch }) => {
                let epoch = *epoch;
                self.due = Some(now + ANNOUNCE);
                self.announce(epoch)
            }
            (ElectionEvent::Deadline, Role::Following { .. }) => {
                self.due = None;
                Vec::new()
            }
        }
    }

    fn announce(&self, epoch: u64) -> Vec<ElectionAction> {
        let endpoint = self.endpoint.clone().filter(|_| epoch > 0);
        let there = endpoint.map(|to| self.send(to, Ballot::Host { epoch }));
        let all = self.to_all(&Ballot::Host { epoch });
        all.into_iter().chain(there).collect()
    }

    /// Looks for a host, and polls when those of lower rank had their time to.
    fn seek(&mut self, now: Instant) -> Vec<ElectionAction> {
        self.role = Role::Seeking;
        self.willing.clear();
        self.due = Some(now + steps(self.index()));
        if self.sought.is_some_and(|at| now < at + SEEK_AGAIN) {
            return Vec::new();
        }
        self.sought = Some(now);
        self.to_all(&Ballot::Seek)
    }

    /// Returns the pause after a poll. It is longer for nodes of a higher rank, so that two that
    /// got into each other's way do not do so again.
    fn pause(&self) -> Duration {
        steps(self.peers().len() + 2 + self.index())
    }

    /// Asks who would vote for this node.
    fn poll(&mut self, now: Instant) -> Vec<ElectionAction> {
        self.due = Some(now + self.pause());
        if !self.is_elector() || self.is_leaving {
            return self.to_all(&Ballot::Seek);
        }
        self.willing = BTreeSet::from([self.me.id.clone()]);
        let polls = self.to_all(&Ballot::Poll);
        polls.into_iter().chain(self.ask_if_welcome(now)).collect()
    }

    /// Asks for votes once a quorum has said that it would vote.
    fn ask_if_welcome(&mut self, now: Instant) -> Vec<ElectionAction> {
        if !self.known.is_quorum(&self.willing) {
            return Vec::new();
        }
        self.willing.clear();
        self.ask(now)
    }

    /// Votes for itself in a new epoch, and asks the others to do so.
    fn ask(&mut self, now: Instant) -> Vec<ElectionAction> {
        let epoch = self.promised.max(self.heard) + 1;
        self.promised = epoch;
        self.voted = Some(self.me.id.clone());
        self.votes = Some((epoch, BTreeSet::from([self.me.id.clone()])));
        let asks = self.to_all(&Ballot::Ask { epoch });
        asks.into_iter().chain(self.host_if_elected(now)).collect()
    }

    /// Becomes the host if a quorum has voted for the epoch that this node asked for last.
    fn host_if_elected(&mut self, now: Instant) -> Vec<ElectionAction> {
        let Some((epoch, votes)) = &self.votes else {
            return Vec::new();
        };
        let epoch = *epoch;
        if epoch != self.promised || !self.known.is_quorum(votes) {
            return Vec::new();
        }
        if self.is_hosting() {
            let votes = votes.clone();
            return vec![ElectionAction::Raise { epoch, votes }];
        }
        self.votes = None;
        self.role = Role::Hosting { epoch };
        self.due = Some(now + ANNOUNCE);
        [vec![ElectionAction::Host { epoch }], self.announce(epoch)].concat()
    }

    /// Returns the position among the nodes that elect; behind them if it is none of them.
    fn index(&self) -> usize {
        let nodes = self.known.electorates.first().map(|it| &it.nodes);
        let position = nodes.and_then(|nodes| nodes.iter().position(|it| it.id == self.me.id));
        position.unwrap_or_else(|| nodes.map_or(0, Vec::len))
    }

    fn is_elector(&self) -> bool {
        self.known.electorates.iter().any(|it| it.has(&self.me.id))
    }

    fn to_all(&self, ballot: &Ballot) -> Vec<ElectionAction> {
        let peers = self.peers();
        peers
            .into_values()
            .map(|to| self.send(to, ballot.clone()))
            .collect()
    }

    fn send(&self, to: Contact, ballot: Ballot) -> ElectionAction {
        let message = Message {
            launch: self.launch.clone(),
            from: self.me.clone(),
            promised: self.promised,
            seen: self.known.seen,
            ballot,
        };
        ElectionAction::Send { to, message }
    }
}

fn steps(count: usize) -> Duration {
    STEP.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
