//! The formats of datasets: what launcher and ranks have to know of each.

use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Format of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    /// One HDF5 file, as in robomimic and Isaac Lab.
    #[default]
    Hdf5,
    /// A folder, as in LeRobot v3.0.
    Lerobot,
}

impl RecordFormat {
    /// Returns the format of a dataset that exists: the first that it may have.
    pub fn of_path(path: &Path) -> Self {
        let mut all = Self::value_variants().iter().copied();
        all.find(|format| format.is_at(path)).unwrap_or_default()
    }

    fn is_at(self, path: &Path) -> bool {
        match self {
            Self::Hdf5 => path.is_file(),
            Self::Lerobot => path.is_dir(),
        }
    }

    /// Returns the number of an episode in a dataset by its name there, in a format whose numbers
    /// go on from those in the journals. Other formats number their episodes themselves.
    pub fn demo_number(self, name: &str) -> Option<u64> {
        match self {
            Self::Hdf5 => name.strip_prefix("demo_")?.parse().ok(),
            Self::Lerobot => None,
        }
    }
}
