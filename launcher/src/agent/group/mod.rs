//! The worker group of one node: tracks which ranks live, and decides what an exit or a signal
//! means for the others. Pure.
//!
//! ```text
//!           Joined         all have ended                     Swept             Over
//! Joining ─────────► Healthy ──────────────────► Sweeping ──────────► Parting ──────────► Finished
//!    ▲                │                            ▲   │ │               │                  ▲
//!    │                ▼ one fails | signal |       │   │ └─launch over───────────────────────┘
//!    │               Stopping  other nodes         │   │                 │ Changed
//!    │                   └──all have ended─────────┘   │                 │
//!    └───────────────── another round is due ──────────┴─────────────────┘
//! ```
//! *Joining* and *Parting* wait for other nodes; on a single node they take no time.
//!
//! *Stopping* waits for the ranks: SIGTERM, then after the grace period SIGKILL to every process
//! group. *Sweeping* waits for their leftover processes: at most [`LEFTOVER_GRACE`], then SIGKILL.
//! After SIGKILL both wait [`UNINTERRUPTIBLE_GRACE`] and no longer.
//!
//! With `--failure-policy isolate`, the failure of a rank does not leave *Healthy*. Each rank has a
//! fate of its own:
//!
//! ```text
//!           fails, a restart is left             swept, and the delay is over
//!  Running ─────────────────────────► Returning ──────────────────────────────► Running
//!     │  ╲                                 │
//!     │   ╲ fails, none is left            │ the end was announced
//!     │    ╲ exits with a final code       ▼
//!     │     ╲────────────────────────►   Lost        The round is over when no rank is
//!     ▼ exits with 0                                 running or returning.
//!   Ended
//! ```
//! When a rank fails, its leftover processes get SIGTERM at once, before the restart delay, and are
//! waited for as in *Sweeping*. Leftovers of a rank that has succeeded may run until the round is
//! over.

pub mod stopping;

use std::time::{Duration, Instant};

use crate::agent::event::{GroupAction, GroupEvent, LaunchEnd, Scope};
use crate::process::exit::Exit;
use crate::signals::ReceivedSignal;
use crate::supervision::{LEFTOVER_GRACE, RestartBudget, StopDeadline, UNINTERRUPTIBLE_GRACE};

/// Why a rank is not restarted that fails after the end was announced.
const ENDING: &str = "the end of the launch was announced";

/// The worker group of one node.
#[derive(Debug)]
pub struct WorkerGroup {
    members: Vec<Member>,
    grace: Duration,
    max_restarts: u32,
    attempt: u32,
    /// Number of listed signals received so far.
    signals: u32,
    state: GroupState,
    /// If ranks fail independently, the exit codes after which a restart would not help; `None` if
    /// one failure stops all ranks.
    isolated: Option<Vec<i32>>,
    /// Whether the end of the launch was announced: no rank is restarted on its own any more.
    ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    Joining,
    Healthy,
    Stopping {
        then: AfterStop,
        patience: StopDeadline,
    },
    Sweeping {
        then: AfterStop,
        patience: StopDeadline,
    },
    Parting {
        end: LaunchEnd,
    },
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterStop {
    Restart,
    /// Wait for the other nodes, then finish.
    Part(LaunchEnd),
    Finish(LaunchEnd),
}

#[derive(Clone, Copy, Debug)]
struct Member {
    fate: Fate,
    /// Its restarts, if it restarts independently of the others.
    budget: RestartBudget,
    /// The deadline of its leftovers while they are swept, but not those of the others.
    sweep: Option<StopDeadline>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Running {
        since: Instant,
    },
    Returning {
        due: Instant,
    },
    /// It has succeeded, or was stopped together with the others.
    Ended,
    /// It has failed and is not restarted.
    Lost,
}

impl WorkerGroup {
    /// Returns a group of `size` ranks. `grace` is the time between SIGTERM and SIGKILL. If ranks
    /// fail independently, `max_restarts` applies to each of them, and `isolated` are the exit
    /// codes after which one is not restarted.
    pub fn new(
        size: usize,
        max_restarts: u32,
        grace: Duration,
        isolated: Option<Vec<i32>>,
    ) -> WorkerGroup {
        let member = Member {
            fate: Fate::Ended,
            budget: RestartBudget::new(max_restarts),
            sweep: None,
        };
        WorkerGroup {
            members: vec![member; size],
            grace,
            max_restarts,
            attempt: 0,
            signals: 0,
            state: GroupState::Joining,
            isolated,
            ends: false,
        }
    }

    /// Returns when the group needs a [`GroupEvent::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            GroupState::Stopping { patience, .. } | GroupState::Sweeping { patience, .. } => {
                Some(patience.at())
            }
            GroupState::Healthy => self.members.iter().filter_map(Member::deadline).min(),
            GroupState::Joining | GroupState::Parting { .. } | GroupState::Finished => None,
        }
    }

    /// Returns the `TORCHELASTIC_RESTART_COUNT` with which a rank is started next.
    pub fn attempt(&self, rank: usize) -> u32 {
        match self.members.get(rank) {
            Some(member) if self.isolated.is_some() => member.budget.restarts(),
            _ => self.attempt,
        }
    }

    /// Returns whether the ranks are being stopped.
    pub fn is_stopping(&self) -> bool {
        matches!(self.state, GroupState::Stopping { .. })
    }

    /// Returns whether the ranks of this round have not been started yet.
    pub fn is_joining(&self) -> bool {
        self.state == GroupState::Joining
    }

    /// Returns the ranks for which the group waits for [`GroupEvent::Swept`].
    pub fn sweeping(&self) -> Vec<Scope> {
        match self.state {
            GroupState::Sweeping { .. } => vec![Scope::All],
            GroupState::Healthy => (0..self.members.len())
                .filter(|&rank| self.members[rank].sweep.is_some())
                .map(Scope::One)
                .collect(),
            GroupState::Joining
            | GroupState::Stopping { .. }
            | GroupState::Parting { .. }
            | GroupState::Finished => Vec::new(),
        }
    }

    /// Returns whether another rank of this node runs or will be restarted.
    pub fn has_others(&self, rank: usize) -> bool {
        let mut members = self.members.iter().enumerate();
        members.any(|(index, member)| index != rank && !member.is_over())
    }

    /// Returns whether ranks of this node have been given up while the others continued.
    pub fn has_lost_ranks(&self) -> bool {
        self.members.iter().any(|member| member.fate == Fate::Lost)
    }

    /// Handles an event that happened at `now`, and returns the actions that follow from it.
    pub fn on(&mut self, event: GroupEvent, now: Instant) -> Vec<GroupAction> {
        match (self.state, event) {
            (GroupState::Joining, GroupEvent::Ready) => vec![GroupAction::Join],
            (GroupState::Joining, GroupEvent::Joined { attempt }) => self.start(attempt, now),
            (GroupState::Joining, GroupEvent::Over(end)) => self.finish(end),
            (GroupState::Joining | GroupState::Parting { .. }, GroupEvent::Received(received)) => {
                self.finish(LaunchEnd::from(received))
            }
            (GroupState::Healthy, GroupEvent::NotStarted { first, told }) => {
                self.not_started(first, told, now)
            }
            (GroupState::Healthy, GroupEvent::Changed) => {
                self.stop(AfterStop::Restart, libc::SIGTERM, self.grace, now)
            }
            (GroupState::Healthy, GroupEvent::Over(end)) => {
                self.stop(AfterStop::Finish(end), libc::SIGTERM, self.grace, now)
            }
            (GroupState::Healthy, GroupEvent::Received(received)) => {
                self.stop_by(received, self.grace, now)
            }
            (GroupState::Healthy, GroupEvent::Exited(rank, exit)) => self.exited(rank, exit, now),
            (GroupState::Healthy, GroupEvent::NotRestarted(rank)) => {
                let actions = self.failed(rank, now);
                self.unless_over(actions, now)
            }
            (GroupState::Healthy, GroupEvent::Swept(Scope::One(rank))) => {
                self.members[rank].sweep = None;
                self.restart(rank, now).into_iter().collect()
            }
            (GroupState::Healthy, GroupEvent::Deadline) => (0..self.members.len())
                .filter_map(|rank| self.deadline_has_come(rank, now))
                .collect(),
            (GroupState::Healthy, GroupEvent::EndAnnounced) => self.announce_end(now),
            (GroupState::Stopping { then, .. }, GroupEvent::Exited(rank, _)) => {
                self.members[rank].fate = Fate::Ended;
                if self.is_running() {
                    return Vec::new();
                }
                self.sweep(then, true, now)
            }
            (GroupState::Stopping { .. }, GroupEvent::Received(received)) => {
                self.hurry(received, now)
            }
            (GroupState::Stopping { then, patience }, GroupEvent::Deadline) => match patience {
                StopDeadline::KillAt(_) => self.stop(then, libc::SIGKILL, self.grace, now),
                StopDeadline::GiveUpAt(_) => self.abandon(then, now),
            },
            (GroupState::Stopping { .. } | GroupState::Sweeping { .. }, GroupEvent::Over(end)) => {
                if let GroupState::Stopping { then, .. } | GroupState::Sweeping { then, .. } =
                    &mut self.state
                {
                    *then = then.without_restart(end);
                }
                Vec::new()
            }
            (GroupState::Sweeping { then, patience }, GroupEvent::Deadline) => match patience {
                StopDeadline::KillAt(_) => self.kill_leftovers(then, now),
                StopDeadline::GiveUpAt(_) => self.swept(then),
            },
            (GroupState::Sweeping { then, .. }, GroupEvent::Received(received)) => {
                self.kill_leftovers(then.without_restart(LaunchEnd::from(received)), now)
            }
            (GroupState::Sweeping { then, .. }, GroupEvent::Swept(Scope::All)) => self.swept(then),
            (GroupState::Parting { .. }, GroupEvent::Changed) => self.join(),
            // As in torchrun, the fate of other nodes does not change the result of the ranks here.
            (GroupState::Parting { end }, GroupEvent::Over(_)) => self.finish(end),
            (_, GroupEvent::EndAnnounced) => {
                // Ranks that are stopping are not affected; ranks of a further round are not
                // restarted either.
                self.ends = true;
                Vec::new()
            }
            (
                GroupState::Joining
                | GroupState::Healthy
                | GroupState::Stopping { .. }
                | GroupState::Sweeping { .. }
                | GroupState::Parting { .. }
                | GroupState::Finished,
                _,
            ) => Vec::new(),
        }
    }

    fn join(&mut self) -> Vec<GroupAction> {
        self.state = GroupState::Joining;
        vec![GroupAction::Join]
    }

    /// Starts all ranks, including those that were lost in the round before.
    fn start(&mut self, attempt: u32, now: Instant) -> Vec<GroupAction> {
        self.attempt = attempt;
        for member in &mut self.members {
            member.fate = Fate::Running { since: now };
            member.sweep = None;
        }
        self.state = GroupState::Healthy;
        vec![GroupAction::Start(Scope::All)]
    }

    fn finish(&mut self, end: LaunchEnd) -> Vec<GroupAction> {
        self.state = GroupState::Finished;
        vec![GroupAction::Finish(end)]
    }

    fn not_started(
        &mut self,
        first: usize,
        told: Option<ReceivedSignal>,
        now: Instant,
    ) -> Vec<GroupAction> {
        for member in &mut self.members[first..] {
            member.fate = Fate::Ended;
        }
        if let Some(received) = told {
            return self.stop_by(received, self.grace, now);
        }
        let end = AfterStop::Finish(LaunchEnd::NotStarted);
        self.tell_and_stop(first, false, end, now)
    }

    fn exited(&mut self, rank: usize, exit: Exit, now: Instant) -> Vec<GroupAction> {
        if exit.is_success() {
            self.members[rank].fate = Fate::Ended;
            return self.unless_over(Vec::new(), now);
        }
        let Some(final_codes) = &self.isolated else {
            self.members[rank].fate = Fate::Ended;
            let restarts = self.attempt < self.max_restarts;
            let then = match restarts {
                true => AfterStop::Restart,
                false => AfterStop::Finish(LaunchEnd::Failed),
            };
            return self.tell_and_stop(rank, restarts, then, now);
        };
        let is_final = |&code: &i32| exit == Exit::Code(code);
        let failed = match final_codes.iter().any(is_final) {
            true => self.lose(rank, "a restart would not change that"),
            false => self.failed(rank, now),
        };
        self.members[rank].sweep = Some(StopDeadline::KillAt(now + self.leftover_grace()));
        let sweep = GroupAction::Sweep {
            scope: Scope::One(rank),
            groups_know: false,
            is_success: false,
        };
        self.unless_over([failed, vec![sweep]].concat(), now)
    }

    fn tell_and_stop(
        &mut self,
        rank: usize,
        restarts: bool,
        then: AfterStop,
        now: Instant,
    ) -> Vec<GroupAction> {
        let tell = GroupAction::Tell { rank, restarts };
        let stop = self.stop(then, libc::SIGTERM, self.grace, now);
        [vec![tell], stop].concat()
    }

    /// Returns `actions`, and ends the round if no rank runs and none will be restarted.
    fn unless_over(&mut self, mut actions: Vec<GroupAction>, now: Instant) -> Vec<GroupAction> {
        if !self.members.iter().all(Member::is_over) {
            return actions;
        }
        let end = match self.has_lost_ranks() {
            true => LaunchEnd::Failed,
            false => LaunchEnd::Succeeded,
        };
        // All remaining leftovers are swept together.
        actions.retain(|action| !matches!(action, GroupAction::Sweep { .. }));
        [actions, self.sweep(AfterStop::Part(end), false, now)].concat()
    }

    fn is_running(&self) -> bool {
        self.members.iter().any(Member::is_running)
    }

    /// Handles the failure of a rank that restarts independently of the others.
    fn failed(&mut self, rank: usize, now: Instant) -> Vec<GroupAction> {
        if self.ends {
            return self.lose(rank, ENDING);
        }
        let member = &mut self.members[rank];
        let life = match member.fate {
            Fate::Running { since } => now.saturating_duration_since(since),
            Fate::Returning { .. } | Fate::Ended | Fate::Lost => Duration::ZERO,
        };
        let Some(restart) = member.budget.take(life) else {
            return self.lose(rank, "no restart is left");
        };
        member.fate = Fate::Returning {
            due: now + restart.after,
        };
        vec![GroupAction::Promise { rank, restart }]
    }

    fn lose(&mut self, rank: usize, why: &'static str) -> Vec<GroupAction> {
        self.members[rank].fate = Fate::Lost;
        vec![GroupAction::Lose { rank, why }]
    }

    /// Restarts a rank if its delay is over and its leftovers have ended.
    fn restart(&mut self, rank: usize, now: Instant) -> Option<GroupAction> {
        let member = &mut self.members[rank];
        match member.fate {
            Fate::Returning { due } if now >= due && member.sweep.is_none() => {
                member.fate = Fate::Running { since: now };
                Some(GroupAction::Start(Scope::One(rank)))
            }
            _ => None,
        }
    }

    /// Kills the leftovers of a rank that did not end, and later stops waiting for them.
    fn deadline_has_come(&mut self, rank: usize, now: Instant) -> Option<GroupAction> {
        let sweep = &mut self.members[rank].sweep;
        match *sweep {
            Some(StopDeadline::KillAt(at)) if now >= at => {
                *sweep = Some(StopDeadline::GiveUpAt(now + UNINTERRUPTIBLE_GRACE));
                return Some(GroupAction::KillLeftovers(Scope::One(rank)));
            }
            Some(StopDeadline::GiveUpAt(at)) if now >= at => *sweep = None,
            _ => {}
        }
        self.restart(rank, now)
    }

    /// Handles the announcement that the launch will end; ranks end by themselves when they have
    /// saved their work.
    fn announce_end(&mut self, now: Instant) -> Vec<GroupAction> {
        self.ends = true;
        let mut lost = Vec::new();
        for rank in 0..self.members.len() {
            if let Fate::Returning { .. } = self.members[rank].fate {
                lost.extend(self.lose(rank, ENDING));
            }
        }
        self.unless_over(lost, now)
    }

    fn leftover_grace(&self) -> Duration {
        LEFTOVER_GRACE.min(self.grace)
    }

    fn swept(&mut self, then: AfterStop) -> Vec<GroupAction> {
        match then {
            AfterStop::Restart => self.join(),
            AfterStop::Part(end) => {
                self.state = GroupState::Parting { end };
                vec![GroupAction::Part]
            }
            AfterStop::Finish(end) => self.finish(end),
        }
    }
}

impl AfterStop {
    /// Cancels a restart because the launch ends; otherwise keeps the end that was decided before.
    fn without_restart(self, end: LaunchEnd) -> AfterStop {
        match self {
            AfterStop::Restart => AfterStop::Finish(end),
            AfterStop::Part(_) | AfterStop::Finish(_) => self,
        }
    }
}

impl Member {
    fn is_running(&self) -> bool {
        matches!(self.fate, Fate::Running { .. })
    }

    fn is_over(&self) -> bool {
        matches!(self.fate, Fate::Ended | Fate::Lost)
    }

    fn deadline(&self) -> Option<Instant> {
        match (self.sweep, self.fate) {
            (Some(patience), _) => Some(patience.at()),
            (None, Fate::Returning { due, .. }) => Some(due),
            (None, Fate::Running { .. } | Fate::Ended | Fate::Lost) => None,
        }
    }
}

#[cfg(test)]
mod tests;
