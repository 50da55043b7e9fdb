//! The only interface to c10d and CUDA.
//!
//! ```text
//! gather ─► protocol ─┬► delivery ─► Store ────┐
//!                     └► ProcessGroup, NCCL ───┼─► ffi ─┬► shim/c10d.cc    linked: TCPStore, Gloo,
//!            device ───► cuda::load ───────────┤        │                  collectives
//!            weights ──► upload ───────────────┤        ├► shim/package.cc linked: compiled packages
//!             policy ──► package ──────────────┘        └► shim/cuda.cc    embedded, loaded if there
//!                                                          shim/upload.cc  is a driver
//! ```
//!
//! The ranks of an evaluation work together only once, at the end, to bring the parts of the report
//! to rank 0: see [`gather`]. Every call here ends at a deadline or with an error; nothing waits
//! for a peer without a deadline.
//!
//! The code that runs on a GPU (NCCL, the figures of [`cuda`]) is compiled against libtorch 2.11
//! with NCCL 2.28.9 or 2.12 with 2.29.7. `tests/gpu` runs it on a GPU, and on an imitation of one:
//! no GPU was available yet.

mod caller;
pub mod cuda;
mod deadline;
mod error;
mod ffi;
mod gather;
mod group;
pub mod libtorch;
mod lookup;
mod no_cuda;
pub mod operators;
pub mod package;
mod store;
mod store_addr;
pub mod torch_error;
pub mod upload;

pub use error::DistError;
pub use gather::{Gathered, Participant, Route, gather};
pub use group::{ProcessGroup, Reduction};
pub use lookup::Lookup;
pub use store::Store;
pub use store_addr::StoreAddr;
