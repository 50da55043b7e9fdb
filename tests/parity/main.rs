//! GR00T against the reference: every case folder of `$RRUN_GOLDENS`, by default the committed ones.
//!
//! Sizes, ids and switches come from the case's own files, so a new folder needs no code. Run with `--nocapture` to see
//! the worst error of each case.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod case;
mod compare;
mod network;
