//! What happens to a worker group, and what is to be done about it.

use std::fmt::{Display, Formatter};

use crate::process::exit::Exit;
use crate::signals::Received;

/// Index of a rank on this node, `0..nproc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalRank(pub usize);

impl Display for LocalRank {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The store listens and the log folder exists.
    Ready,
    /// This rank could not be started; those before it run, those after it were not tried.
    NotStarted(LocalRank),
    /// The leader of this rank has ended.
    Exited(LocalRank, Exit),
    /// A signal to the launcher.
    Received(Received),
    /// The time that [`crate::agent::group::Group::deadline`] named has come.
    Deadline,
    /// No process of this attempt lives any more.
    Swept,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start all ranks; `attempt` counts from 0.
    Spawn {
        /// `TORCHELASTIC_RESTART_COUNT`.
        attempt: u32,
    },
    /// Send this signal to the process group of every rank, also of those that have ended.
    Send {
        /// Its number.
        signal: i32,
    },
    /// Tell what ranks left behind to end, unless their groups were told already, and say [`Event::Swept`] when it
    /// has.
    Sweep {
        /// Whether [`Action::Send`] has reached the groups.
        groups_know: bool,
    },
    /// SIGKILL to what ranks left behind.
    KillLeftovers,
    /// Say that this rank survived SIGKILL, and wait for it no longer.
    Abandon(LocalRank),
    /// The launch is over.
    Finish(End),
}

/// How a launch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every rank exited with code 0.
    Succeeded,
    /// A rank failed, and no restart was left.
    Failed,
    /// A rank could not be started.
    NotStarted,
    /// A listed signal ended it in order.
    Stopped {
        /// Its number.
        signal: i32,
    },
    /// An unlisted signal ended it at once.
    Killed {
        /// Its number.
        signal: i32,
    },
}
