//! Fuzz tests of what strangers can send: `make hostile` runs them for long.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod of_jobs;
mod of_launcher;
mod of_report;
mod of_runtime;
