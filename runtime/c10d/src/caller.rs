//! A thread that makes the calls on one connection, so that a call that does not return can be left
//! behind.
//!
//! libtorch's client waits in `recv` for as long as TCP keeps the connection: many minutes if the
//! other node has lost its power.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::DistError;

type Call = Box<dyn FnOnce() + Send>;

/// The thread of one connection. Calls run one after the other.
pub struct Caller {
    /// `None` once a call was left behind: its answer may still come, and the next call would take
    /// it for its own.
    calls: Mutex<Option<Sender<Call>>>,
}

impl Caller {
    /// Starts the thread, which ends with this value.
    pub fn start() -> io::Result<Self> {
        let (calls, inbox) = channel::<Call>();
        let named = thread::Builder::new().name("rrun-store".to_owned());
        named.spawn(move || inbox.into_iter().for_each(|call| call()))?;
        Ok(Self {
            calls: Mutex::new(Some(calls)),
        })
    }

    /// Runs `work` on the thread and returns its result. After `limit`, or if an earlier call was
    /// left behind, it is an error. The time of other callers does not count.
    pub fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DistError> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, outcome) = channel();
        let call: Call = Box::new(move || drop(done.send(work())));
        let is_sent = calls.as_ref().is_some_and(|calls| calls.send(call).is_ok());
        if !is_sent {
            return Err(DistError::Lost {
                reason: "the store has not answered an earlier request".to_owned(),
            });
        }
        outcome.recv_timeout(limit).map_err(|err| {
            *calls = None;
            match err {
                RecvTimeoutError::Timeout => DistError::Stuck { after: limit },
                RecvTimeoutError::Disconnected => DistError::Lost {
                    reason: "the thread that talks to the store has ended".to_owned(),
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn calls_that_end_in_time_return_their_results() {
        let caller = Caller::start().unwrap();
        assert_eq!(caller.within(LONG, || 7).unwrap(), 7);
        assert_eq!(caller.within(LONG, || "x").unwrap(), "x");
    }

    #[test]
    fn after_a_call_that_was_left_behind_there_are_no_more() {
        let caller = Caller::start().unwrap();
        let (end, ended) = channel::<()>();
        let err = caller
            .within(Duration::from_millis(20), move || ended.recv().is_ok())
            .unwrap_err();
        assert!(matches!(err, DistError::Stuck { .. }), "{err}");
        // Its answer comes late.
        end.send(()).unwrap();
        let err = caller.within(LONG, || "not the late answer").unwrap_err();
        assert!(matches!(err, DistError::Lost { .. }), "{err}");
    }
}
