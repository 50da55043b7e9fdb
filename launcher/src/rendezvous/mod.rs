//! Where nodes meet: who takes part, with which ranks, and what becomes of the others.
//!
//! ```text
//!           Command: Join, Failed, Done, Leave
//! agent ───────────────────────────────────────► fixed (static: given ranks, torch's keys) ──┐
//!       ◄─────────────────────────────────────── ring ─► join, state, beats (pure) ◄─────────┘ all nodes run rrun
//!           Notice: Joined, Changed, Succeeded …   └──► store
//! ```
//! A rendezvous is a task on the agent's thread. A launch on one node has none.

pub mod beats;
pub mod envelope;
pub mod error;
pub mod fixed;
pub mod join;
pub mod place;
pub mod ranks_store;
pub mod reach;
pub mod ring;
pub mod spot;
pub mod state;

use std::env;
use std::future::pending;
use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::plan::Plan;
use crate::plan::rendezvous::{Backend, RendezvousPlan};
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::fixed::Apart;
use crate::rendezvous::place::Place;
use crate::rendezvous::ring::Ring;
use crate::rendezvous::spot::Spot;
use crate::rendezvous::state::Failure;

/// How long the end of a launch waits until the others know of it.
const FAREWELL: Duration = Duration::from_secs(5);

/// What the agent wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Leave the round and join the next; [`Notice::Joined`] follows.
    Join,
    /// A rank has failed here.
    Failed {
        /// Which and how, for other nodes to read.
        failure: String,
        /// Whether a restart is left; if not, the launch is over everywhere.
        restarts: bool,
    },
    /// All ranks here have succeeded; [`Notice::Succeeded`] follows when all others have too.
    Done,
    /// Go for good.
    Leave {
        /// Why the launch cannot go on without this node, should it host the store.
        why: Option<String>,
    },
}

/// What the agent is told.
#[derive(Debug)]
pub enum Notice {
    /// A line for the user.
    Said(String),
    /// The ranks of a round can start.
    Joined(Place),
    /// The round is over, for this reason: end the ranks and join again.
    Changed(String),
    /// All ranks of all nodes have succeeded.
    Succeeded,
    /// The launch has failed on another node.
    Failed(String),
    /// There is no rendezvous any more.
    Lost(RendezvousError),
    /// This node has left.
    Left,
}

/// The agent's end of a rendezvous. Dropping it lets the store go, if this node hosts it.
#[derive(Debug)]
pub struct Rendezvous {
    commands: UnboundedSender<Command>,
    notices: UnboundedReceiver<Notice>,
    task: AbortHandle,
}

impl Rendezvous {
    /// Begins to meet the other nodes, and to join the first round. Must be called on a runtime.
    /// `launch` is the name of the launch if this node is the first.
    pub fn start(plan: &Plan, rendezvous: &RendezvousPlan, launch: String) -> Rendezvous {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| value == "1");
        let job = Job {
            plan: rendezvous.clone(),
            run_id: plan.run_id.clone(),
            launch,
            role: plan.role.clone(),
            nproc: plan.ranks.len(),
            is_shared: !is_set("TORCH_DISABLE_SHARE_RDZV_TCP_STORE"),
            is_identical: is_set("TORCH_ELASTIC_WORKER_IDENTICAL"),
        };
        let (commands, received) = unbounded_channel();
        let (sent, notices) = unbounded_channel();
        let task = tokio::spawn(attend(job, received, sent)).abort_handle();
        Rendezvous { commands, notices, task }
    }

    /// Asks for something.
    pub fn command(&self, command: Command) {
        // The task ends only after it has been told to leave.
        let _ = self.commands.send(command);
    }

    /// The next notice. Dropping the future loses none.
    pub async fn recv(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notice) => notice,
            None => pending().await,
        }
    }

    /// Leaves, and waits a while until the others know.
    pub async fn leave(mut self, why: Option<String>) {
        self.command(Command::Leave { why });
        let left = async { while !matches!(self.recv().await, Notice::Left) {} };
        // Who cannot be told now will see that this node is gone.
        let _ = timeout(FAREWELL, left).await;
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a rendezvous knows of the launch.
#[derive(Clone, Debug)]
pub struct Job {
    plan: RendezvousPlan,
    run_id: String,
    /// What this node would call the launch.
    launch: String,
    role: String,
    nproc: usize,
    /// Whether the ranks are to use a store of the launcher.
    is_shared: bool,
    /// `TORCH_ELASTIC_WORKER_IDENTICAL=1`: all nodes have as many ranks, and nobody has to ask.
    is_identical: bool,
}

impl Job {
    fn node_rank(&self) -> usize {
        usize::try_from(self.plan.node_rank).unwrap_or_default()
    }

    /// This launcher, for the eyes of others.
    fn name(&self) -> String {
        format!("{}, pid {}, {}", jobs::host::name(), std::process::id(), self.plan.node_id)
    }

    fn failure(&self, addr: &str, what: String) -> Failure {
        Failure { node: format!("node {} ({addr})", jobs::host::name()), what }
    }
}

async fn attend(job: Job, mut commands: UnboundedReceiver<Command>, notices: UnboundedSender<Notice>) {
    let ended = select! {
        ended = meet(&job, &notices) => match ended {
            Ok(Met::Apart(apart)) => apart.run(&mut commands, &notices).await,
            Ok(Met::Together(ring)) => ring.run(&mut commands).await,
            Err(err) => Err(err),
        },
        () = leave(&mut commands) => Ok(()),
    };
    if let Err(err) = ended {
        // Nobody listens any more if the launch is over.
        let _ = notices.send(Notice::Lost(err));
        leave(&mut commands).await;
    }
    let _ = notices.send(Notice::Left);
}

enum Met<'a> {
    Apart(Box<Apart<'a>>),
    Together(Box<Ring<'a>>),
}

async fn meet<'a>(job: &'a Job, notices: &'a UnboundedSender<Notice>) -> Result<Met<'a>, RendezvousError> {
    let (key, spot) = match job.plan.backend {
        Backend::Static => {
            let met = fixed::meet(job, notices).await?;
            if !met.is_together {
                return Ok(Met::Apart(Box::new(Apart::new(job, met))));
            }
            (format!("{}/rrun/state", job.run_id), met.spot)
        }
        Backend::C10d => (format!("torch.rendezvous.{}", job.run_id), Spot::find(&job.plan).await?),
    };
    Ok(Met::Together(Box::new(Ring::enter(job, key, spot, notices).await?)))
}

/// Ends when the agent wants to leave.
async fn leave(commands: &mut UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        if let Command::Leave { .. } = command {
            return;
        }
    }
}
