//! The one host of Python processes: simulators, policies and trackers each run in one, with our
//! modules beside theirs. It knows no simulator, no policy and no tracker.
//!
//! ```text
//! Worker ══ socket, shared memory ══ rrun_host.py ─► rrun_worker.py, rrun_policy.py, rrun_track.py
//! ```
//!
//! The configuration is in the shared memory when the process starts. Then each side sends packets
//! of a SOCK_SEQPACKET socket, in the machine's byte order; all begin with the same eight bytes:
//!
//! ```text
//! u8 kind │ u8 - │ u16 count │ u32 sequence │ body
//!
//! rank → process   Q  request `sequence`: `count` entries, or JSON
//!                  C  close
//! process → rank   S  a stage of the start: what is being done
//!                  H  what it is, as JSON; from here on requests may come
//!                  N  a note for the user
//!                  A  answer to `sequence`; what is large is in shared memory
//!                  E  request `sequence` failed, and why; the process goes on
//!                  X  the process ends, and why; `count`: the copy to blame, or 0xFFFF; `sequence` 1:
//!                     another process would find the same
//! ```
//! The memory has its size before the first request. Both sides count the places in it in the same
//! way: one part after the other, each at a multiple of 64 bytes.

mod end;
pub mod memory;
mod pre_exec;
mod process;
mod program;
mod worker;

pub use end::is_readable;
pub use pre_exec::guard;
pub use process::{Cause, Loss, READY, Ready, Said};
pub use program::{Module, Program, Variable, find_interpreter, read_variable, set_default};
pub use worker::{Worker, close_all};
