//! Tests of GR00T against the reference: every case folder of `$RRUN_GOLDENS`, by default the
//! committed ones.
//!
//! Sizes, IDs and switches come from the case's own files, so a new folder needs no code. Use
//! `--nocapture` to see the largest error of each case.

pub mod case;
pub mod compare;
pub mod network;
