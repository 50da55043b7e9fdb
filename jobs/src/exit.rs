//! What a rank's exit code says to its launcher.

/// Something failed in a way that starting the rank again would not change: bad input, a job that failed for good. A
/// launcher that restarts ranks one by one leaves it at that.
pub const FINAL: u8 = 3;
