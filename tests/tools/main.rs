//! The tools over the files of a run, as a user calls them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compare;
mod fit;
#[allow(dead_code, reason = "each file of tests takes what it needs")]
mod folder;
mod foreign;
mod merge;
mod report;
mod verify;
