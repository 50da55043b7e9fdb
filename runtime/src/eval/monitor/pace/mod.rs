//! How often ranks publish their heartbeats, and who reads them: the load of the store is bounded
//! however many ranks there are. Pure.
//!
//! A store serves some 30 000 requests a second on one core (benches/README.md). A heartbeat is two
//! of them, a set and a question, and a rank that waits needs [`WAITING`].

use std::time::Duration;

/// Ranks up to which each reads the heartbeats of all others when it waits. With more, one rank
/// reads them and publishes an [overview](crate::eval::monitor::overview) for the others.
pub const DIRECT: usize = 64;

/// Heartbeats that the store receives in a second, at most.
const BEATS: u32 = 2048;

/// Longest time between two heartbeats of a rank. Whoever is told to end notices that late.
const LONGEST: Duration = Duration::from_secs(10);

/// Heartbeats in one request.
pub const AT_ONCE: usize = 1024;

/// Returns the time between two heartbeats of one of so many ranks.
pub fn pace(ranks: usize) -> Duration {
    let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
    (Duration::from_secs(1) * ranks / BEATS).clamp(Duration::from_secs(1), LONGEST)
}

/// Returns whether each of so many ranks reads the heartbeats of all others.
pub fn is_direct(ranks: usize) -> bool {
    ranks <= DIRECT
}

#[cfg(test)]
mod simulation;
