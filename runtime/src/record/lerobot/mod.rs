//! A dataset in the format of LeRobot 0.4 and later (codebase version v3.0;
//! lerobot/datasets/lerobot_dataset.py and lerobot/datasets/utils.py of lerobot 0.4.4).
//!
//! ```text
//! <path>/
//! ├ data/chunk-000/file-012.parquet                             one row per step
//! ├ videos/observation.images.<camera>/chunk-000/file-012.mp4   one image per step
//! └ meta/
//!   ├ episodes/chunk-000/file-012.parquet                       location of episode 12
//!   ├ tasks.parquet, stats.json, info.json                      of all episodes
//!   ├ modality.json                                             named parts for GR00T
//!   └ rrun_episodes.jsonl                                       of rrun: seeds, ends, statistics
//! ```
//!
//! The image of a step is the one before its action; `modality.json` names the parts of state and
//! action; `rrun_episodes.jsonl` has the seed and the end of each episode.
//!
//! Each episode has one file of each kind (the format allows more), so existing files never change.
//! Files about all episodes are replaced by renames, `info.json` last: an episode counts from then
//! on. After a kill at any moment, the folder loads with all episodes that were reported as written,
//! and the next start takes away what is there of a later one (see `list`).
//!
//! Two things are left out: the simulator's state, which the HDF5 format has, and the statistics of
//! single episodes, which loading and training do not read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use parquet::basic::Type;
use serde_json::{Map, Value, json};

use crate::env::EnvSpec;
use crate::record::dataset::{Dataset, set_aside};
use crate::record::episode::EpisodeRows;
use crate::record::lerobot::list::{Folder, number};
use crate::record::lerobot::rows::{Features, Position};
use crate::record::lerobot::stats::{FolderStats, Moments};
use crate::record::lerobot::table::{Column, Values};
use crate::record::{EpisodeEnd, RecordError};

mod camera;
mod list;
mod rows;
mod stats;
mod table;

pub(super) use list::{leave_out, names};

/// Maximum number of files in one `chunk-…` folder, as in lerobot.
const CHUNK: u64 = 1000;

/// Prefix of the feature of a camera.
const CAMERA: &str = "observation.images.";

/// Returns the feature of a camera.
fn camera_key(name: &str) -> String {
    format!("{CAMERA}{}", plain(name))
}

/// Replaces slashes, which lerobot does not allow in names.
fn plain(name: &str) -> String {
    name.replace('/', ".")
}

/// Returns the number of rows per second.
fn fps(env: &EnvSpec) -> u32 {
    env.control_hz.max(1)
}

/// A dataset to which episodes are added.
pub(in crate::record) struct LeRobotDataset {
    env: EnvSpec,
    folder: Folder,
}

impl LeRobotDataset {
    /// Opens an existing folder or a new one, which is created with the first episode. Of an
    /// existing one the last episodes are dropped that are in `left_out`. `notes` receives a line
    /// for everything that could not be read.
    pub(in crate::record) fn open(
        root: &Path,
        env: &EnvSpec,
        left_out: &BTreeSet<String>,
        notes: &mut Vec<String>,
    ) -> Result<Self, RecordError> {
        camera::refuse_odd(&env.cameras)?;
        let mut dataset = Self {
            env: env.clone(),
            folder: Folder::new(root),
        };
        if root.exists() {
            match dataset.read(left_out) {
                Ok(lines) => dataset.folder.mend(&lines)?,
                Err(reason) => {
                    notes.push(set_aside(root, &reason.0)?);
                    dataset.folder = Folder::new(root);
                }
            }
        }
        Ok(dataset)
    }

    /// Reads a folder that can be continued; returns the lines of its list.
    fn read(&mut self, left_out: &BTreeSet<String>) -> Result<Vec<u8>, RecordError> {
        let lines = self.folder.read(left_out)?;
        if self.folder.episodes > 0 {
            let info = &self.folder.info;
            let (found, wanted) = (number(info, "fps")?, u64::from(fps(&self.env)));
            if found != wanted {
                return Err(RecordError(format!(
                    "it has {found} pictures per second, the environment {wanted}"
                )));
            }
            let features = info["features"].as_object();
            features.ok_or_else(|| list::lacks("`info.json`", "`features`"))?;
        }
        Ok(lines)
    }

    /// Writes an episode; returns the folder with it.
    fn add(&self, episode: &EpisodeRows, end: EpisodeEnd) -> Result<Folder, RecordError> {
        let mut after = self.folder.clone();
        let instruction = &*episode.language;
        let known = after.tasks.iter().position(|task| task == instruction);
        let task = known.unwrap_or(after.tasks.len());
        if known.is_none() {
            after.tasks.push(instruction.to_owned());
        }
        let position = Position {
            episode: after.episodes,
            first: after.frames,
            task,
        };
        let features = Features::of(episode, end, &self.env, position);
        let entries = features.entries(episode, &self.env);
        let is_first = after.episodes == 0;
        if is_first {
            after.info = self.info(entries);
        } else {
            check(&entries, &after.info["features"])?;
        }
        let stats = self.write_episode(episode, &features, position)?;
        if known.is_none() {
            write_tasks(&after.meta("tasks.parquet"), &after.tasks)?;
        }
        if is_first {
            after.write_json("modality.json", &features.modality(episode, &self.env))?;
        }
        after.list(episode, end, &stats)?;
        after.stats = stats::and(&after.stats, stats);
        after.episodes += 1;
        after.frames += episode.rows() as u64;
        after.write_stats()?;
        after.count()?;
        Ok(after)
    }

    /// Writes the files of one episode; returns its statistics.
    fn write_episode(
        &self,
        episode: &EpisodeRows,
        features: &Features,
        position: Position,
    ) -> Result<FolderStats, RecordError> {
        let mut stats = FolderStats::new();
        for (name, pictures) in &episode.pictures {
            let key = camera_key(name);
            let path = self.made(&format!("videos/{key}"), "mp4")?;
            camera::write(&path, name, pictures, fps(&self.env))?;
            stats.insert(key, camera::moments(pictures));
        }
        let columns = features.columns();
        for column in &columns {
            if let Values::Numbers(_, values) = &column.values {
                let moments = Moments::of(values, column.list.unwrap_or(1));
                stats.insert(column.name.clone(), moments);
            }
        }
        table::write(&self.made("data", "parquet")?, &columns, None)?;
        let about = rows::about(episode, &self.env, position);
        let about: Vec<_> = about.iter().collect();
        table::write(&self.made("meta/episodes", "parquet")?, &about, None)?;
        Ok(stats)
    }

    /// Returns `info.json` of a dataset without episodes.
    fn info(&self, features: Map<String, Value>) -> Value {
        let chunked = "chunk-{chunk_index:03d}/file-{file_index:03d}";
        let videos = features.keys().any(|key| key.starts_with(CAMERA));
        json!({
            "codebase_version": "v3.0",
            "robot_type": self.env.name,
            "total_episodes": 0,
            "total_frames": 0,
            "total_tasks": 0,
            "chunks_size": CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": fps(&self.env),
            "splits": {},
            "data_path": format!("data/{chunked}.parquet"),
            "video_path": videos.then(|| format!("videos/{{video_key}}/{chunked}.mp4")),
            "features": features,
        })
    }

    /// Returns the path of the next episode's file below `folder`, which is created.
    fn made(&self, folder: &str, ending: &str) -> Result<PathBuf, RecordError> {
        let path = self.folder.file(folder, self.folder.episodes, ending);
        let parent = path.parent().unwrap_or(&path);
        fs::create_dir_all(parent).map_err(|err| RecordError::file(parent, err))?;
        Ok(path)
    }
}

impl Dataset for LeRobotDataset {
    fn append(
        &mut self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
    ) -> Result<Option<String>, RecordError> {
        // LeRobot cannot store an episode without a step.
        if episode.rows() == 0 {
            return Ok(None);
        }
        let name = list::name(self.folder.episodes);
        let added = self.add(episode, end);
        self.folder = added.map_err(|err| RecordError::file(&self.folder.root, err))?;
        Ok(Some(name))
    }
}

/// Checks that an episode with these features fits into the dataset.
fn check(entries: &Map<String, Value>, dataset: &Value) -> Result<(), RecordError> {
    let known = dataset.as_object().into_iter().flat_map(Map::keys);
    let names: BTreeSet<&String> = known.chain(entries.keys()).collect();
    let shape = |entry: Option<&Value>| match entry {
        Some(entry) => entry["shape"].to_string(),
        None => "missing".to_owned(),
    };
    for name in names {
        let (here, there) = (entries.get(name), dataset.get(name));
        if here != there {
            let (here, there) = (shape(here), shape(there));
            return Err(RecordError(format!(
                "`{name}` is {here} in the episode and {there} in the dataset"
            )));
        }
    }
    Ok(())
}

/// Writes the tasks like pandas writes a table with a named index, the task; lerobot looks tasks up
/// by the index.
fn write_tasks(path: &Path, tasks: &[String]) -> Result<(), RecordError> {
    let entry = |name: &str, pandas: &str, numpy: &str| {
        json!({
            "name": name,
            "field_name": name,
            "pandas_type": pandas,
            "numpy_type": numpy,
            "metadata": null,
        })
    };
    let pandas = json!({
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [entry("task_index", "int64", "int64"), entry("task", "unicode", "object")],
        "creator": {"library": "rrun", "version": env!("CARGO_PKG_VERSION")},
        "pandas_version": "2.2.3",
    });
    let numbers = (0..tasks.len()).map(|task| task as f64);
    let numbers = Column::numbers("task_index", Type::INT64, numbers);
    let texts = Column::of("task", Values::Text(tasks.to_vec()));
    let note = Some(("pandas", pandas.to_string()));
    table::write(path, &[&numbers, &texts], note)
}
