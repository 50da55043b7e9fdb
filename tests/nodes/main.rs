//! Several launchers on one machine, each a node of its own: how they meet, lose each other and end.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cluster;
mod elastic;
mod fixed;
mod foreign;
mod gloo;
mod isolation;
mod lab;
mod losses;
mod partitions;
mod refusals;
mod site;
mod training;
mod wires;
