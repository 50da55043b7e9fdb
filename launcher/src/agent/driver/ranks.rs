//! Begins a launch; starts all ranks of a round, or one again that has failed on its own; reports
//! the failures of such ranks, and ends what ranks leave behind.

use nix::sys::signal::Signal;

use crate::agent::driver::LaunchDriver;
use crate::agent::event::{GroupEvent, Scope};
use crate::events::Event;
use crate::logs::attempt::AttemptLogs;
use crate::page::LivePage;
use crate::process::leftover::Whose;
use crate::say::{self, Level};
use crate::supervision::Restart;

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
        let none = GroupEvent::NotStarted {
            first: 0,
            told: None,
        };
        if let Some(event) = self.lock_folder().await {
            return Some(event);
        }
        if !self.has_page() {
            return Some(none);
        }
        let Some(logs) = self.logs(0..self.round.plan.ranks.len()) else {
            return Some(none);
        };
        self.attempt.log_to(logs);
        loop {
            let attempt = |rank| self.group.attempt(rank);
            if let Err(first) = self.attempt.spawn(&self.round, AT_A_TIME, attempt) {
                return Some(GroupEvent::NotStarted { first, told: None });
            }
            let first = self.attempt.started()?;
            if let Some(received) = self.signals.so_far().await {
                self.say_received(received);
                say::warning(format_args!(
                    "{first} of {} ranks were started, the others will not be",
                    self.round.plan.ranks.len()
                ));
                let told = Some(received);
                return Some(GroupEvent::NotStarted { first, told });
            }
        }
    }

    /// Locks the run folder, unless a signal has arrived or ends the wait for another launch.
    async fn lock_folder(&mut self) -> Option<GroupEvent> {
        let launch = &self.round.place.launch;
        let told = match self.lock.take_unless(launch, self.signals.recv()).await {
            Ok(Some(received)) => Some(received),
            Ok(None) => Some(self.signals.so_far().await?),
            Err(err) => {
                say::error(format_args!("{:#}", anyhow::Error::from(err)));
                None
            }
        };
        told.into_iter()
            .for_each(|received| self.say_received(received));
        Some(GroupEvent::NotStarted { first: 0, told })
    }

    /// Opens the page of the run, if there is to be one on this node and it is not open. Returns
    /// whether the launch goes on: a single node does not start without its page. Where others have
    /// already begun to start, it goes on without.
    fn has_page(&mut self) -> bool {
        let (eval, place) = (self.round.plan.eval.as_ref(), &self.round.place);
        let Some(eval) = eval.filter(|_| place.node == 0 && self.page.is_none()) else {
            return true;
        };
        let Some(plan) = &eval.page else { return true };
        match LivePage::open(plan, &eval.output, &place.launch) {
            Ok(page) => {
                let address = page.address();
                say::info(format_args!("page: http://{address}/ while the run lasts"));
                self.page = Some(page);
                true
            }
            Err(err) if self.round.plan.rendezvous.is_none() => {
                say::error(format_args!("{err:#}"));
                false
            }
            Err(err) => {
                say::warning(format_args!("{err:#}"));
                true
            }
        }
    }

    /// Creates new log files for these ranks. Prints what is wrong if that fails.
    fn logs(&self, ranks: impl Iterator<Item = usize>) -> Option<AttemptLogs> {
        let with_count = |index| (self.round.rank(index), self.group.attempt(index));
        let ranks: Vec<_> = ranks.map(with_count).collect();
        AttemptLogs::create(self.folder.as_ref(), self.round.plan, &ranks)
            .inspect_err(|err| say::error(format_args!("{err:#}")))
            .ok()
    }

    /// Starts a rank again that has failed on its own.
    pub(super) fn restart(&mut self, rank: usize) -> Option<GroupEvent> {
        let (logs, attempt) = (self.logs(rank..=rank), self.group.attempt(rank));
        match self.attempt.restart(&self.round, rank, attempt, logs) {
            Ok(tail) => {
                self.flush_later(tail);
                None
            }
            Err(rank) => Some(GroupEvent::NotRestarted(rank)),
        }
    }

    /// Reports that a rank will be restarted.
    pub(super) fn promise(&self, rank: usize, restart: Restart) {
        let failed = self.attempt.rank(rank);
        let Restart {
            number, of, after, ..
        } = restart;
        let line = format!(
            "{}; restart {number} of {of} in {} s{}",
            failed.failure(),
            after.as_secs(),
            self.others(rank)
        );
        say::of_rank(Level::Warning, failed.id(), failed.pid(), line);
        Event::ours("rrun.rank.restart")
            .about(failed.id(), failed.pid().unwrap_or_default())
            .with("attempt", restart.attempt)
            .with("restart", number)
            .with("of", of)
            .with("after_s", after.as_secs())
            .record(&self.round);
    }

    /// Reports to the user, and to the other ranks, that a rank has died for good.
    pub(super) fn lose(&self, rank: usize, why: &str) {
        let failed = self.attempt.rank(rank);
        let reason = format!("{}; {why}", failed.failure());
        let line = format_args!("{reason}{}", self.others(rank));
        say::of_rank(Level::Error, failed.id(), failed.pid(), line);
        Event::ours("rrun.rank.lost")
            .about(failed.id(), failed.pid().unwrap_or_default())
            .with("reason", reason.as_str())
            .record(&self.round);
        let rank = failed.id().global;
        self.peers.lost(&self.round.place, rank, &reason);
    }

    fn others(&self, rank: usize) -> &'static str {
        match self.round.place.nodes > 1 || self.group.has_others(rank) {
            true => ", the other ranks continue",
            false => "",
        }
    }

    /// Reports a rank that SIGKILL did not end.
    pub(super) fn abandon(&self, rank: usize) {
        let rank = self.attempt.rank(rank);
        say::error(format_args!(
            "rank {} (pid {}) does not end even after SIGKILL and is left behind",
            rank.id().global,
            rank.pid().unwrap_or_default()
        ));
    }

    /// Sends SIGTERM to what ranks have left behind.
    pub(super) fn sweep(
        &mut self,
        scope: Scope,
        groups_know: bool,
        is_success: bool,
    ) -> Option<GroupEvent> {
        // The built-in programs start no daemons; what they leave behind is a hung simulator.
        self.leftovers.leaves_daemons = is_success && !self.round.plan.is_built_in;
        let all = match groups_know {
            true => Whose::OutsideGroups,
            false => Whose::All,
        };
        let living = self.signal_leftovers(scope, all, Some(Signal::SIGTERM));
        (living == 0).then_some(GroupEvent::Swept(scope))
    }

    /// Returns an event for every awaited set of leftovers that has ended.
    pub(super) fn swept(&self) -> Vec<GroupEvent> {
        let mut scopes = self.group.sweeping();
        scopes.retain(|scope| self.signal_leftovers(*scope, Whose::All, None) == 0);
        scopes.into_iter().map(GroupEvent::Swept).collect()
    }

    /// Kills what did not end after SIGTERM.
    pub(super) fn kill_leftovers(&self, scope: Scope) {
        let living = self.signal_leftovers(scope, Whose::All, Some(Signal::SIGKILL));
        let whose = match scope {
            Scope::All => "ranks".to_owned(),
            Scope::One(rank) => format!("rank {}", self.round.rank(rank).global),
        };
        say::warning(format_args!(
            "killed processes that {whose} had left behind: {living}"
        ));
    }

    /// Sends `signal` to what these ranks have left behind, of all ranks to `all`. Returns how many
    /// processes live.
    fn signal_leftovers(&self, scope: Scope, all: Whose<'_>, signal: Option<Signal>) -> usize {
        let mark;
        let whose = match scope {
            Scope::All => all,
            Scope::One(rank) => {
                let Some(pid) = self.attempt.rank(rank).pid() else {
                    return 0;
                };
                mark = self.round.mark(rank);
                Whose::One { pid, mark: &mark }
            }
        };
        self.leftovers.signal(&self.attempt.pids(), whose, signal)
    }
}
