//! What the agent and the user are told about the shared state.

use anyhow::{anyhow, bail};
use jobs::count::counted;
use tokio::time::Instant;

use crate::plan::rendezvous::RendezvousPlan;
use crate::rendezvous::join::{JoinAction, RoundChange};
use crate::rendezvous::messages::Notice;
use crate::rendezvous::shared::{PATIENCE, SharedRendezvous};
use crate::rendezvous::state::RendezvousClosed;

impl SharedRendezvous<'_> {
    pub(super) fn tell(&mut self, told: JoinAction) -> anyhow::Result<()> {
        let notice = match told {
            JoinAction::Joined(place) => {
                self.waiting = None;
                Notice::Joined(place)
            }
            JoinAction::Changed(change) => Notice::Changed(reason(&change)),
            JoinAction::Over { how, is_late: true } => {
                let how = match how {
                    RendezvousClosed::Succeeded => "it has succeeded".to_owned(),
                    RendezvousClosed::Failed(failure) => {
                        format!("{}: {}", failure.node, failure.what)
                    }
                };
                let run_id = &self.facts.run_id;
                bail!(
                    "the launch with the id `{run_id}` has ended ({how}); choose another --rdzv-id"
                );
            }
            JoinAction::Over {
                how,
                is_late: false,
            } => {
                self.is_over = true;
                match how {
                    RendezvousClosed::Succeeded => Notice::Succeeded,
                    RendezvousClosed::Failed(failure) => {
                        Notice::Failed(format!("{}: {}", failure.node, failure.what))
                    }
                }
            }
            JoinAction::TimedOut { came } => {
                return Err(self.timed_out(came));
            }
            JoinAction::Write(_) | JoinAction::Host { .. } | JoinAction::Left => return Ok(()),
        };
        // The channel is closed if the launch is over; then nobody needs the notice.
        let _ = self.notices.send(notice);
        Ok(())
    }

    pub(super) fn say_waiting(&mut self) {
        if !self.member.is_joining() {
            return;
        }
        let RendezvousPlan {
            min,
            max,
            ref node_id,
            ..
        } = self.facts.plan;
        let here = self.state.participants.len();
        let text = if self.state.redundancy_list.contains(node_id) {
            format!("waiting as a spare: {here} of at most {max} nodes run")
        } else if self.state.is_complete() {
            format!("waiting for the next round: {here} nodes are still in this one")
        } else {
            format!("waiting for nodes: {here} of at least {min} are here")
        };
        let now = Instant::now();
        let (since, said) = self.waiting.get_or_insert((now, String::new()));
        if now.duration_since(*since) >= PATIENCE && *said != text {
            said.clone_from(&text);
            let _ = self.notices.send(Notice::Said(text));
        }
    }

    /// Returns the error of a node that waited for its place in a round in vain.
    fn timed_out(&self, came: usize) -> anyhow::Error {
        let (wanted, timeout) = (self.facts.plan.min, self.facts.plan.join_timeout);
        let seconds = timeout.as_secs_f64();
        match &self.state.base {
            Some(base) if came >= wanted => anyhow!(
                "only {came} of the {} nodes of the last round are left after {seconds} s, and the \
                 others may go on without them",
                base.nodes.len()
            ),
            _ => anyhow!("only {came} of {wanted} nodes joined within {seconds} s"),
        }
    }

    /// Prints a line. The channel is closed if the launch is over; then nobody needs it.
    pub(super) fn say(&self, line: String) {
        let _ = self.notices.send(Notice::Said(line));
    }
}

fn reason(change: &RoundChange) -> String {
    match change {
        RoundChange::Failed(failure) => {
            format!("{}: {}; all nodes restart", failure.node, failure.what)
        }
        RoundChange::Lost(nodes) => format!(
            "node {} is gone; the others start a new round",
            nodes.join(", ")
        ),
        RoundChange::Left(nodes) => format!(
            "node {} was stopped; the others start a new round",
            nodes.join(", ")
        ),
        RoundChange::Waiting(count) => {
            format!(
                "waiting to join: {}; all start a new round",
                counted(count, "node")
            )
        }
        RoundChange::Expelled => {
            "the other nodes considered this one dead; it joins them again".to_owned()
        }
        RoundChange::CutOff => {
            "the host of the rendezvous is lost; the ranks end, until there is another".to_owned()
        }
    }
}
