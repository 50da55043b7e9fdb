//! Configuration of a dataset.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The dataset of a rank.
#[derive(Clone, Debug)]
pub struct DatasetPlan {
    /// Path of the file, or of the folder for LeRobot. An existing dataset is continued.
    pub path: PathBuf,
    /// File format of the dataset.
    pub format: Format,
    /// Selects the episodes to keep.
    pub export: Export,
    /// What the journals say about an existing dataset.
    pub earlier: EarlierDemos,
    /// The same for [`DatasetPlan::failed_path`].
    pub earlier_failed: EarlierDemos,
    /// JSON for the attribute `env_args` of `data`: `{"env_name": …, "type": 2, …}`.
    pub env_args: serde_json::Value,
    /// True if images are kept as well: as `obs/<camera>`, or as videos for LeRobot.
    pub cameras: bool,
}

/// What the journals say about the demonstrations of an existing dataset.
#[derive(Clone, Debug, Default)]
pub struct EarlierDemos {
    /// Lowest number of the first new demo: one more than the highest that the journals mention. If
    /// a file was lost, its names must not be given to other episodes. LeRobot numbers its episodes
    /// without gaps and ignores this.
    pub next: u64,
    /// Names that do not count and are dropped: the process died before it wrote their lines to the
    /// journal, or their job starts over. LeRobot drops those that no other episode follows.
    pub left_out: BTreeSet<String>,
}

/// The format of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One HDF5 file in the format of robomimic and Isaac Lab, with the simulator's state.
    #[default]
    Hdf5,
    /// A folder in the format of LeRobot v3.0.
    LeRobot,
}

/// Selects the episodes of a dataset: Isaac Lab's `DatasetExportMode`
/// (isaaclab/managers/recorder_manager.py), whose `EXPORT_NONE` is a
/// [`RecordPlan`](crate::record::RecordPlan) without a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Export {
    /// All episodes: `EXPORT_ALL`.
    #[default]
    All,
    /// Successful episodes: `EXPORT_SUCCEEDED_ONLY`.
    Succeeded,
    /// All episodes, with the failed ones in a second file, `<name>_failed`:
    /// `EXPORT_SUCCEEDED_FAILED_IN_SEPARATE_FILES`.
    Separate,
}

impl DatasetPlan {
    /// Returns the path of the second file of [`Export::Separate`].
    pub fn failed_path(path: &Path) -> PathBuf {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push("_failed");
        match path.extension() {
            None => path.with_file_name(name),
            Some(ending) => path.with_file_name(name).with_added_extension(ending),
        }
    }
}
