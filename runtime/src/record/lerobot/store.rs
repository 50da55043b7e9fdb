//! The folder of one dataset: writes an episode's files first, then those about all episodes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::env::EnvSpec;
use crate::record::episode::EpisodeRows;
use crate::record::lane::Closed;
use crate::record::lerobot::episodes::{self, Counted, EpisodeFacts, FolderStats, lacks};
use crate::record::lerobot::features::{CAMERA, DatasetFeatures, plain};
use crate::record::lerobot::moments::Moments;
use crate::record::lerobot::rows::{EpisodePosition, in_f64};
use crate::record::lerobot::table::{self, ColumnValues, TableColumn};
use crate::record::lerobot::{CHUNK, camera, file};
use crate::record::parts::EpisodeLocation;
use crate::record::writer::DatasetWriter;
use crate::record::{EpisodeEnd, RecordError};

/// A dataset to which episodes are added.
pub(in crate::record) struct Folder {
    root: PathBuf,
    env: EnvSpec,
    /// `features` of `info.json`; `None` before the first episode.
    features: Option<Map<String, Value>>,
    episodes: u64,
    frames: u64,
    /// Instructions in the order of their task numbers.
    tasks: Vec<String>,
    stats: FolderStats,
}

/// The size of a dataset.
struct DatasetTotals {
    episodes: u64,
    frames: u64,
    tasks: usize,
}

impl Folder {
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
        let mut folder = Self {
            root: root.to_owned(),
            env: env.clone(),
            features: None,
            episodes: 0,
            frames: 0,
            tasks: Vec::new(),
            stats: FolderStats::new(),
        };
        if !root.exists() {
            return Ok(folder);
        }
        match kept(root, left_out).and_then(|counted| folder.take(&counted).map(|()| counted)) {
            Ok(counted) => counted
                .mend(root)
                .map_err(|err| RecordError::file(root, err))?,
            Err(reason) => notes.push(set_aside(root, &reason)?),
        }
        Ok(folder)
    }

    /// Continues a folder with these episodes.
    fn take(&mut self, counted: &Counted) -> Result<(), RecordError> {
        let Some(info) = counted.info.as_ref().filter(|_| counted.episodes > 0) else {
            return Ok(());
        };
        let (found, wanted) = (episodes::number(info, "fps")?, self.fps());
        if found != wanted {
            return Err(RecordError(format!(
                "it has {found} pictures per second, the environment {wanted}"
            )));
        }
        let features = info["features"].as_object();
        self.features = Some(
            features
                .ok_or_else(|| lacks("`info.json`", "`features`"))?
                .clone(),
        );
        (self.episodes, self.frames) = (counted.episodes, counted.frames);
        (self.stats, self.tasks) = (counted.stats.clone(), counted.tasks.clone());
        Ok(())
    }

    fn add(&mut self, episode: &EpisodeRows, end: EpisodeEnd) -> Result<(), RecordError> {
        let features = DatasetFeatures::of(episode, &self.env);
        let entries = self.features.as_ref().unwrap_or(features.entries());
        features.check(entries)?;
        let mut tasks = self.tasks.clone();
        let task = tasks
            .iter()
            .position(|task| **task == *episode.meta.language)
            .unwrap_or_else(|| {
                tasks.push(episode.meta.language.to_string());
                tasks.len() - 1
            });
        let stats = self.write_episode(episode, end, task as i64)?;
        if tasks.len() > self.tasks.len() {
            write_tasks(&self.root.join("meta/tasks.parquet"), &tasks)?;
        }
        if self.features.is_none() {
            episodes::write_json(&self.root, "modality.json", features.modality())?;
        }
        EpisodeFacts::of(self.episodes, episode, end, &stats).append(&self.root)?;
        let stats = episodes::and(&self.stats, stats);
        episodes::write_stats(&self.root, &stats)?;
        let totals = DatasetTotals {
            episodes: self.episodes + 1,
            frames: self.frames + episode.rows() as u64,
            tasks: tasks.len(),
        };
        let entries = self.features.as_ref().unwrap_or(features.entries());
        episodes::write_info(&self.root, &self.info(&totals, entries))?;
        self.episodes = totals.episodes;
        self.frames = totals.frames;
        self.tasks = tasks;
        self.stats = stats;
        self.features
            .get_or_insert_with(|| features.entries().clone());
        Ok(())
    }

    /// Writes the files of one episode; returns its statistics.
    fn write_episode(
        &self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
        task: i64,
    ) -> Result<FolderStats, RecordError> {
        let mut stats = FolderStats::new();
        for (name, pictures) in &episode.pictures {
            let key = format!("{CAMERA}{}", plain(name));
            let path = self.made(&format!("videos/{key}"), "mp4")?;
            let written = camera::write(&path, name, pictures, self.fps() as u32);
            written.map_err(|reason| RecordError::file(&path, reason))?;
            stats.insert(key, camera::moments(pictures));
        }
        let place = EpisodePosition {
            index: self.episodes,
            first: self.frames,
            fps: self.fps(),
        };
        let row = place.row(episode, stats.keys());
        let data = place.rows(episode, end, task);
        for feature in &data {
            let moments = Moments::of(&in_f64(&feature.values), feature.list.unwrap_or(1));
            stats.insert(feature.name.clone(), moments);
        }
        write_table(&self.made("data", "parquet")?, &data, None)?;
        write_table(&self.made("meta/episodes", "parquet")?, &row, None)?;
        Ok(stats)
    }

    fn info(&self, totals: &DatasetTotals, features: &Map<String, Value>) -> Value {
        let chunked = "chunk-{chunk_index:03d}/file-{file_index:03d}";
        let videos = features.keys().any(|key| key.starts_with(CAMERA));
        json!({
            "codebase_version": "v3.0",
            "robot_type": self.env.name,
            "total_episodes": totals.episodes,
            "total_frames": totals.frames,
            "total_tasks": totals.tasks,
            "chunks_size": CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": self.fps(),
            "splits": episodes::splits(totals.episodes),
            "data_path": format!("data/{chunked}.parquet"),
            "video_path": videos.then(|| format!("videos/{{video_key}}/{chunked}.mp4")),
            "features": features,
        })
    }

    fn fps(&self) -> u64 {
        u64::from(self.env.control_hz.max(1))
    }

    /// Returns the path of the next episode's file below `folder`, which is created.
    fn made(&self, folder: &str, ending: &str) -> Result<PathBuf, RecordError> {
        let path = file(&self.root.join(folder), self.episodes, ending);
        let parent = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).map_err(|err| RecordError::file(parent, err))?;
        Ok(path)
    }
}

/// Reads the episodes of a folder that stay. Episodes are numbered without gaps, so only those of
/// `left_out` can go that no other one follows.
fn kept(root: &Path, left_out: &BTreeSet<String>) -> Result<Counted, RecordError> {
    let names = episodes::names(root)?;
    let last = names.iter().rposition(|name| !left_out.contains(name));
    Counted::read(root, last.map_or(0, |last| last as u64 + 1))
}

/// Renames a folder that cannot be continued; returns a line about that.
fn set_aside(root: &Path, reason: &RecordError) -> Result<String, RecordError> {
    let aside = (1..).map(|number| root.with_added_extension(format!("damaged{number}")));
    let aside = aside
        .into_iter()
        .find(|aside| !aside.exists())
        .unwrap_or_else(|| root.with_extension("damaged"));
    fs::rename(root, &aside).map_err(|err| RecordError::file(root, err))?;
    let (root, aside) = (root.display(), aside.display());
    Ok(format!(
        "`{root}` cannot be continued and is kept as `{aside}`: {reason}"
    ))
}

/// Returns the names of the episodes of a folder.
pub(in crate::record) fn names(root: &Path) -> Result<Vec<String>, RecordError> {
    episodes::names(root).map_err(|err| RecordError::file(root, err))
}

/// Drops the last episodes of a folder that are in `left_out`, and what a kill has left of others.
pub(in crate::record) fn leave_out(
    root: &Path,
    left_out: &BTreeSet<String>,
) -> Result<(), RecordError> {
    kept(root, left_out)
        .and_then(|counted| counted.mend(root))
        .map_err(|err| RecordError::file(root, err))
}

impl DatasetWriter for Folder {
    fn append(
        &mut self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
    ) -> Result<Option<EpisodeLocation>, RecordError> {
        episode
            .complete()
            .map_err(|reason| RecordError::file(&self.root, reason))?;
        // LeRobot cannot store an episode without a step.
        if episode.rows() == 0 {
            return Ok(None);
        }
        let name = episodes::name(self.episodes);
        self.add(episode, end)
            .map_err(|reason| RecordError::file(&self.root, reason))?;
        Ok(Some(EpisodeLocation {
            dataset: self.root.clone(),
            name,
        }))
    }

    fn finish(self: Box<Self>) -> Closed {
        Closed::default()
    }
}

/// Writes the tasks like pandas writes a table with a named index, the task; lerobot looks tasks up
/// by the index.
fn write_tasks(path: &Path, tasks: &[String]) -> Result<(), RecordError> {
    let entry = |name: &str, pandas: &str, numpy: &str| json!({"name": name, "field_name": name, "pandas_type": pandas, "numpy_type": numpy, "metadata": null});
    let pandas = json!({
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [entry("task_index", "int64", "int64"), entry("task", "unicode", "object")],
        "creator": {"library": "rrun", "version": env!("CARGO_PKG_VERSION")},
        "pandas_version": "2.2.3",
    });
    let columns = [
        TableColumn::of(
            "task_index",
            ColumnValues::I64((0..tasks.len() as i64).collect()),
        ),
        TableColumn::of("task", ColumnValues::Text(tasks.to_vec())),
    ];
    write_table(path, &columns, Some(("pandas", pandas.to_string())))
}

fn write_table(
    path: &Path,
    columns: &[TableColumn],
    note: Option<(&str, String)>,
) -> Result<(), RecordError> {
    table::write(path, columns, note).map_err(|err| RecordError::file(path, err))
}
