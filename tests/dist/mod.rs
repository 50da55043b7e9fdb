//! Tests of several ranks: collectives and the gather at world sizes 1 to 4, with ranks that are
//! late, die or run Python.

pub mod child;
mod collectives;
mod gather;
mod probe;
mod python_peer;
pub mod ranks;
