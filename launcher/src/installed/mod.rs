//! What was installed with the launcher, see [`jobs::installed`], and whether it would start.

pub mod libraries;

pub use jobs::installed::{rank_binary, suites};
