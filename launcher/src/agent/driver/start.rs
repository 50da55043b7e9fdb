//! Begins a launch, and starts all ranks of a round.

use jobs::error_chain::chain;

use crate::agent::attempt::Attempt;
use crate::agent::driver::LaunchDriver;
use crate::agent::event::GroupEvent;
use crate::logs::attempt::{AttemptLogs, LoggedRank};
use crate::say;

/// Number of ranks started between two checks for a signal: thousands of ranks take minutes on a
/// machine that is too small for them.
const AT_A_TIME: usize = 64;

impl LaunchDriver<'_> {
    /// Begins the launch, unless a signal has arrived while it was prepared.
    pub(super) async fn begin(&mut self) -> Vec<GroupEvent> {
        if let Some(received) = self.signals.so_far().await {
            self.say_received(received);
            return vec![GroupEvent::Received(received)];
        }
        [vec![GroupEvent::Ready], self.begin_server().await].concat()
    }

    /// Starts the ranks in batches. A signal between two batches stops the ranks that run, and no
    /// more are started.
    pub(super) async fn spawn(&mut self) -> Option<GroupEvent> {
        if let Some(event) = self.lock_folder().await {
            return Some(event);
        }
        if let Some(event) = self.open_page() {
            return Some(event);
        }
        let round = self.round();
        let writer = |index| LoggedRank {
            rank: round.rank(index),
            attempt: self.group.attempt(index),
        };
        let logs = self.logs(&(0..self.plan.ranks.len()).map(writer).collect::<Vec<_>>());
        let Ok(logs) = logs else {
            return Some(GroupEvent::NotStarted(0));
        };
        self.attempt = Attempt::new(&round, logs);
        loop {
            if let Err(rank) = self
                .attempt
                .spawn(&round, AT_A_TIME, |rank| self.group.attempt(rank))
            {
                return Some(GroupEvent::NotStarted(rank));
            }
            let started = self.attempt.started()?;
            if let Some(received) = self.signals.so_far().await {
                self.say_received(received);
                say::warning(format_args!(
                    "{started} of {} ranks were started, the others will not be",
                    self.plan.ranks.len()
                ));
                return Some(GroupEvent::Interrupted { started, received });
            }
        }
    }

    /// Locks the run folder, unless a signal has arrived or ends the wait for another launch.
    async fn lock_folder(&mut self) -> Option<GroupEvent> {
        let launch = &self.place.launch;
        let received = match self.lock.take_unless(launch, self.signals.recv()).await {
            Ok(Some(received)) => Some(received),
            Ok(None) => self.signals.so_far().await,
            Err(err) => {
                say::error(chain(&err));
                return Some(GroupEvent::NotStarted(0));
            }
        };
        let received = received?;
        self.say_received(received);
        Some(GroupEvent::Interrupted {
            started: 0,
            received,
        })
    }

    /// Creates new log files for these ranks. Prints what is wrong if that fails.
    pub(super) fn logs(&self, writers: &[LoggedRank]) -> Result<AttemptLogs, ()> {
        match &self.folder {
            Some(folder) => AttemptLogs::create(folder, self.plan, writers)
                .map_err(|err| say::error(format_args!("{err:#}"))),
            None => Ok(AttemptLogs::disabled(writers.len())),
        }
    }
}
