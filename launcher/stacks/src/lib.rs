//! The stacks of running processes, as evidence of what they wait for.
//!
//! ```text
//! capture ─► Captured: registers, stack memory, wait channels   (the process stands still, ~1 ms)
//!    └► trace ─► Trace: frames with names, native and Python    (the process runs again)
//! ```
//! [`capture`] uses ptrace, so it must be called by a thread that nobody waits for children on at
//! the same time: `waitpid` would report the stops of the captured threads as its own. Neither the
//! captured process nor its files are trusted: every length is limited.

#![forbid(unsafe_code)]

pub mod capture;
pub mod elf;
pub mod facts;
pub mod maps;
pub mod native;
pub mod python;
pub mod symbols;
pub mod trace;

pub use capture::{Captured, CapturedThread, capture};
pub use trace::{Frame, Thread, Trace, trace};
