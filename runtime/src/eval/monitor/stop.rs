//! Graceful stop: after a signal (SIGINT, SIGTERM, SIGHUP), or if another rank ends the evaluation,
//! this rank ends at its next step and leaves all files complete.
//!
//! If a sequential test has decided, it begins no more episodes, but finishes those that are under
//! way: dropping them would favour short, successful ones in the rates of the report.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A stop request by a signal or another rank, polled by the loop.
#[derive(Debug, Default)]
pub struct StopRequest {
    signals: Arc<AtomicUsize>,
    called_off: Option<String>,
    /// Whether no more episodes are to begin. It is not a stop: the rank ends in the usual way.
    pub is_decided: bool,
}

impl StopRequest {
    /// Installs the signal handlers. A second signal ends the process at once.
    ///
    /// # Errors
    /// Returns an error if a handler is already installed.
    pub fn on_signals() -> Result<Self, ctrlc::Error> {
        let stop = Self::default();
        let signals = Arc::clone(&stop.signals);
        ctrlc::set_handler(move || {
            if signals.fetch_add(1, Ordering::SeqCst) > 0 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the user asked twice; the journal is synced line by line"
                )]
                std::process::exit(130);
            }
        })?;
        Ok(stop)
    }

    /// Stops this rank because another rank has ended the evaluation for `reason`. Only the first
    /// reason is kept.
    pub fn call_off(&mut self, reason: String) {
        self.called_off.get_or_insert(reason);
    }

    /// Returns whether a stop was requested.
    pub fn asked(&self) -> bool {
        self.signalled() || self.called_off.is_some()
    }

    /// Returns the reason for the stop, if one was requested.
    pub fn reason(&self) -> Option<String> {
        match self.signalled() {
            true => Some("stopped by a signal".to_owned()),
            false => self.called_off.clone(),
        }
    }

    fn signalled(&self) -> bool {
        self.signals.load(Ordering::SeqCst) > 0
    }
}
