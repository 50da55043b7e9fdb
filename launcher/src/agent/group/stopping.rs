//! How ranks and what they leave behind are stopped: which signal they get, how long they may take,
//! and what a further signal from the user changes. Pure.

use std::time::{Duration, Instant};

use crate::agent::event::{GroupAction, LaunchEnd, Scope};
use crate::agent::group::{AfterStop, Fate, GroupState, WorkerGroup};
use crate::signals::ReceivedSignal;
use crate::supervision::{StopDeadline, UNINTERRUPTIBLE_GRACE};

/// Upper limit of the remaining grace period after a second signal. The signal is forwarded, as
/// torchrun does, but its sender is in a hurry.
pub const LAST_GRACE: Duration = Duration::from_secs(2);

impl WorkerGroup {
    pub(super) fn stop_by(
        &mut self,
        received: ReceivedSignal,
        grace: Duration,
        now: Instant,
    ) -> Vec<GroupAction> {
        let then = AfterStop::Finish(LaunchEnd::from(received));
        if !received.is_listed {
            return self.stop(then, libc::SIGKILL, grace, now);
        }
        self.signals += 1;
        self.stop(then, received.number, grace, now)
    }

    /// Handles a signal while the ranks are stopping. The first signal received is forwarded if the
    /// launcher itself began the stop; the second one is forwarded too and shortens the grace
    /// period; a second Ctrl-C, and any third signal, kills at once.
    pub(super) fn hurry(&mut self, received: ReceivedSignal, now: Instant) -> Vec<GroupAction> {
        let kills = self.signals > 0 && (received.number == libc::SIGINT || self.signals > 1);
        if kills {
            return self.stop(
                AfterStop::Finish(LaunchEnd::from(received)),
                libc::SIGKILL,
                Duration::ZERO,
                now,
            );
        }
        let left = self
            .deadline()
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let grace = if self.signals > 0 {
            left.min(LAST_GRACE)
        } else {
            left
        };
        self.stop_by(received, grace, now)
    }

    pub(super) fn stop(
        &mut self,
        then: AfterStop,
        signal: i32,
        grace: Duration,
        now: Instant,
    ) -> Vec<GroupAction> {
        let send = GroupAction::Send { signal };
        if !self.is_running() {
            return [vec![send], self.sweep(then, true, now)].concat();
        }
        let patience = match signal {
            libc::SIGKILL => StopDeadline::GiveUpAt(now + UNINTERRUPTIBLE_GRACE),
            _ => StopDeadline::KillAt(now + grace),
        };
        self.state = GroupState::Stopping { then, patience };
        vec![send]
    }

    /// Gives up ranks that SIGKILL did not end. They still hold their devices, so the launch is not
    /// restarted.
    pub(super) fn abandon(&mut self, then: AfterStop, now: Instant) -> Vec<GroupAction> {
        let mut abandoned = Vec::new();
        for (rank, member) in self.members.iter_mut().enumerate() {
            if member.is_running() {
                member.fate = Fate::Ended;
                abandoned.push(GroupAction::Abandon(rank));
            }
        }
        let then = then.without_restart(LaunchEnd::Failed);
        [abandoned, self.sweep(then, true, now)].concat()
    }

    /// Ends what the ranks, which have all ended, left behind.
    pub(super) fn sweep(
        &mut self,
        then: AfterStop,
        groups_know: bool,
        now: Instant,
    ) -> Vec<GroupAction> {
        self.state = GroupState::Sweeping {
            then,
            patience: StopDeadline::KillAt(now + self.leftover_grace()),
        };
        vec![GroupAction::Sweep {
            scope: Scope::All,
            groups_know,
            is_success: then == AfterStop::Part(LaunchEnd::Succeeded),
        }]
    }

    pub(super) fn kill_leftovers(&mut self, then: AfterStop, now: Instant) -> Vec<GroupAction> {
        self.state = GroupState::Sweeping {
            then,
            patience: StopDeadline::GiveUpAt(now + UNINTERRUPTIBLE_GRACE),
        };
        vec![GroupAction::KillLeftovers(Scope::All)]
    }
}
