//! The only door to c10d and CUDA.
//!
//! ```text
//! gather ─► meeting ─┬► delivery ─► Store ─┐
//!                    └► Group, NCCL ───────┼─► ffi ─┬► shim/c10d.cc   linked: TCPStore, Gloo, collectives
//!           device ───► cuda::load ────────┤        └► shim/cuda.cc   embedded, loaded where there is a driver
//!           weights ──► upload ────────────┘           shim/upload.cc
//! ```
//!
//! An evaluation needs its ranks together only once, at its end, to bring the parts of the report to rank 0: see
//! [`gather`]. Everything here ends at a deadline or with an error; nothing waits for a peer without one.
//!
//! What runs on a GPU (NCCL, the figures of [`cuda`]) has been compiled and linked against libtorch 2.11 with NCCL
//! 2.28.9, but not run: no GPU was at hand. `tests/gpu` runs it where there is one.

pub mod cuda;
mod deadline;
mod delivery;
mod error;
pub(crate) mod ffi;
mod gather;
mod group;
mod meeting;
mod store;
pub(crate) mod upload;

pub use error::DistError;
pub use gather::{Gathered, Route, Who, gather};
pub use group::{Group, Reduction};
pub use store::{Store, StoreAddr};
