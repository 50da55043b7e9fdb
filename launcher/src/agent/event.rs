//! What happens to a worker group, and what is to be done about it.

use std::fmt::{Display, Formatter};

use crate::agent::group::budget::Restart;
use crate::process::exit::Exit;
use crate::signals::{self, Received};

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
    /// The log folder exists, and whoever is to be met can be.
    Ready,
    /// A round can start; so many restarts of the launch, on whatever node, went before it.
    Joined {
        /// `TORCHELASTIC_RESTART_COUNT`.
        attempt: u32,
    },
    /// The round is over for a reason that lies on another node, and another will follow.
    Changed,
    /// The launch is over for a reason that lies on another node, or because all of them have succeeded.
    Over(End),
    /// This rank could not be started; those before it run, those after it were not tried.
    NotStarted(LocalRank),
    /// A signal to the launcher, when not all ranks had been started.
    Interrupted {
        /// The first that was not tried; those before it run.
        started: LocalRank,
        /// The signal.
        received: Received,
    },
    /// The leader of this rank has ended.
    Exited(LocalRank, Exit),
    /// A signal to the launcher.
    Received(Received),
    /// The time that [`crate::agent::group::Group::deadline`] named has come.
    Deadline,
    /// No process of this attempt lives any more.
    Swept,
    /// No process lives any more that this rank, which has ended, left behind.
    RankSwept(LocalRank),
    /// This rank could not be started again.
    NotRestarted(LocalRank),
    /// The ranks have been told that the launch will end soon.
    EndAnnounced,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Join the next round, and say [`Event::Joined`].
    Join,
    /// Tell other nodes that this rank failed.
    Tell {
        /// Which.
        rank: LocalRank,
        /// Whether a restart is left.
        restarts: bool,
    },
    /// Wait for the other nodes to succeed too, and say [`Event::Over`].
    Part,
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
        /// Whether every rank has exited with 0. What they have sent off into sessions of their own may then be meant
        /// to live on.
        is_success: bool,
    },
    /// SIGKILL to what ranks left behind.
    KillLeftovers,
    /// Say that this rank survived SIGKILL, and wait for it no longer.
    Abandon(LocalRank),
    /// Say that this rank has failed, and will be started again.
    Promise {
        /// Which.
        rank: LocalRank,
        /// When, and how many more it has.
        restart: Restart,
    },
    /// Say to the user and to the other ranks that this rank has failed, and will not come back.
    Lose {
        /// Which.
        rank: LocalRank,
        /// Why.
        why: Loss,
    },
    /// Tell what this rank left behind to end, and say [`Event::RankSwept`] when it has.
    SweepRank(LocalRank),
    /// SIGKILL to what this rank left behind.
    KillLeftoversOf(LocalRank),
    /// Start this rank again.
    Restart {
        /// Which.
        rank: LocalRank,
        /// Its `TORCHELASTIC_RESTART_COUNT`.
        attempt: u32,
    },
    /// The launch is over.
    Finish(End),
}

/// Why a rank that has failed is not started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has had its restarts.
    Spent,
    /// It says itself, by [`jobs::exit::FINAL`], that a restart would change nothing.
    Final,
    /// The end of the launch has been announced.
    Ending,
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

impl End {
    /// Why other nodes cannot go on, if they need this one.
    pub fn reason(self) -> Option<String> {
        match self {
            End::Succeeded => None,
            End::Failed | End::NotStarted => Some("the launcher has failed".to_owned()),
            End::Stopped { signal } | End::Killed { signal } => {
                Some(format!("the launcher, which hosts the rendezvous, got {}", signals::name(signal)))
            }
        }
    }
}
