//! The dataset file of one rank: robomimic's HDF5, named and shaped as Isaac Lab's recorder does.

mod demo;
mod file;
mod repack;
mod root_table;

pub(super) use file::Dataset;
