//! Nodes with their stores in a simulated network. Messages and replies of a store may be lost,
//! late or in another order; nodes may die, and come.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::plan::{Backend, RendezvousPlan};
use crate::rendezvous::RendezvousCommand;
use crate::rendezvous::election::electorate::Contact;
use crate::rendezvous::election::message::Message;
use crate::rendezvous::election::tests::history::Started;
use crate::rendezvous::election::tests::random::Random;
use crate::rendezvous::election::{Election, ElectionAction, ElectionEvent};
use crate::rendezvous::join::{JoinAction, JoinEvent, Member};
use crate::rendezvous::place::Master;
use crate::rendezvous::state::{NodeId, NodeInfo, RendezvousState};

const SECOND: Duration = Duration::from_secs(1);

pub struct SimulatedNode {
    pub member: Member,
    pub election: Election,
    /// The state as the node last saw it.
    pub view: RendezvousState,
    /// The node whose store it uses.
    pub link: Option<usize>,
    /// The state in its own store, if it hosts.
    pub server: Option<RendezvousState>,
    pub is_alive: bool,
    /// It was told to end, whether or not it has a store to say so.
    pub is_leaving: bool,
    /// Told to stop its ranks, and to join again.
    pub must_join: bool,
    /// The highest epoch of any state that it has used.
    pub followed: u64,
}

/// A compare-and-set that is on its way to a store.
struct Request {
    host: usize,
    expected: RendezvousState,
    next: RendezvousState,
}

pub struct World {
    pub nodes: Vec<SimulatedNode>,
    pub now: Instant,
    pub random: Random,
    /// Nodes of different sides do not reach each other.
    pub side: Vec<usize>,
    pub mail: Vec<(usize, usize, Message)>,
    /// One of so many replies of a store is lost after the request was executed; 0 for none.
    pub loss: usize,
    /// One of so many requests to a store is executed long after the node has given it up; 0 for
    /// none.
    pub delay: usize,
    late: Vec<Request>,
    pub started: Vec<Started>,
    /// The rounds that have begun in some store, whether or not a node has heard of it.
    pub begun: Vec<Started>,
    /// The host of each epoch.
    pub hosts: std::collections::BTreeMap<u64, usize>,
}

pub fn id(node: usize) -> NodeId {
    format!("id{node}")
}

pub fn contact(node: usize) -> Contact {
    Contact {
        id: id(node),
        addr: format!("node{node}"),
        port: 1,
    }
}

impl World {
    /// Returns `size` nodes of a launch whose first node hosts; none has joined yet.
    pub fn new(size: usize, min: usize, seed: u64) -> World {
        let first = RendezvousState {
            launch: "launch".to_owned(),
            ..RendezvousState::default()
        };
        let node = |index: usize| {
            let plan = RendezvousPlan {
                backend: Backend::C10d,
                min,
                max: size,
                node_id: id(index),
                last_call_timeout: SECOND,
                join_timeout: 100_000 * SECOND,
                ..RendezvousPlan::default()
            };
            let info = NodeInfo {
                addr: format!("node{index}"),
                nproc: 1,
                peer_port: Some(1),
                ..NodeInfo::default()
            };
            let mut member = Member::new(plan, info);
            member.set_host(index == 0);
            SimulatedNode {
                member,
                election: Election::new(contact(index), "launch".to_owned(), index == 0),
                view: first.clone(),
                link: Some(0),
                server: (index == 0).then(|| first.clone()),
                is_alive: true,
                is_leaving: false,
                must_join: true,
                followed: 0,
            }
        };
        World {
            nodes: (0..size).map(node).collect(),
            now: Instant::now(),
            random: Random::new(seed),
            side: vec![0; size],
            mail: Vec::new(),
            loss: 0,
            delay: 0,
            late: Vec::new(),
            started: Vec::new(),
            begun: Vec::new(),
            hosts: [(0, 0)].into(),
        }
    }

    pub fn reaches(&self, one: usize, other: usize) -> bool {
        self.nodes[one].is_alive && self.nodes[other].is_alive && self.side[one] == self.side[other]
    }

    /// Reads the state, and acts on it.
    pub fn sync(&mut self, node: usize) {
        if !self.nodes[node].is_alive {
            return;
        }
        let Some(state) = self.read(node) else {
            return self.elect(node, ElectionEvent::Lost);
        };
        self.adopt(node, state);
        let event = match std::mem::take(&mut self.nodes[node].must_join) {
            true => JoinEvent::Command(RendezvousCommand::Join),
            false => JoinEvent::Seen,
        };
        self.join(node, event);
    }

    /// Returns the state in the store that this node uses, if it answers.
    fn read(&self, node: usize) -> Option<RendezvousState> {
        let host = self.nodes[node]
            .link
            .filter(|host| self.reaches(node, *host))?;
        self.nodes[host].server.clone()
    }

    fn adopt(&mut self, node: usize, state: RendezvousState) {
        let it = &mut self.nodes[node];
        assert!(it.election.accepts(state.epoch), "node {node}: {state:?}");
        assert!(
            state.epoch >= it.followed,
            "node {node} follows an older epoch"
        );
        it.followed = state.epoch;
        it.election.learn(state.knowledge(), self.now);
        it.view = state;
    }

    /// Lets a node act on an event until it writes nothing more, or loses the store.
    pub fn join(&mut self, node: usize, event: JoinEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let it = &mut self.nodes[node];
            for action in it.member.on(event, &it.view, self.now) {
                match action {
                    JoinAction::Write(next) => match self.write(node, *next) {
                        true => events.push(JoinEvent::Seen),
                        false => return self.elect(node, ElectionEvent::Lost),
                    },
                    JoinAction::Host { round } => events.push(JoinEvent::Hosted {
                        round,
                        master: Master {
                            addr: format!("node{node}"),
                            port: 1,
                            is_agent_store: true,
                        },
                    }),
                    JoinAction::Joined(place) => self.start(node, place.round),
                    JoinAction::Changed(_) => self.nodes[node].must_join = true,
                    JoinAction::Left | JoinAction::Over { .. } | JoinAction::TimedOut { .. } => {
                        self.nodes[node].is_alive = false;
                    }
                }
            }
        }
    }

    fn start(&mut self, node: usize, round: u64) {
        let started = Started::of(&self.nodes[node].view, node);
        assert_eq!(started.round, round);
        let mut before = self.started.iter().filter(|it| it.node == node);
        assert!(before.all(|it| it.round < round), "round {round} again");
        self.started.push(started);
    }

    /// Compares and sets. Returns whether the node got the reply.
    fn write(&mut self, node: usize, next: RendezvousState) -> bool {
        let Some(host) = self.nodes[node]
            .link
            .filter(|host| self.reaches(node, *host) && self.nodes[*host].server.is_some())
        else {
            return false;
        };
        let request = Request {
            host,
            expected: self.nodes[node].view.clone(),
            next,
        };
        if host != node && self.delay > 0 && self.random.one_in(self.delay) {
            self.late.push(request);
            return false;
        }
        self.execute(request);
        if host != node && self.loss > 0 && self.random.one_in(self.loss) {
            return false;
        }
        let after = self.nodes[host].server.clone().expect("it hosts");
        self.adopt(node, after);
        true
    }

    fn execute(&mut self, request: Request) {
        let Request {
            host,
            expected,
            next,
        } = request;
        if self.nodes[host].server.as_ref() != Some(&expected) {
            return;
        }
        if next.has_begun() && (expected.round != next.round || !expected.has_begun()) {
            self.begun.push(Started::of(&next, host));
        }
        self.nodes[host].server = Some(next);
    }

    /// Executes a request that was on its way for long, if the store still serves.
    pub fn execute_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let at = self.random.below(self.late.len());
        let request = self.late.swap_remove(at);
        if self.nodes[request.host].is_alive {
            self.execute(request);
        }
    }

    /// Lets a node take part in elections.
    pub fn elect(&mut self, node: usize, event: ElectionEvent) {
        if !self.nodes[node].is_alive {
            return;
        }
        let actions = self.nodes[node].election.on(event, self.now);
        if self.nodes[node].election.is_seeking() {
            self.nodes[node].link = None;
        }
        for action in actions {
            match action {
                ElectionAction::Send { to, message } => {
                    self.mail.push((node, index(&to.id), message));
                    assert!(self.mail.len() < 10_000, "messages multiply");
                }
                ElectionAction::Follow { host, .. } => self.follow(node, index(&host.id)),
                ElectionAction::Host { epoch } => self.host(node, epoch),
                ElectionAction::Raise { epoch, votes } => self.raise(node, epoch, &votes),
                ElectionAction::Close => self.nodes[node].server = None,
            }
        }
    }

    fn follow(&mut self, node: usize, host: usize) {
        let it = &mut self.nodes[node];
        it.server = None;
        it.link = Some(host);
        it.member.set_host(false);
        match self.read(node) {
            Some(state) if self.nodes[node].election.accepts(state.epoch) => {
                self.adopt(node, state);
            }
            _ => {
                self.nodes[node].link = None;
                self.elect(node, ElectionEvent::Lost);
            }
        }
    }

    fn host(&mut self, node: usize, epoch: u64) {
        self.is_only_host(node, epoch);
        let state = self.nodes[node].view.taken_over(epoch, &id(node));
        self.knows_all_that_began(&self.nodes[node].view);
        let it = &mut self.nodes[node];
        it.server = Some(state.clone());
        it.link = Some(node);
        it.member.set_host(true);
        self.adopt(node, state);
    }

    fn raise(&mut self, node: usize, epoch: u64, votes: &BTreeSet<NodeId>) {
        let state = self.nodes[node].server.clone().expect("it hosts");
        let Some(raised) = state.raised(epoch, votes) else {
            return self.adopt(node, state);
        };
        self.is_only_host(node, epoch);
        self.knows_all_that_began(&state);
        self.nodes[node].server = Some(raised.clone());
        self.adopt(node, raised);
    }

    fn is_only_host(&mut self, node: usize, epoch: u64) {
        let other = self
            .hosts
            .insert(epoch, node)
            .filter(|other| *other != node);
        assert_eq!(other, None, "another host of epoch {epoch}");
    }

    /// Tells a node to end.
    pub fn leave(&mut self, node: usize) {
        if self.nodes[node].is_alive && !self.nodes[node].election.is_seeking() {
            self.nodes[node].is_leaving = true;
            self.nodes[node].must_join = false;
            self.nodes[node].election.leave();
            self.join(
                node,
                JoinEvent::Command(RendezvousCommand::Leave { why: None }),
            );
        }
    }

    /// Lets a host miss the nodes that it does not reach.
    pub fn miss(&mut self, node: usize) {
        let far = |id: &NodeId| {
            !self.reaches(node, index(id)) || self.nodes[index(id)].link != Some(node)
        };
        let view = &self.nodes[node].view;
        let gone = view.nodes().into_iter().filter(far).collect();
        if self.nodes[node].is_alive && self.nodes[node].server.is_some() {
            self.join(node, JoinEvent::Gone(gone));
        }
    }

    /// Delivers a message, unless its way is cut.
    pub fn deliver(&mut self, at: usize) {
        let (from, to, message) = self.mail.swap_remove(at);
        // What is on its way when the sender dies still arrives.
        if self.nodes[to].is_alive && self.side[from] == self.side[to] {
            self.elect(to, ElectionEvent::Received(message));
        }
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for node in self.nodes.iter().filter(|node| node.is_alive) {
            let SimulatedNode { view, election, .. } = node;
            let base = view
                .base
                .as_ref()
                .map(|base| base.nodes.iter().map(|it| &it.id));
            let base: Vec<_> = base.into_iter().flatten().collect();
            writeln!(
                f,
                "{}: uses {:?}, {:?}, host {:?}, round {}, base {base:?}, in {:?}, waiting {:?}\n  {election:?}\n  {:?}",
                election.me.id,
                node.link,
                view.seen(),
                view.host,
                view.round,
                view.participants.keys(),
                view.wait_list,
                node.member,
            )?;
        }
        Ok(())
    }
}

pub fn index(id: &NodeId) -> usize {
    id.trim_start_matches("id")
        .parse()
        .expect("it has a number")
}
