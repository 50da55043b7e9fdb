//! The messages of an election. Each node has a queue for them in its store. Pure.

use serde::{Deserialize, Serialize};

use crate::rendezvous::election::electorate::{Contact, Seen};

/// Maximum size of a message in bytes; host names have at most 255.
const LONGEST: usize = 2048;

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
