//! The only interface to CUDA and to libtorch's C++, and the gather of ranks.
//!
//! ```text
//! gather ─┬► parts ─► tcpstore::Store
//!         └► nccl      libnccl.so.2, loaded when it is needed
//!            device ───► cuda ─────┐
//!            weights ──► upload ───┼────────┬► shim/cuda.cc    embedded, loaded if there
//!                                  │        │  shim/upload.cc  is a driver
//!             policy ──► package ──┘        └► shim/package.cc linked: compiled packages
//! ```
//!
//! The ranks of an evaluation work together only once, at the end, to bring the parts of the report
//! to rank 0: see [`Gathering`]. Every call here ends at a deadline or with an error; nothing waits
//! for a peer without a deadline.
//!
//! The code that runs on a GPU (NCCL, the figures of [`cuda`]) is compiled against libtorch 2.11
//! or 2.12. `tests/gpu` runs it on a GPU, and on an imitation of one: no GPU was available yet.

pub mod cuda;
mod ffi;
mod gather;
pub mod graph;
pub mod libtorch;
pub mod nccl;
pub mod operators;
pub mod package;
pub mod torch_error;
pub mod upload;

pub use gather::{Gathered, Gathering, Route};
pub use torch_error::TorchError;
