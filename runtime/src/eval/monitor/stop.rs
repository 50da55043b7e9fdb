//! Graceful stop: after a signal (SIGINT, SIGTERM, SIGHUP), or if another rank ends the evaluation,
//! this rank ends at its next step and leaves all files complete.
//!
//! If a sequential test has decided, it begins no more episodes, but finishes those that are under
//! way: dropping them would favour short, successful ones in the rates of the report.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A stop request by a signal or another rank, polled by the loop.
#[derive(Clone, Debug, Default)]
pub struct StopRequest {
    signals: Arc<AtomicUsize>,
    called_off: Arc<OnceLock<String>>,
    decided: Arc<AtomicBool>,
}

impl StopRequest {
    /// Installs the signal handlers. A second signal ends the process at once.
    ///
    /// # Errors
    /// Returns an error if a handler is already installed.
    pub fn on_signals() -> Result<Self, ctrlc::Error> {
        let stop = Self::default();
        let handler = stop.clone();
        ctrlc::set_handler(move || {
            if handler.signals.fetch_add(1, Ordering::SeqCst) > 0 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the user asked twice; the journal is synced line by line"
                )]
                std::process::exit(130);
            }
        })?;
        Ok(stop)
    }

    /// Stops this rank because another rank has ended the evaluation for `reason`.
    pub fn call_off(&self, reason: String) {
        // Only the first reason is kept.
        let _ = self.called_off.set(reason);
    }

    /// Lets this rank begin no more episodes, because a sequential test has decided.
    pub fn decide(&self) {
        self.decided.store(true, Ordering::SeqCst);
    }

    /// Returns whether no more episodes are to begin. It is not a stop: the rank ends in the usual
    /// way.
    pub fn is_decided(&self) -> bool {
        self.decided.load(Ordering::SeqCst)
    }

    /// Returns whether a stop was requested.
    pub fn asked(&self) -> bool {
        self.signalled() || self.called_off.get().is_some()
    }

    /// Returns the reason for the stop, if one was requested.
    pub fn reason(&self) -> Option<String> {
        match self.signalled() {
            true => Some("stopped by a signal".to_owned()),
            false => self.called_off.get().cloned(),
        }
    }

    fn signalled(&self) -> bool {
        self.signals.load(Ordering::SeqCst) > 0
    }
}
