//! A graceful stop: SIGINT, SIGTERM or SIGHUP ends the rank at its next step, with every file whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Asked for by a signal, looked at by the loop.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Takes over the signals. The second one ends the process at once.
    ///
    /// # Errors
    /// When a handler is installed already.
    pub fn on_signals() -> Result<Self, ctrlc::Error> {
        let stop = Self::default();
        let handler = stop.clone();
        ctrlc::set_handler(move || {
            if handler.0.fetch_add(1, Ordering::SeqCst) > 0 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the user asked twice; the journal is synced line by line"
                )]
                std::process::exit(130);
            }
        })?;
        Ok(stop)
    }

    /// Whether it was asked for.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}
