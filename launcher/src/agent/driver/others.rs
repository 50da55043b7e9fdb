//! The exchange with the other nodes: handles their notices and tells them about failures here.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use crate::agent::attempt::Attempt;
use crate::agent::driver::LaunchDriver;
use crate::agent::event::{GroupEvent, LaunchEnd};
use crate::events::Event;
use crate::model_server::SupervisedServer;
use crate::rendezvous::Notice;
use crate::rendezvous::place::NodePlace;
use crate::rendezvous::state::RendezvousClosed;
use crate::say::{self, Level};

impl LaunchDriver<'_> {
    /// Handles a notice of the rendezvous; returns the event that it amounts to, if any.
    pub(super) fn heard(&mut self, notice: Notice) -> Option<GroupEvent> {
        match notice {
            Notice::Said(line) => {
                say::info(line);
                None
            }
            Notice::Joined(place) => self.may_join(place),
            Notice::Changed(why) => {
                self.say_of_others(Level::Warning, why);
                // No rank of this round has been started, so nothing has to be stopped.
                Some(if self.held.take().is_some() {
                    GroupEvent::Ready
                } else {
                    GroupEvent::Changed
                })
            }
            Notice::Over(RendezvousClosed::Succeeded) => {
                Some(GroupEvent::Over(LaunchEnd::Succeeded))
            }
            Notice::Over(RendezvousClosed::Failed(why)) => {
                // A rank that was lost here has been reported.
                if self.group.has_lost_ranks() {
                    return Some(GroupEvent::Over(LaunchEnd::Failed));
                }
                let line = format_args!("the launch has failed on {why}");
                self.say_of_others(Level::Error, line);
                self.ended_by_others = true;
                Some(GroupEvent::Over(LaunchEnd::Incomplete))
            }
            Notice::Lost(err) => {
                self.say_of_others(Level::Error, format_args!("{err:#}"));
                Some(self.over(LaunchEnd::Incomplete))
            }
            Notice::Left => None,
        }
    }

    /// Ends the launch for a reason outside the ranks of this node.
    pub(super) fn over(&mut self, end: LaunchEnd) -> GroupEvent {
        self.ended_by_others = true;
        GroupEvent::Over(match self.group.is_joining() {
            true => LaunchEnd::NotStarted,
            false => end,
        })
    }

    /// Prints a line about the other nodes, or only traces it if this launcher was told to end:
    /// then the others most often were too, as by `scancel`, and their leaving is no news.
    fn say_of_others(&self, level: Level, line: impl Display) {
        if self.is_told_to_end {
            tracing::debug!("{line}");
        } else {
            say::say(level, line);
        }
    }

    /// Begins the round, or holds it back until the model server is healthy.
    fn may_join(&mut self, place: NodePlace) -> Option<GroupEvent> {
        if self
            .server
            .as_ref()
            .is_none_or(SupervisedServer::is_healthy)
        {
            return Some(self.joined(place));
        }
        self.held = Some(place);
        None
    }

    pub(super) fn joined(&mut self, place: NodePlace) -> GroupEvent {
        let attempt = place.restarts;
        if attempt > self.round.place.restarts {
            say::warning(format_args!(
                "restart {attempt} of {}",
                self.round.plan.max_restarts
            ));
        }
        self.round.place = place;
        let after = self.joining_since.elapsed().unwrap_or_default();
        Event::of_state("RENDEZVOUS")
            .after(after)
            .with("group_world_size", self.round.place.nodes)
            .record(&self.round);
        // Takes no time after the rendezvous.
        Event::of_state("ASSIGN_WORKER_RANKS")
            .after(Duration::ZERO)
            .record(&self.round);
        self.end_attempt();
        self.attempt = Attempt::new(&self.round);
        GroupEvent::Joined { attempt }
    }

    /// Joins the next round.
    pub(super) fn join(&mut self) -> Option<GroupEvent> {
        self.joining_since = SystemTime::now();
        match self.peers.join() {
            Ok(Some(place)) => self.may_join(place),
            Ok(None) => None,
            Err(err) => {
                say::error(format_args!("{:#}", anyhow::Error::from(err)));
                Some(GroupEvent::Over(LaunchEnd::NotStarted))
            }
        }
    }

    /// Tells the other nodes about the failure of a rank on this one.
    pub(super) fn tell(&self, rank: usize, restarts: bool) {
        self.peers
            .failed(self.attempt.rank(rank).failure(), restarts);
    }
}
