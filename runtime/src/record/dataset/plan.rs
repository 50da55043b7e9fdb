//! What to keep of episodes.

use std::path::{Path, PathBuf};

/// The dataset of a rank.
#[derive(Clone, Debug)]
pub struct DatasetPlan {
    /// Where: a file, of LeRobot a folder. What is there is gone on with.
    pub path: PathBuf,
    /// In which form.
    pub format: Format,
    /// Which episodes.
    pub export: Export,
    /// Number of the first new demo at least: one after those that are spoken of elsewhere. A file that was lost must
    /// not give their names to other episodes. LeRobot counts its episodes without a gap, so it is not asked there.
    pub first_demo: u64,
    /// The same for [`DatasetPlan::failed_path`].
    pub first_failed_demo: u64,
    /// Goes to the attribute `env_args` of `data` as JSON: `{"env_name": …, "type": 2, …}`.
    pub env_args: serde_json::Value,
    /// Also keep pictures: as `obs/<camera>`, of LeRobot as videos.
    pub cameras: bool,
}

/// The form of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One HDF5 file, as robomimic and Isaac Lab have it, with the simulator's state.
    #[default]
    Hdf5,
    /// A folder as LeRobot v3.0 has it.
    LeRobot,
}

/// Which episodes a dataset has: Isaac Lab's `DatasetExportMode` (isaaclab/managers/recorder_manager.py), whose
/// `EXPORT_NONE` is a [`RecordPlan`](crate::record::RecordPlan) without a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Export {
    /// Every one: `EXPORT_ALL`.
    #[default]
    All,
    /// Those that succeeded: `EXPORT_SUCCEEDED_ONLY`.
    Succeeded,
    /// Those that failed in a second file, `<name>_failed`: `EXPORT_SUCCEEDED_FAILED_IN_SEPARATE_FILES`.
    Separate,
}

impl DatasetPlan {
    /// The second file of [`Export::Separate`].
    pub fn failed_path(path: &Path) -> PathBuf {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push("_failed");
        match path.extension() {
            None => path.with_file_name(name),
            Some(ending) => path.with_file_name(name).with_added_extension(ending),
        }
    }
}
