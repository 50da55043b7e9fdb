//! The rules for processes that are supervised one by one, ranks as well as the model server: how
//! often one may restart and how long each restart is delayed, and how long to wait for one that is
//! told to end. Pure.

use std::time::{Duration, Instant};

/// How long processes that outlive their rank may take to end after SIGTERM. Torchrun does not end
/// them; five seconds let a data loader or a logger close its files and keep the end of a launch
/// short.
pub const LEFTOVER_GRACE: Duration = Duration::from_secs(5);

/// How long to wait after SIGKILL for a process in an uninterruptible system call, for instance in
/// a hung GPU driver or file server (torchrun waits without limit: pytorch/pytorch#185414).
pub const UNINTERRUPTIBLE_GRACE: Duration = Duration::from_secs(30);

/// What happens when the awaited processes have not ended by a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopDeadline {
    /// They get SIGKILL.
    KillAt(Instant),
    /// They have had SIGKILL, and are waited for no longer.
    GiveUpAt(Instant),
}

impl StopDeadline {
    /// Returns the time, whatever happens then.
    pub fn at(self) -> Instant {
        match self {
            StopDeadline::KillAt(at) | StopDeadline::GiveUpAt(at) => at,
        }
    }
}

/// Delay of the first restart; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Upper limit of the delay: what a rank waits for, such as a file server or a GPU that is being
/// reset, is back within minutes.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A rank that has lived this long gets its full budget back, because its failure is unlikely to
/// have the same cause as the one before. A crash per hour must not end a night's run, and one at
/// every start must not go on all night.
const GOOD_LIFE: Duration = Duration::from_secs(10 * 60);

/// The restart budget of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartBudget {
    max: u32,
    /// Restarts that count against `max`.
    spent: u32,
    /// All restarts of this rank so far.
    restarts: u32,
}

/// A restart that was granted to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Number of this restart in the budget, from 1.
    pub number: u32,
    /// Size of the budget.
    pub of: u32,
    /// Value of `TORCHELASTIC_RESTART_COUNT`: all restarts of this rank, this one included.
    pub attempt: u32,
    /// Delay before the restart.
    pub after: Duration,
}

impl RestartBudget {
    /// Returns a budget of `max` restarts.
    pub fn new(max: u32) -> RestartBudget {
        RestartBudget {
            max,
            spent: 0,
            restarts: 0,
        }
    }

    /// Returns the number of all restarts of this rank so far.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Takes one restart, if one is left, for a rank that failed after it had lived for `life`.
    pub fn take(&mut self, life: Duration) -> Option<Restart> {
        if life >= GOOD_LIFE {
            self.spent = 0;
        }
        if self.spent == self.max {
            return None;
        }
        let after = FIRST_PAUSE
            .saturating_mul(2_u32.saturating_pow(self.spent))
            .min(LONGEST_PAUSE);
        self.spent += 1;
        self.restarts = self.restarts.saturating_add(1);
        Some(Restart {
            number: self.spent,
            of: self.max,
            attempt: self.restarts,
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(1);

    fn pauses(budget: &mut RestartBudget, count: usize) -> Vec<u64> {
        (0..count)
            .filter_map(|_| budget.take(SHORT))
            .map(|restart| restart.after.as_secs())
            .collect()
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        assert_eq!(
            pauses(&mut RestartBudget::new(100), 9),
            [1, 2, 4, 8, 16, 32, 60, 60, 60]
        );
        assert_eq!(
            pauses(&mut RestartBudget::new(u32::MAX), 40).last(),
            Some(&60)
        );
    }

    #[test]
    fn a_budget_is_spent_after_as_many_restarts_as_it_has() {
        let mut budget = RestartBudget::new(2);
        let numbers: Vec<_> = (0..3)
            .map(|_| budget.take(SHORT).map(|it| (it.number, it.of, it.attempt)))
            .collect();
        assert_eq!(numbers, [Some((1, 2, 1)), Some((2, 2, 2)), None]);
        assert_eq!(
            (budget.restarts(), RestartBudget::new(0).take(SHORT)),
            (2, None)
        );
    }

    #[test]
    fn a_good_life_gives_budget_and_pause_back_but_not_the_count() {
        let mut budget = RestartBudget::new(2);
        pauses(&mut budget, 2);
        let again = budget.take(GOOD_LIFE).expect("it has its budget back");
        assert_eq!(
            (again.number, again.attempt, again.after),
            (1, 3, FIRST_PAUSE)
        );
        assert_eq!(
            budget.take(GOOD_LIFE - SHORT).map(|restart| restart.number),
            Some(2)
        );
    }

    #[test]
    fn no_restart_stays_none_however_long_the_life() {
        assert_eq!(RestartBudget::new(0).take(GOOD_LIFE), None);
    }
}
