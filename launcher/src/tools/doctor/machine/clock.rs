//! The clock: reports and journals carry its time, and nodes compare what they say.

use std::time::{Duration, SystemTime};

use jobs::time::rfc3339;

use crate::tools::doctor::diagnosis::Diagnosis;
use crate::tools::doctor::machine::adjtimex::{ClockState, clock_state};

/// 2026-11-01, in seconds since 1970. No machine with this program is earlier.
const RELEASED: u64 = 1_793_491_200;

/// What is known about the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockFacts {
    /// Seconds since 1970.
    unix_seconds: u64,
    state: Option<ClockState>,
}

impl ClockFacts {
    pub(super) fn read() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            unix_seconds: since.map_or(0, |since| since.as_secs()),
            state: clock_state(),
        }
    }

    pub(super) fn judged(self) -> Diagnosis {
        let name = "clock";
        let time = rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(self.unix_seconds));
        if self.unix_seconds < RELEASED {
            let found = format!("{time}, which is before rrun was written");
            let remedy = "set the clock: `timedatectl set-ntp true`, or start chrony";
            return Diagnosis::failed(name, found, remedy);
        }
        match self.state {
            Some(state) if state.is_synchronised => {
                let error_ms = state.error_us as f64 / 1000.0;
                let found = format!("{time}, synchronised, error about {error_ms:.0} ms");
                Diagnosis::ok(name, found)
            }
            Some(_) => Diagnosis::note(
                name,
                format!("{time}, not synchronised (NTP); times of several nodes may disagree"),
            ),
            None => {
                let found = format!("{time}; the kernel does not tell whether it is synchronised");
                Diagnosis::note(name, found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::doctor::diagnosis::Health;

    #[test]
    fn a_clock_that_is_kept_right_is_ok_and_one_that_was_never_set_fails() {
        let right = "2026-11-01T00:00:00.000Z, synchronised, error about 2 ms";
        for (unix_seconds, is_synchronised, health, found) in [
            (RELEASED, Some(true), Health::Ok, right),
            (RELEASED, Some(false), Health::Note, ""),
            (RELEASED, None, Health::Note, ""),
            (17, Some(true), Health::Failed, ""),
        ] {
            let state = is_synchronised.map(|is_synchronised| ClockState {
                is_synchronised,
                error_us: 2300,
            });
            let judged = ClockFacts {
                unix_seconds,
                state,
            }
            .judged();
            assert_eq!(judged.health, health, "{judged:?}");
            assert!(judged.found.starts_with(found), "{judged:?}");
        }
    }
}
