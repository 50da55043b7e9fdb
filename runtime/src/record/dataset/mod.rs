//! The dataset of one rank: robomimic's HDF5, named and shaped as Isaac Lab's recorder does.

mod demo;
mod export;
mod file;
mod plan;
mod repack;
mod root_table;

pub use plan::{DatasetPlan, Export};

use super::RecordError;
use super::writer::Store;

/// Opens what the plan wants. `notes` gets a line for whatever was lost.
pub(super) fn open(plan: &DatasetPlan, notes: &mut Vec<String>) -> Result<Box<dyn Store>, RecordError> {
    Ok(Box::new(export::Files::open(plan, notes)?))
}
