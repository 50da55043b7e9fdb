//! The state machine of one node in the rendezvous: compares its goal with the shared state, and
//! returns what to write and what to tell the agent. Pure.
//!
//! ```text
//!  Join ──► Joining ──world complete, its master known──► Staying ──Done, all are──► Out
//!              ▲                                            │
//!              └────── Join: leave, join again ◄──Changed───┘        Leave: ──► Leaving ──► Left
//! ```
//! An event sets a goal, which is kept until the state reflects it, because any write may lose
//! against that of another node. The state is then read again, and the same goal leads to another
//! write.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::plan::RendezvousPlan;
use crate::rendezvous::RendezvousCommand::{self, Done, Failed, Join, Leave, LostRank};
use crate::rendezvous::place::{Master, NodePlace};
use crate::rendezvous::state::{NodeFailure, NodeId, NodeInfo, RendezvousClosed, RendezvousState};

/// An event other than a change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinEvent {
    /// The shared state was read or written.
    Seen,
    /// The agent wants something. Its failures name this node, and a reason to leave ends the
    /// launch for all.
    Command(RendezvousCommand),
    /// The ranks' store that [`JoinAction::Host`] asked for is ready.
    Hosted {
        /// The round of the store.
        round: u64,
        /// Address of the store.
        master: Master,
    },
    /// These nodes are dead.
    Gone(BTreeSet<NodeId>),
    /// The time returned by [`Member::deadline`] has come.
    Deadline,
}

/// Something for the shared rendezvous to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinAction {
    /// Replace the shared state by this one. [`JoinEvent::Seen`] follows, whether that worked or
    /// not.
    Write(Box<RendezvousState>),
    /// Host a store for the ranks of this round.
    Host {
        /// The round.
        round: u64,
    },
    /// Tell the agent to start the ranks.
    Joined(NodePlace),
    /// Tell the agent that the round is over for this reason: end the ranks and join again.
    Changed(String),
    /// Tell the agent that the launch is over for all nodes.
    Over {
        /// How it ended.
        how: RendezvousClosed,
        /// Whether this node came after the end.
        is_late: bool,
    },
    /// Tell the agent that too few nodes came in time.
    TimedOut {
        /// Number of nodes that came, this one included.
        came: usize,
    },
    /// This node has left: the state no longer lists it.
    Left,
}

/// One node of the rendezvous.
#[derive(Debug)]
pub struct Member {
    me: NodeId,
    node_info: NodeInfo,
    plan: RendezvousPlan,
    goal: Goal,
    /// Whether the state has listed this node since it began to join.
    was_known: bool,
    /// The round of the current last call, and when the call ends.
    last_call: Option<(u64, Instant)>,
    hosting: Option<u64>,
    hosted: Option<(u64, Master)>,
    gone: BTreeSet<NodeId>,
    /// Whether this node hosts the shared state.
    is_host: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    /// The node waits for its place in a round other than `but`, in which it was before.
    Joining {
        until: Instant,
        but: Option<u64>,
    },
    Staying(Stay),
    Leaving {
        closes: Option<NodeFailure>,
        is_told: bool,
    },
    Out,
}

/// What a node in a round wants the state to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stay {
    round: u64,
    failed: Option<(NodeFailure, bool)>,
    lost: Option<NodeFailure>,
    is_done: bool,
    /// Whether the agent knows how the round ends.
    is_told: bool,
}

impl Member {
    /// Returns a node without a goal.
    pub fn new(plan: RendezvousPlan, node_info: NodeInfo) -> Member {
        Member {
            me: plan.node_id.clone(),
            node_info,
            plan,
            goal: Goal::Out,
            was_known: false,
            last_call: None,
            hosting: None,
            hosted: None,
            gone: BTreeSet::new(),
            is_host: false,
        }
    }

    /// Says whether this node hosts the shared state. If it is another one than before, nothing
    /// counts that was seen or asked for there.
    pub fn set_host(&mut self, is_host: bool) {
        self.is_host = is_host;
        self.gone.clear();
        if self.hosted.as_ref().map(|(round, _)| *round) != self.hosting {
            self.hosting = None;
        }
    }

    /// Ends the round of a node that has lost the shared state; returns what to tell the agent, if
    /// its ranks run.
    pub fn cut_off(&mut self) -> Option<JoinAction> {
        let why = "the host of the rendezvous is lost; the ranks end, until there is another";
        match &mut self.goal {
            Goal::Staying(stay) if !stay.is_done && !stay.is_told => {
                stay.is_told = true;
                Some(JoinAction::Changed(why.to_owned()))
            }
            _ => None,
        }
    }

    /// Returns whether the node was told to leave for good.
    pub fn is_leaving(&self) -> bool {
        matches!(self.goal, Goal::Leaving { .. })
    }

    /// Returns when the node needs a [`JoinEvent::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        let Goal::Joining { until, .. } = self.goal else {
            return None;
        };
        Some(self.last_call.map_or(until, |(_, at)| at.min(until)))
    }

    /// Returns whether this node waits for its place in a round.
    pub fn is_joining(&self) -> bool {
        matches!(self.goal, Goal::Joining { .. })
    }

    /// Handles an event that happened at `now`; `state` is the last known state. Returns the
    /// actions that follow from it.
    pub fn on(
        &mut self,
        event: JoinEvent,
        state: &RendezvousState,
        now: Instant,
    ) -> Vec<JoinAction> {
        self.remember(event, now);
        self.was_known |= self.is_joining() && state.knows(&self.me);
        self.keep_time(state, now);
        self.gone.retain(|id| state.knows(id));
        let mut next = state.clone();
        self.change(&mut next, now);
        if next != *state {
            return vec![write(next)];
        }
        let told = self.tell(state, now);
        // `tell` may have changed the goal.
        self.change(&mut next, now);
        told.into_iter()
            .chain((next != *state).then(|| write(next)))
            .collect()
    }

    /// Keeps what the agent wants until the state agrees with it.
    pub fn remember(&mut self, event: JoinEvent, now: Instant) {
        match (event, &mut self.goal) {
            (JoinEvent::Seen | JoinEvent::Deadline, _)
            | (JoinEvent::Command(Join), Goal::Joining { .. }) => {}
            (JoinEvent::Command(Join), goal) => {
                let but = match goal {
                    Goal::Staying(stay) => Some(stay.round),
                    _ => None,
                };
                self.goal = Goal::Joining {
                    until: now + self.plan.join_timeout,
                    but,
                };
                self.was_known = false;
            }
            (JoinEvent::Command(Failed { failure, restarts }), Goal::Staying(stay)) => {
                stay.failed.get_or_insert((failure, restarts));
            }
            (JoinEvent::Command(LostRank { failure }), Goal::Staying(stay)) => {
                stay.lost.get_or_insert(failure);
            }
            (JoinEvent::Command(Done), Goal::Staying(stay)) => stay.is_done = true,
            (JoinEvent::Command(Leave { why }), goal) => {
                *goal = Goal::Leaving {
                    closes: why,
                    is_told: false,
                }
            }
            (JoinEvent::Hosted { round, master }, _) => self.hosted = Some((round, master)),
            (JoinEvent::Gone(ids), _) => self
                .gone
                .extend(ids.into_iter().filter(|id| *id != self.me)),
            (
                JoinEvent::Command(Failed { .. } | LostRank { .. } | Done),
                Goal::Joining { .. } | Goal::Leaving { .. } | Goal::Out,
            ) => {}
        }
    }

    /// Updates the last call, which begins when this node sees `min` participants and a quorum. The first node
    /// whose last call ends completes the round for all.
    fn keep_time(&mut self, state: &RendezvousState, now: Instant) {
        let are_enough = state.participants.len() >= self.plan.min && state.has_quorum();
        let is_called = !state.is_complete() && are_enough;
        self.last_call = match self.last_call {
            _ if !is_called => None,
            Some((round, at)) if round == state.round => Some((round, at)),
            _ => Some((state.round, now + self.plan.last_call_timeout)),
        };
        if let Goal::Joining { until, .. } = &mut self.goal
            && state.redundancy_list.contains(&self.me)
        {
            *until = now + self.plan.join_timeout;
        }
    }

    /// Changes the state towards this node's goal.
    fn change(&self, next: &mut RendezvousState, now: Instant) {
        self.gone.iter().for_each(|id| next.remove(id));
        match &self.goal {
            Goal::Joining { until, .. } if next.closed.is_some() || now >= *until => {
                next.remove(&self.me)
            }
            Goal::Joining { but, .. } => self.join(next, *but, now),
            Goal::Staying(stay)
                if next.round != stay.round || !next.participants.contains_key(&self.me) => {}
            Goal::Staying(stay) => {
                if next.is_whole() {
                    next.acknowledge(&self.me);
                }
                if let Some(failure) = &stay.lost {
                    next.lost.get_or_insert(failure.clone());
                }
                if let Some((failure, restarts)) = &stay.failed {
                    next.fail(failure.clone(), *restarts);
                }
                // The first node to notice the loss names the lost node; later observers would see
                // more nodes missing, because those leave in turn.
                if let Some(failure) = next.loss().filter(|_| self.plan.backend.is_fixed()) {
                    next.fail(failure, false);
                }
                if stay.is_done {
                    next.finish(&self.me);
                }
            }
            Goal::Leaving { closes, .. } => {
                if let Some(failure) = closes {
                    next.fail(failure.clone(), false);
                }
                next.leave(&self.me);
            }
            Goal::Out => next.remove(&self.me),
        }
    }

    fn join(&self, next: &mut RendezvousState, but: Option<u64>, now: Instant) {
        let is_in = next.participants.contains_key(&self.me);
        let is_usable = but != Some(next.round) && next.is_whole() && next.failure.is_none();
        if self.is_host {
            next.host = Some(self.me.clone());
        }
        if is_in && next.is_complete() && !is_usable {
            next.remove(&self.me);
        }
        if !next.participants.contains_key(&self.me) {
            self.come(next);
        }
        if !next.is_complete()
            && next.participants.contains_key(&self.me)
            && self.is_full(next, now)
        {
            // A node acknowledges only what it has read: the answer to this write may be lost.
            next.complete();
        } else if next.is_whole() && next.node(&self.me).is_some() && next.failure.is_none() {
            next.acknowledge(&self.me);
        }
        if let Some((round, master)) = &self.hosted
            && *round == next.round
            && next.node(&self.me) == Some(0)
        {
            next.master.get_or_insert(master.clone());
        }
    }

    fn come(&self, next: &mut RendezvousState) {
        if next.has_place_for(&self.me, self.plan.max) {
            next.add(&self.me, self.node_info.clone());
        } else if next.participants.len() < self.plan.max {
            next.redundancy_list.remove(&self.me);
            next.wait_list.insert(self.me.clone());
        } else {
            next.wait_list.remove(&self.me);
            next.redundancy_list.insert(self.me.clone());
        }
    }

    fn is_full(&self, state: &RendezvousState, now: Instant) -> bool {
        let count = state.participants.len();
        let is_over = self
            .last_call
            .is_some_and(|(round, at)| round == state.round && now >= at);
        let is_called = count >= self.plan.min && (state.is_reunited() || is_over);
        state.has_quorum() && (count == self.plan.max || is_called)
    }

    /// Returns what the agent has to know, once the state agrees with this node's goal.
    fn tell(&mut self, state: &RendezvousState, now: Instant) -> Option<JoinAction> {
        match &mut self.goal {
            Goal::Joining { until, .. } => {
                let is_over = now >= *until;
                self.tell_joining(state, is_over)
            }
            Goal::Staying(stay) if !stay.is_told => {
                let told = stay.tell(state, &self.me, self.plan.max);
                if let Some(JoinAction::Over { .. }) = told {
                    self.goal = Goal::Out;
                }
                told
            }
            Goal::Leaving { is_told, .. } if !state.knows(&self.me) => {
                (!std::mem::replace(is_told, true)).then_some(JoinAction::Left)
            }
            Goal::Staying(_) | Goal::Leaving { .. } | Goal::Out => None,
        }
    }

    fn tell_joining(&mut self, state: &RendezvousState, is_over: bool) -> Option<JoinAction> {
        if let Some(how) = &state.closed {
            self.goal = Goal::Out;
            return Some(JoinAction::Over {
                how: how.clone(),
                is_late: !self.was_known,
            });
        }
        if is_over {
            self.goal = Goal::Out;
            return Some(JoinAction::TimedOut {
                came: state.participants.len() + 1,
            });
        }
        let node = state
            .node(&self.me)
            .filter(|_| state.participants.contains_key(&self.me))?;
        match state.place(&self.me).filter(|_| state.has_begun()) {
            Some(place) => {
                self.goal = Goal::Staying(Stay {
                    round: state.round,
                    ..Stay::default()
                });
                Some(JoinAction::Joined(place))
            }
            None if node == 0 && self.hosting != Some(state.round) => {
                self.hosting = Some(state.round);
                Some(JoinAction::Host { round: state.round })
            }
            None => None,
        }
    }
}

impl Stay {
    /// Returns how the round ends for the node `me`, if it does.
    fn tell(&mut self, state: &RendezvousState, me: &str, max: usize) -> Option<JoinAction> {
        let action = match &state.closed {
            Some(RendezvousClosed::Succeeded) if !self.is_done => None,
            // The agent knows about a failure of this node.
            Some(RendezvousClosed::Failed(_)) | None if self.failed.is_some() => None,
            Some(how) => Some(JoinAction::Over {
                how: how.clone(),
                is_late: false,
            }),
            None => state.broken(self.round, me, max).map(JoinAction::Changed),
        };
        self.is_told = action.is_some();
        action
    }
}

fn write(mut next: RendezvousState) -> JoinAction {
    next.version += 1;
    JoinAction::Write(Box::new(next))
}

#[cfg(test)]
mod tests;
