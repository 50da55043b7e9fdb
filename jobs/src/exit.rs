//! The exit codes by which a rank tells its launcher why it ended.

/// A failure that a restart would not fix: invalid input, or a job that has failed for good. A
/// launcher that restarts ranks individually does not restart this one.
pub const FINAL: u8 = 3;
