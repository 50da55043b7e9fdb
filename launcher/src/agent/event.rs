//! The events of a worker group, and the actions that answer them. Ranks are named by their indexes
//! on this node, in `0..nproc`.

use crate::process::exit::Exit;
use crate::signals::ReceivedSignal;
use crate::signals::names::signal_name;
use crate::supervision::Restart;

/// Whom an action or an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All ranks of this node.
    All,
    /// One rank, which fails and restarts independently of the others.
    One(usize),
}

/// Something that happened to the worker group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// The log folder exists, and this node can join the rendezvous.
    Ready,
    /// A round can start.
    Joined {
        /// Value of `TORCHELASTIC_RESTART_COUNT`: restarts of the whole launch so far, on whatever
        /// node.
        attempt: u32,
    },
    /// The round is over for a reason on another node, and another round will follow.
    Changed,
    /// The launch is over, for a reason on another node or because all nodes have succeeded.
    Over(LaunchEnd),
    /// Not all ranks were started.
    NotStarted {
        /// The first that was not. Those before it run; those after it were not tried.
        first: usize,
        /// The signal that the launcher received meanwhile; `None` if the rank could not start.
        told: Option<ReceivedSignal>,
    },
    /// This rank could not be restarted.
    NotRestarted(usize),
    /// The process of this rank has ended.
    Exited(usize, Exit),
    /// The launcher received a signal.
    Received(ReceivedSignal),
    /// The time returned by [`crate::agent::group::WorkerGroup::deadline`] has come.
    Deadline,
    /// No process that these ranks, which have ended, left behind is alive.
    Swept(Scope),
    /// The ranks have been told that the launch will end soon.
    EndAnnounced,
}

/// Something for the driver to do. Actions are executed in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupAction {
    /// Join the next round, and answer with [`GroupEvent::Joined`].
    Join,
    /// Tell the other nodes that a rank failed.
    Tell {
        /// The rank that failed.
        rank: usize,
        /// Whether a restart is left.
        restarts: bool,
    },
    /// Wait until the other nodes have succeeded too, and answer with [`GroupEvent::Over`].
    Part,
    /// Start these ranks, with the restart counts of [`crate::agent::group::WorkerGroup::attempt`].
    Start(Scope),
    /// Send a signal to the process group of every rank, even if the rank has ended.
    Send {
        /// Number of the signal.
        signal: i32,
    },
    /// Send SIGTERM to the processes that ranks left behind, unless their process groups have
    /// already had it, and answer with [`GroupEvent::Swept`] when they have ended.
    Sweep {
        /// The ranks that have ended.
        scope: Scope,
        /// Whether the process groups have had a signal by [`GroupAction::Send`].
        groups_know: bool,
        /// Whether every rank has exited with code 0. Processes that ranks moved into sessions of
        /// their own may then be meant to live on.
        is_success: bool,
    },
    /// Send SIGKILL to the processes that these ranks left behind.
    KillLeftovers(Scope),
    /// Report that this rank survived SIGKILL, and stop waiting for it.
    Abandon(usize),
    /// Report that a rank has failed and will be restarted.
    Promise {
        /// The rank that failed.
        rank: usize,
        /// When it will be restarted, and how many restarts it has left.
        restart: Restart,
    },
    /// Report to the user and to the other ranks that a rank has failed and will not come back.
    Lose {
        /// The rank that failed.
        rank: usize,
        /// Why it is not restarted.
        why: &'static str,
    },
    /// End the launch.
    Finish(LaunchEnd),
}

/// How a launch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchEnd {
    /// Every rank exited with code 0.
    Succeeded,
    /// A rank failed and had no restart left.
    Failed,
    /// No rank of this node has failed, but the launch lacks something: it has failed on another
    /// node, that node was stopped or lost, or a user left out a part of the evaluation on its
    /// page.
    Incomplete,
    /// A rank could not be started.
    NotStarted,
    /// A listed signal stopped the launch in an orderly way.
    Stopped {
        /// Number of the signal.
        signal: i32,
    },
    /// An unlisted signal killed the launch at once.
    Killed {
        /// Number of the signal.
        signal: i32,
    },
}

impl From<ReceivedSignal> for LaunchEnd {
    /// Returns how the launch ends after this signal.
    fn from(received: ReceivedSignal) -> LaunchEnd {
        let signal = received.number;
        if received.is_listed {
            LaunchEnd::Stopped { signal }
        } else {
            LaunchEnd::Killed { signal }
        }
    }
}

impl LaunchEnd {
    /// Returns why other nodes that need this one cannot go on.
    pub fn reason(self) -> Option<String> {
        match self {
            LaunchEnd::Succeeded => None,
            LaunchEnd::Failed | LaunchEnd::Incomplete | LaunchEnd::NotStarted => {
                Some("the launcher has failed".to_owned())
            }
            LaunchEnd::Stopped { signal } | LaunchEnd::Killed { signal } => Some(format!(
                "the launcher, which hosts the rendezvous, got {}",
                signal_name(signal)
            )),
        }
    }
}
