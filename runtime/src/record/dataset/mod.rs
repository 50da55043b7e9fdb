//! The dataset of one rank: HDF5 in robomimic's format, with the names and shapes of Isaac Lab's
//! recorder, or a LeRobot folder (see `lerobot`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

mod demo;
mod export;
mod file;
mod hdf5_file;
mod plan;
mod repack;
mod root_table;

pub use plan::{DatasetPlan, EarlierDemos, Export, Format};

use crate::env::EnvSpec;
use crate::record::RecordError;
use crate::record::lerobot::{self, Folder};
use crate::record::writer::DatasetWriter;
use export::Exported;
use file::DemoFile;

/// Opens the datasets of the plan. `notes` receives a line for everything that was lost.
pub(super) fn open(
    plan: &DatasetPlan,
    env: &EnvSpec,
    notes: &mut Vec<String>,
) -> Result<Box<dyn DatasetWriter>, RecordError> {
    let mut open =
        |path: PathBuf, earlier: &EarlierDemos| -> Result<Box<dyn DatasetWriter>, RecordError> {
            match plan.format {
                Format::LeRobot => {
                    let folder = Folder::open(&path, env, &earlier.left_out, notes)?;
                    Ok(Box::new(folder))
                }
                Format::Hdf5 => {
                    let env_args = plan.env_args.to_string();
                    Ok(Box::new(DemoFile::open(path, env_args, earlier, notes)?))
                }
            }
        };
    let first = open(plan.path.clone(), &plan.earlier)?;
    let failed = (plan.export == Export::Separate)
        .then(|| open(DatasetPlan::failed_path(&plan.path), &plan.earlier_failed))
        .transpose()?;
    Ok(Box::new(Exported {
        export: plan.export,
        first,
        failed,
    }))
}

/// Returns the names of the demonstrations of a dataset that exists.
///
/// # Errors
/// Returns [`RecordError`] if it cannot be read.
pub fn demos(path: &Path) -> Result<Vec<String>, RecordError> {
    match path.is_dir() {
        true => lerobot::names(path),
        false => repack::names(path),
    }
}

/// Drops demonstrations of a dataset that nobody writes; see [`EarlierDemos::left_out`]. In a
/// LeRobot folder this also mends what a kill has left.
///
/// # Errors
/// Returns [`RecordError`] if it cannot be read or written.
pub fn leave_out(path: &Path, left_out: &BTreeSet<String>) -> Result<(), RecordError> {
    match path.is_dir() {
        true => lerobot::leave_out(path, left_out),
        false if left_out.is_empty() => Ok(()),
        false => DemoFile::leave_out(path, left_out),
    }
}
