//! Tests of several launchers on one machine, each of which is a node: rendezvous, lost nodes and
//! ends.

mod cluster;
mod elastic;
mod evaluation;
mod fixed;
mod foreign;
mod gloo;
mod hosts;
mod isolation;
mod lab;
mod losses;
mod manifests;
mod partitions;
mod pods;
mod refusals;
mod site;
mod steps;
mod store;
mod training;
mod wires;
