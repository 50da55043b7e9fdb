//! Where time enters: loops, connections and waiting for processes read the clock here. Pure
//! modules take the time as an argument.

use std::time::Instant;

/// Returns the current time of the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub fn now() -> Instant {
    Instant::now()
}
