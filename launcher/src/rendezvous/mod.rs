//! The rendezvous of several nodes: decides which nodes take part and with which ranks, and reports
//! failures of other nodes.
//!
//! ```text
//!          Command: Join, Failed, Done, Leave
//! agent ─────────────────────────────────► fixed (static: given ranks, torch's keys) ─┐
//!       ◄───────────────────────────────── shared ─► join, state, beats (pure) ◄────────┘ all rrun
//!          Notice: Joined, Changed, …        └──► store
//! ```
//! A rendezvous is a task on the agent's thread. A single-node launch has none.

pub mod beats;
pub mod election;
pub mod envelope;
pub mod fixed;
pub mod join;
pub mod messages;
pub mod place;
pub mod ranks_store;
pub mod shared;
pub mod state;
pub mod store_endpoint;

use std::future::pending;
use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::plan::LaunchPlan;
use crate::plan::rendezvous::{Backend, RendezvousPlan};
use crate::rendezvous::fixed::Apart;
use crate::rendezvous::messages::{LaunchFacts, Notice, RendezvousCommand, leave};
use crate::rendezvous::shared::SharedRendezvous;
use crate::rendezvous::store_endpoint::StoreEndpoint;

/// How long the end of a launch is delayed so that the other nodes can learn about it.
const FAREWELL: Duration = Duration::from_secs(5);

/// The agent's handle of a rendezvous. Dropping it closes the store, if this node hosts it.
#[derive(Debug)]
pub struct Rendezvous {
    commands: UnboundedSender<RendezvousCommand>,
    notices: UnboundedReceiver<Notice>,
    task: AbortHandle,
}

impl Rendezvous {
    /// Starts to meet the other nodes and to join the first round. Must be called on a runtime.
    /// `launch` is the id of the launch if this node is the first.
    pub fn start(plan: &LaunchPlan, rendezvous: &RendezvousPlan, launch: String) -> Rendezvous {
        let facts = LaunchFacts {
            plan: rendezvous.clone(),
            run_id: plan.run_id.clone(),
            launch,
            role: plan.role.clone(),
            nproc: plan.ranks.len(),
            is_shared: plan.store.is_shared,
        };
        let (commands, received) = unbounded_channel();
        let (sent, notices) = unbounded_channel();
        let task = tokio::spawn(attend(facts, received, sent)).abort_handle();
        Rendezvous {
            commands,
            notices,
            task,
        }
    }

    /// Sends a command to the rendezvous.
    pub fn command(&self, command: RendezvousCommand) {
        // The task ends only after it has been told to leave.
        let _ = self.commands.send(command);
    }

    /// Waits for the next notice. Cancel-safe: dropping the future loses no notice.
    pub async fn recv(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notice) => notice,
            None => pending().await,
        }
    }

    /// Leaves, and waits for a limited time until the other nodes know.
    pub async fn leave(mut self, why: Option<String>) {
        self.command(RendezvousCommand::Leave { why });
        let left = async { while !matches!(self.recv().await, Notice::Left) {} };
        // Nodes that cannot be told in time will notice that this one is gone.
        let _ = timeout(FAREWELL, left).await;
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn attend(
    facts: LaunchFacts,
    mut commands: UnboundedReceiver<RendezvousCommand>,
    notices: UnboundedSender<Notice>,
) {
    let ended = select! {
        ended = meet(&facts, &notices) => match ended {
            Ok(Met::Apart(apart)) => apart.run(&mut commands, &notices).await,
            Ok(Met::Together(shared)) => shared.run(&mut commands).await,
            Err(err) => Err(err),
        },
        () = leave(&mut commands) => Ok(()),
    };
    if let Err(err) = ended {
        // The channel is closed if the launch is over; then nobody needs the notice.
        let _ = notices.send(Notice::Lost(err));
        leave(&mut commands).await;
    }
    let _ = notices.send(Notice::Left);
}

enum Met<'a> {
    Apart(Box<Apart<'a>>),
    Together(Box<SharedRendezvous<'a>>),
}

async fn meet<'a>(
    facts: &'a LaunchFacts,
    notices: &'a UnboundedSender<Notice>,
) -> anyhow::Result<Met<'a>> {
    let (key, store_endpoint) = match facts.plan.backend {
        Backend::Static => {
            let met = fixed::meet(facts, notices).await?;
            if !met.is_together {
                return Ok(Met::Apart(Box::new(Apart::new(facts, met))));
            }
            (format!("{}/rrun/state", facts.run_id), met.store_endpoint)
        }
        Backend::C10d => (
            format!("torch.rendezvous.{}", facts.run_id),
            StoreEndpoint::find(&facts.plan).await?,
        ),
    };
    Ok(Met::Together(Box::new(
        SharedRendezvous::enter(facts, key, store_endpoint, notices).await?,
    )))
}
