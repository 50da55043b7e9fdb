//! Tests of several ranks: the gather at world sizes 1 to 4, with ranks that are late or die, and
//! a store that ranks in Rust and Python share.

pub mod child;
mod gather;
mod probe;
mod python_peer;
pub mod ranks;
