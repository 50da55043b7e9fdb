//! The timers of the processes of a node. Pure: no clock, and times are seconds since 1970.

use std::collections::BTreeMap;

use crate::hang::timer::request::TimerRequest;

/// Timers at most; one with-block of a process is one timer.
const MAX_TIMERS: usize = 4096;

/// The timers that run.
#[derive(Debug, Default)]
pub struct Timers {
    /// When each expires, and with which signal, by process and scope.
    running: BTreeMap<(i32, String), (f64, i32)>,
}

/// A process of which timers have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The process.
    pub pid: i32,
    /// What it should have done by now, by the time at which it should have.
    pub scopes: Vec<String>,
    /// The signal that it is to get: that of the timer which expired first, of those with a signal.
    pub signal: Option<i32>,
}

/// There are too many timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {MAX_TIMERS} timers already")]
pub struct TooManyTimers;

impl Timers {
    /// Starts, moves or ends a timer.
    ///
    /// # Errors
    /// Returns [`TooManyTimers`] if one more would be too many.
    pub fn on(&mut self, request: TimerRequest) -> Result<(), TooManyTimers> {
        let key = (request.pid, request.scope);
        let Some(expires) = request.expires else {
            self.running.remove(&key);
            return Ok(());
        };
        if self.running.len() >= MAX_TIMERS && !self.running.contains_key(&key) {
            return Err(TooManyTimers);
        }
        self.running.insert(key, (expires, request.signal));
        Ok(())
    }

    /// Returns whether any timer runs.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns when the next timer expires.
    pub fn next(&self) -> Option<f64> {
        let times = self.running.values().map(|(expires, _)| *expires);
        times.min_by(f64::total_cmp)
    }

    /// Ends the timers of processes that are gone.
    pub fn keep(&mut self, lives: impl Fn(i32) -> bool) {
        self.running.retain(|(pid, _), _| lives(*pid));
    }

    /// Ends all timers of each process of which one has expired at `now`, and returns these
    /// processes, in the order in which they should have been done.
    pub fn expired(&mut self, now: f64) -> Vec<Expired> {
        let mut due: Vec<(f64, i32, String, i32)> = self
            .running
            .iter()
            .filter(|(_, (expires, _))| *expires <= now)
            .map(|((pid, scope), (expires, signal))| (*expires, *pid, scope.clone(), *signal))
            .collect();
        due.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut expired: Vec<Expired> = Vec::new();
        for (_, pid, scope, signal) in due {
            let signal = (signal > 0).then_some(signal);
            match expired.iter_mut().find(|process| process.pid == pid) {
                Some(process) => {
                    process.scopes.push(scope);
                    process.signal = process.signal.or(signal);
                }
                None => expired.push(Expired {
                    pid,
                    scopes: vec![scope],
                    signal,
                }),
            }
        }
        self.keep(|pid| expired.iter().all(|process| process.pid != pid));
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pid: i32, scope: &str, expires: f64, signal: i32) -> TimerRequest {
        TimerRequest {
            pid,
            scope: scope.to_owned(),
            expires: Some(expires),
            signal,
        }
    }

    fn timers(requests: &[TimerRequest]) -> Timers {
        let mut timers = Timers::default();
        for request in requests {
            timers.on(request.clone()).expect("there is room");
        }
        timers
    }

    fn release(pid: i32, scope: &str) -> TimerRequest {
        TimerRequest {
            expires: None,
            ..request(pid, scope, 0.0, 0)
        }
    }

    #[test]
    fn a_timer_that_is_not_released_expires_at_its_time() {
        let mut timers = timers(&[request(1, "step", 10.0, 9)]);
        assert_eq!(timers.next(), Some(10.0));
        assert_eq!(timers.expired(9.9), []);
        let expired = Expired {
            pid: 1,
            scopes: vec!["step".to_owned()],
            signal: Some(9),
        };
        assert_eq!(timers.expired(10.0), [expired]);
        assert!(timers.is_empty());
        assert_eq!(timers.expired(11.0), [], "it expires once");
    }

    #[test]
    fn a_released_timer_does_not_expire_and_another_scope_stays() {
        let mut timers = timers(&[request(1, "outer", 20.0, 9), request(1, "inner", 10.0, 9)]);
        timers
            .on(release(1, "inner"))
            .expect("an end needs no room");
        timers
            .on(release(2, "outer"))
            .expect("an end needs no room");
        assert_eq!(timers.expired(15.0), []);
        assert_eq!(timers.next(), Some(20.0));
    }

    #[test]
    fn a_timer_that_is_asked_for_again_moves() {
        let mut timers = timers(&[request(1, "step", 10.0, 9), request(1, "step", 30.0, 15)]);
        assert_eq!(timers.expired(20.0), []);
        assert_eq!(timers.expired(30.0)[0].signal, Some(15));
    }

    #[test]
    fn the_first_timer_with_a_signal_decides_and_the_others_of_the_process_end() {
        let mut timers = timers(&[
            request(1, "late", 12.0, 9),
            request(1, "quiet", 10.0, 0),
            request(1, "first", 11.0, 15),
            request(1, "later", 99.0, 9),
            request(2, "other", 5.0, -1),
            request(3, "fine", 99.0, 9),
        ]);
        let expired = timers.expired(20.0);
        let silent = Expired {
            pid: 2,
            scopes: vec!["other".to_owned()],
            signal: None,
        };
        let killed = Expired {
            pid: 1,
            scopes: ["quiet", "first", "late"].map(str::to_owned).to_vec(),
            signal: Some(15),
        };
        assert_eq!(expired, [silent, killed]);
        assert_eq!(timers.next(), Some(99.0));
        timers.keep(|pid| pid != 3);
        assert!(timers.is_empty());
    }

    #[test]
    fn timers_are_limited_and_those_that_run_can_still_be_moved() {
        let mut timers = Timers::default();
        for number in 0..MAX_TIMERS {
            let scope = number.to_string();
            timers
                .on(request(1, &scope, 10.0, 9))
                .expect("there is room");
        }
        assert_eq!(timers.on(request(1, "more", 10.0, 9)), Err(TooManyTimers));
        assert_eq!(timers.on(request(1, "7", 20.0, 9)), Ok(()));
        timers.on(release(1, "8")).expect("an end needs no room");
        assert_eq!(timers.on(request(1, "more", 10.0, 9)), Ok(()));
    }
}
