//! The dataset of one rank: HDF5 in robomimic's format, with the names and shapes of Isaac Lab's
//! recorder, or a LeRobot folder (see `lerobot`).

use std::path::PathBuf;

mod demo;
mod export;
mod file;
mod hdf5_file;
mod plan;
mod repack;
mod root_table;

pub use plan::{DatasetPlan, Export, Format};

use crate::env::EnvSpec;
use crate::record::RecordError;
use crate::record::lerobot::Folder;
use crate::record::writer::DatasetWriter;
use export::Exported;
use file::DemoFile;

/// Opens the datasets of the plan. `notes` receives a line for everything that was lost.
pub(super) fn open(
    plan: &DatasetPlan,
    env: &EnvSpec,
    notes: &mut Vec<String>,
) -> Result<Box<dyn DatasetWriter>, RecordError> {
    let mut open = |path: PathBuf, first_demo| -> Result<Box<dyn DatasetWriter>, RecordError> {
        match plan.format {
            Format::LeRobot => Ok(Box::new(Folder::open(&path, env, notes)?)),
            Format::Hdf5 => Ok(Box::new(DemoFile::open(
                path,
                &plan.env_args,
                first_demo,
                notes,
            )?)),
        }
    };
    let first = open(plan.path.clone(), plan.first_demo)?;
    let failed = (plan.export == Export::Separate)
        .then(|| open(DatasetPlan::failed_path(&plan.path), plan.first_failed_demo))
        .transpose()?;
    Ok(Box::new(Exported {
        export: plan.export,
        first,
        failed,
    }))
}
