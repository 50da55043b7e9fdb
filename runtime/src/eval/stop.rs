//! A graceful stop: a signal (SIGINT, SIGTERM, SIGHUP) or another rank ends this one at its next step, with every file
//! whole.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Asked for by a signal or by another rank, looked at by the loop.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    signals: Arc<AtomicUsize>,
    called_off: Arc<OnceLock<String>>,
}

impl Stop {
    /// Takes over the signals. The second one ends the process at once.
    ///
    /// # Errors
    /// When a handler is installed already.
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

    /// Another rank has ended the evaluation, for this reason.
    pub fn call_off(&self, reason: String) {
        // The first reason is the one that is told.
        let _ = self.called_off.set(reason);
    }

    /// Whether it was asked for.
    pub fn asked(&self) -> bool {
        self.signalled() || self.called_off.get().is_some()
    }

    /// Why, once it was asked for.
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
