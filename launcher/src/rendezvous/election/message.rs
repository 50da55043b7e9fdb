//! The messages of an election, and what a node does with those of others. Each node has a queue
//! for them in its store. Pure.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::rendezvous::election::electorate::{Contact, Seen};
use crate::rendezvous::election::{Election, ElectionAction, Role, STEP};

/// Maximum size of a message in bytes; host names have at most 255.
const LONGEST: usize = 2048;

/// A promise further beyond the own epoch than this is not believed: nodes ask once a second at
/// most, and an overflow must not be in reach of a stranger.
const MAX_LEAP: u64 = 1 << 32;

/// A message from one node to another. Any number of them may be lost, late or in another order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The id of the launch.
    pub launch: String,
    /// The sender.
    pub from: Contact,
    /// The highest epoch for which the sender voted, or whose host it follows.
    pub promised: u64,
    /// The state that the sender has seen.
    pub seen: Seen,
    /// What it says.
    pub ballot: Ballot,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ballot {
    /// The sender has lost the host, and looks for it or another one.
    Seek,
    /// The same, and it would host: would you vote for it?
    Poll,
    /// The sender has lost the host too, and would vote for you.
    Willing,
    /// Vote for the sender.
    Ask {
        /// In this epoch.
        epoch: u64,
    },
    /// The sender votes for you.
    Vote {
        /// In this epoch.
        epoch: u64,
    },
    /// The sender hosts.
    Host {
        /// In this epoch.
        epoch: u64,
    },
    /// The sender follows another node.
    Follows {
        /// The host.
        host: Contact,
        /// Its epoch.
        epoch: u64,
    },
}

impl Message {
    /// Returns the highest epoch that the message speaks of.
    pub fn highest(&self) -> u64 {
        match self.ballot {
            Ballot::Ask { epoch }
            | Ballot::Vote { epoch }
            | Ballot::Host { epoch }
            | Ballot::Follows { epoch, .. } => epoch.max(self.promised),
            Ballot::Seek | Ballot::Poll | Ballot::Willing => self.promised,
        }
    }

    /// Returns the message as text.
    pub fn to_text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a message is names and numbers")
    }

    /// Reads a message; returns `None` if it is not one.
    pub fn read(text: &[u8]) -> Option<Message> {
        if text.len() > LONGEST {
            return None;
        }
        serde_json::from_slice(text).ok()
    }
}

impl Election {
    pub(super) fn received(&mut self, message: Message, now: Instant) -> Vec<ElectionAction> {
        let is_ours = message.launch == self.launch && message.from.id != self.me.id;
        if !is_ours || message.highest() > self.promised.saturating_add(MAX_LEAP) {
            return Vec::new();
        }
        self.heard = self.heard.max(message.highest());
        let from = message.from.clone();
        match (&message.ballot, self.role.clone()) {
            (Ballot::Host { epoch }, _) => self.announced(from, *epoch),
            (Ballot::Follows { host, epoch }, Role::Seeking | Role::Hosting { .. })
                if host.id != self.me.id =>
            {
                self.announced(host.clone(), *epoch)
            }
            (
                Ballot::Seek | Ballot::Poll,
                Role::Following {
                    host: Some(host),
                    epoch,
                },
            ) => {
                vec![self.send(from, Ballot::Follows { host, epoch })]
            }
            (_, Role::Hosting { epoch }) if message.seen.epoch > epoch => {
                let sought = self.seek(now);
                [vec![ElectionAction::Close], sought].concat()
            }
            (Ballot::Ask { epoch }, Role::Seeking | Role::Following { .. })
                if self.may_vote(&message, *epoch) =>
            {
                self.vote(from, *epoch, now)
            }
            (Ballot::Poll | Ballot::Seek | Ballot::Ask { .. }, Role::Hosting { epoch }) => {
                self.called(&message, epoch, now)
            }
            (Ballot::Poll, Role::Seeking)
                if message.seen >= self.known.seen && !self.is_leaving =>
            {
                vec![self.send(from, Ballot::Willing)]
            }
            (Ballot::Willing, Role::Seeking) if self.willing.contains(&self.me.id) => {
                self.willing.insert(from.id);
                self.ask_if_welcome(now)
            }
            (Ballot::Vote { epoch }, Role::Seeking | Role::Hosting { .. }) => {
                self.voted_for_me(from, *epoch, now)
            }
            // A node that follows a host does not help to replace it, and who seeks knows none.
            (
                Ballot::Poll
                | Ballot::Seek
                | Ballot::Ask { .. }
                | Ballot::Willing
                | Ballot::Follows { .. }
                | Ballot::Vote { .. },
                Role::Following { .. } | Role::Seeking | Role::Hosting { .. },
            ) => Vec::new(),
        }
    }

    /// Returns whether this node may vote for the sender: it has promised no one else, the sender
    /// has seen as much, and the host is lost, or is the sender.
    fn may_vote(&self, message: &Message, epoch: u64) -> bool {
        let is_sender = |id: &Option<String>| id.as_ref() == Some(&message.from.id);
        let is_free = epoch > self.promised || (epoch == self.promised && is_sender(&self.voted));
        let has_no_other_host = match &self.role {
            Role::Following { host, .. } => is_sender(&host.as_ref().map(|host| host.id.clone())),
            Role::Seeking => true,
            Role::Hosting { .. } => false,
        };
        is_free && has_no_other_host && message.seen >= self.known.seen && !self.is_leaving
    }

    fn vote(&mut self, candidate: Contact, epoch: u64, now: Instant) -> Vec<ElectionAction> {
        self.promised = epoch;
        self.voted = Some(candidate.id.clone());
        self.willing.clear();
        if self.is_seeking() {
            // The candidate gets the time that it needs before this node polls again.
            self.due = Some(now + self.pause());
        }
        vec![self.send(candidate, Ballot::Vote { epoch })]
    }

    fn voted_for_me(&mut self, from: Contact, epoch: u64, now: Instant) -> Vec<ElectionAction> {
        if let Some((asked, votes)) = &mut self.votes
            && *asked == epoch
        {
            votes.insert(from.id);
        }
        self.host_if_elected(now)
    }

    /// Answers a node that looks for a host, or wants to be one, while this node hosts.
    fn called(&mut self, message: &Message, epoch: u64, now: Instant) -> Vec<ElectionAction> {
        if message.highest() <= epoch {
            return vec![self.send(message.from.clone(), Ballot::Host { epoch })];
        }
        if self.is_leaving || self.answered.is_some_and(|at| now < at + STEP) {
            return Vec::new();
        }
        self.answered = Some(now);
        let asked = self.votes.as_ref().map(|(asked, _)| *asked);
        match asked {
            // The votes are under way, or were lost: the same question again does no harm.
            Some(asked) if asked == self.promised && asked > message.highest() => {
                self.to_all(&Ballot::Ask { epoch: asked })
            }
            _ => self.ask(now),
        }
    }

    /// Handles the word that a node hosts.
    fn announced(&mut self, host: Contact, epoch: u64) -> Vec<ElectionAction> {
        match &self.role {
            Role::Hosting { epoch: own } if epoch <= *own => {
                return vec![self.send(host, Ballot::Host { epoch: *own })];
            }
            Role::Following {
                host: Some(own_host),
                epoch: own,
            } if epoch <= *own && own_host.id != host.id => {
                // A host of an earlier epoch learns who has followed it.
                let follows = Ballot::Follows {
                    host: own_host.clone(),
                    epoch: *own,
                };
                return vec![self.send(host, follows)];
            }
            Role::Following { epoch: own, .. } if epoch <= *own => return Vec::new(),
            Role::Hosting { .. } | Role::Following { .. } | Role::Seeking => {}
        }
        if epoch < self.promised {
            // The host learns of the promise, and asks for a later epoch.
            return vec![self.send(host, Ballot::Seek)];
        }
        self.follow(host, epoch)
    }

    fn follow(&mut self, host: Contact, epoch: u64) -> Vec<ElectionAction> {
        let is_same = match &self.role {
            Role::Following {
                host: Some(own), ..
            } => own.id == host.id,
            Role::Following { .. } | Role::Hosting { .. } | Role::Seeking => false,
        };
        self.promised = epoch;
        self.votes = None;
        self.willing.clear();
        if is_same {
            // Its store is in use, and will have the epoch in a moment.
            return Vec::new();
        }
        self.due = None;
        self.role = Role::Following {
            host: Some(host.clone()),
            epoch,
        };
        vec![ElectionAction::Follow { host, epoch }]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(ballot: Ballot) -> Message {
        Message {
            launch: "0123".to_owned(),
            from: Contact {
                id: "a".to_owned(),
                addr: "fd00::1".to_owned(),
                port: 29400,
            },
            promised: 3,
            seen: Seen::default(),
            ballot,
        }
    }

    #[test]
    fn a_message_comes_back() {
        let sent = message(Ballot::Ask { epoch: 4 });
        assert_eq!(Message::read(&sent.to_text()), Some(sent));
    }

    #[test]
    fn what_is_too_long_is_no_message() {
        let mut sent = message(Ballot::Seek);
        sent.from.addr = "a".repeat(LONGEST);
        assert_eq!(Message::read(&sent.to_text()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(text: Vec<u8>) {
            let _ = Message::read(&text);
        }
    }
}
