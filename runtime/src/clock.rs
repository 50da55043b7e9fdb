//! Where time enters: loops, connections and waiting for processes read the clock here. Pure
//! modules take the time as an argument.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use jobs::time::now;
use rustix::event::Timespec;

/// Returns the seconds since 1970, for messages that carry the time.
pub fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Returns a time limit as `poll` and `epoll` take it.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
