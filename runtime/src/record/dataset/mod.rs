//! The dataset of one rank: HDF5 in robomimic's format, with the names and shapes of Isaac Lab's
//! recorder, or a LeRobot folder (see `lerobot`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};

use jobs::episode::DemoRef;
use jobs::eval_args::ExportMode;
use jobs::layout::RecordFormat;

mod demo;
mod file;
mod root_table;

use crate::record::episode::EpisodeRows;
use crate::record::lane::Closed;
use crate::record::lerobot::{self, LeRobotDataset};
use crate::record::recorder::{Answer, Written};
use crate::record::{EpisodeEnd, RecordError, RecordPlan};
use file::DemoFile;

/// The dataset of a rank.
#[derive(Clone, Debug)]
pub struct DatasetPlan {
    /// Path of the file, or of the folder for LeRobot. An existing dataset is continued.
    pub path: PathBuf,
    /// File format of the dataset.
    pub format: RecordFormat,
    /// Selects the episodes to keep; [`ExportMode::None`] is a [`RecordPlan`] without a dataset.
    pub export: ExportMode,
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

impl DatasetPlan {
    /// Returns the path of the second file of [`ExportMode::Separate`].
    pub fn failed_path(path: &Path) -> PathBuf {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push("_failed");
        match path.extension() {
            None => path.with_file_name(name),
            Some(ending) => path.with_file_name(name).with_added_extension(ending),
        }
    }
}

/// A dataset to which episodes are appended.
pub(super) trait Dataset: Send {
    /// Adds an episode that has ended and returns its name, after it is on disk. Returns `None` if
    /// the format cannot hold it.
    fn append(
        &mut self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
    ) -> Result<Option<String>, RecordError>;

    /// Closes the dataset after the last episode.
    fn close(&mut self) -> Result<(), RecordError> {
        Ok(())
    }
}

/// An episode that has ended and is to be written; its answer has the ticket.
#[derive(Debug)]
pub(super) struct EndedEpisode {
    pub(super) ticket: u64,
    pub(super) rows: EpisodeRows,
    pub(super) end: EpisodeEnd,
}

/// The state of the dataset thread, which writes episodes.
pub(super) struct DatasetThread {
    export: ExportMode,
    /// The dataset of all episodes, or of the successful ones, and that of the failed ones, if they
    /// are kept separately; each with its path in journals.
    datasets: Vec<(String, Box<dyn Dataset>)>,
}

impl DatasetThread {
    /// Opens the datasets of the plan. `notes` receives a line for everything that was lost.
    pub(super) fn open(
        dataset: &DatasetPlan,
        plan: &RecordPlan,
        notes: &mut Vec<String>,
    ) -> Result<Self, RecordError> {
        let mut wanted = vec![(dataset.path.clone(), &dataset.earlier)];
        if dataset.export == ExportMode::Separate {
            let path = DatasetPlan::failed_path(&dataset.path);
            wanted.push((path, &dataset.earlier_failed));
        }
        let mut datasets = Vec::new();
        for (path, earlier) in wanted {
            let file = plan.folder.relative(&path);
            let opened: Box<dyn Dataset> = match dataset.format {
                RecordFormat::Lerobot => {
                    let left_out = &earlier.left_out;
                    Box::new(LeRobotDataset::open(&path, &plan.env, left_out, notes)?)
                }
                RecordFormat::Hdf5 => {
                    let env_args = dataset.env_args.to_string();
                    Box::new(DemoFile::open(path, env_args, earlier, notes)?)
                }
            };
            datasets.push((file, opened));
        }
        Ok(Self {
            export: dataset.export,
            datasets,
        })
    }

    /// Runs until the recorder closes the channel, then closes the files.
    pub(super) fn run(mut self, inbox: Receiver<EndedEpisode>, answers: &Sender<Answer>) -> Closed {
        for EndedEpisode { ticket, rows, end } in inbox {
            let written = self.write(rows, end).map(Written::Demo);
            // The receiver is gone after the recorder has closed.
            answers.send(Answer { ticket, written }).ok();
        }
        let closed = self.datasets.iter_mut().map(|(_, dataset)| dataset.close());
        Closed::of(closed.fold(Ok(()), Result::and))
    }

    fn write(
        &mut self,
        mut episode: EpisodeRows,
        end: EpisodeEnd,
    ) -> Result<Option<DemoRef>, RecordError> {
        let at = match (self.export, end.success) {
            (ExportMode::Succeeded, false) => return Ok(None),
            (ExportMode::Separate, false) => 1,
            _ => 0,
        };
        let (file, dataset) = &mut self.datasets[at];
        let whole = episode.end();
        whole.map_err(|reason| RecordError::file(Path::new(file), reason))?;
        let name = dataset.append(&episode, end)?;
        let file = file.clone();
        Ok(name.map(|demo| DemoRef { file, demo }))
    }
}

/// Returns the names of the demonstrations of a dataset that exists.
///
/// # Errors
/// Returns [`RecordError`] if it cannot be read.
pub fn demos(path: &Path) -> Result<Vec<String>, RecordError> {
    match path.is_dir() {
        true => lerobot::names(path),
        false => file::names(path),
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

/// Renames a dataset that cannot be read, or not all of it; returns a line about that.
pub(super) fn set_aside(path: &Path, reason: &str) -> Result<String, RecordError> {
    let mut aside = path.with_added_extension("damaged");
    for number in 2.. {
        if !aside.exists() {
            break;
        }
        aside = path.with_added_extension(format!("damaged{number}"));
    }
    fs::rename(path, &aside).map_err(|err| RecordError::file(path, err))?;
    let (path, aside) = (path.display(), aside.display());
    Ok(format!("`{path}` is kept as `{aside}`: {reason}"))
}
