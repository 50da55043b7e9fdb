//! Datasets: what launcher and ranks have to know of each format, and which ones a job has in its run
//! folder.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::layout::RunFolder;

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
    /// Returns the format of a dataset that exists.
    pub fn of_path(path: &Path) -> Self {
        match path.is_dir() {
            true => Self::Lerobot,
            false => Self::Hdf5,
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

/// A dataset of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatasetFile {
    /// Path of the file, or of the folder for LeRobot.
    pub path: PathBuf,
    /// The rank that wrote it; `None` for the only rank of a launch.
    pub rank: Option<usize>,
}

impl RunFolder {
    /// Returns the datasets that a job has in this folder, of any rank, format and world size,
    /// sorted by path. A job without a folder has none.
    ///
    /// # Errors
    /// Returns an error if the folder exists and cannot be read.
    pub fn datasets(&self, name: &str) -> io::Result<Vec<DatasetFile>> {
        let entries = match std::fs::read_dir(self.job(name)) {
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            found.extend(dataset_rank(&path, name).map(|rank| DatasetFile { path, rank }));
        }
        found.sort();
        Ok(found)
    }
}

/// Returns which rank wrote a dataset of the job `name`, see [`RunFolder::dataset`]; `None` if the
/// path is not that of a dataset.
fn dataset_rank(path: &Path, name: &str) -> Option<Option<usize>> {
    let file = path.file_name()?.to_str()?;
    let rest = file.strip_prefix("dataset_")?.strip_prefix(name)?;
    let rest = rest.strip_suffix(".hdf5").unwrap_or(rest);
    let rest = rest.strip_suffix("_failed").unwrap_or(rest);
    match rest.strip_prefix("_rank") {
        None => rest.is_empty().then_some(None),
        Some(rank) => rank.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_datasets_of_a_job_are_those_of_any_rank_and_format() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        assert_eq!(folder.datasets("a").unwrap(), []);
        std::fs::create_dir(folder.job("a")).unwrap();
        for name in [
            "dataset_a.hdf5",
            "dataset_a_rank12.hdf5",
            "dataset_a_rank3_failed",
            "dataset_a.hdf5.tmp",
            "dataset_a.hdf5.damaged",
            "dataset_a.damaged1",
            "dataset_ab.hdf5",
            "a_video_rank0_gpu0_env0.mp4",
        ] {
            std::fs::write(folder.job("a").join(name), "").unwrap();
        }
        let found = folder.datasets("a").unwrap().into_iter();
        let found: Vec<_> = found
            .map(|dataset| (folder.relative(&dataset.path), dataset.rank))
            .collect();
        let wanted = [
            ("a/dataset_a.hdf5", None),
            ("a/dataset_a_rank12.hdf5", Some(12)),
            ("a/dataset_a_rank3_failed", Some(3)),
        ];
        assert_eq!(found, wanted.map(|(path, rank)| (path.to_owned(), rank)));
    }
}
