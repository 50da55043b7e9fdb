//! The folder of one dataset: writes an episode's files first, then those about all episodes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::env::EnvSpec;
use crate::record::closed::ThreadResult;
use crate::record::episode::EpisodeRows;
use crate::record::lerobot::error::LeRobotError;
use crate::record::lerobot::features::{CAMERA, DatasetFeatures, plain};
use crate::record::lerobot::moments::Moments;
use crate::record::lerobot::rows::{EpisodePosition, FeatureColumn, in_f64};
use crate::record::lerobot::table::{self, ColumnValues, TableColumn};
use crate::record::lerobot::{CHUNK, camera};
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
    stats: BTreeMap<String, Moments>,
}

/// The size of a dataset.
struct DatasetTotals {
    episodes: u64,
    frames: u64,
    tasks: usize,
}

impl Folder {
    /// Opens an existing folder or a new one, which is created with the first episode. `notes`
    /// receives a line for everything that could not be read.
    pub(in crate::record) fn open(
        root: &Path,
        env: &EnvSpec,
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
            stats: BTreeMap::new(),
        };
        if !root.join("meta/info.json").exists() {
            return Ok(folder);
        }
        if let Err(reason) = folder.read() {
            let aside = (1..).map(|number| root.with_added_extension(format!("damaged{number}")));
            let aside = aside
                .into_iter()
                .find(|aside| !aside.exists())
                .unwrap_or_else(|| root.with_extension("damaged"));
            fs::rename(root, &aside).map_err(|err| RecordError::file(root, err))?;
            let (root, aside) = (root.display(), aside.display());
            notes.push(format!(
                "`{root}` cannot be continued and is kept as `{aside}`: {reason}"
            ));
            return Ok(Self {
                features: None,
                episodes: 0,
                frames: 0,
                tasks: Vec::new(),
                stats: BTreeMap::new(),
                ..folder
            });
        }
        folder
            .drop_uncounted()
            .map_err(|err| RecordError::file(root, err))?;
        Ok(folder)
    }

    fn read(&mut self) -> Result<(), LeRobotError> {
        let (info, stats) = (self.read_json("info.json")?, self.read_json("stats.json")?);
        let number =
            |name: &'static str| info[name].as_u64().ok_or(LeRobotError::NoNumber { name });
        self.episodes = number("total_episodes")?;
        self.frames = number("total_frames")?;
        let (found, wanted) = (number("fps")?, self.fps());
        if found != wanted {
            return Err(LeRobotError::Rate { found, wanted });
        }
        let features = info["features"].as_object();
        self.features = Some(features.ok_or(LeRobotError::NoFeatures)?.clone());
        let stats = stats.as_object().ok_or(LeRobotError::StatsForm)?.iter();
        let stats = stats.map(|(name, entry)| Some((name.clone(), Moments::from_json(entry)?)));
        self.stats = stats.collect::<Option<_>>().ok_or(LeRobotError::Stats)?;
        let mut tasks = table::read_tasks(&self.root.join("meta/tasks.parquet"))?;
        tasks.sort();
        self.tasks = tasks.into_iter().map(|(_, task)| task).collect();
        Ok(())
    }

    fn read_json(&self, name: &str) -> Result<Value, LeRobotError> {
        let path = self.root.join("meta").join(name);
        let text = fs::read(&path).map_err(|err| LeRobotError::file(&path, err))?;
        serde_json::from_slice(&text).map_err(|err| LeRobotError::file(&path, err))
    }

    /// Deletes the files of an episode during which the process was killed.
    fn drop_uncounted(&self) -> std::io::Result<()> {
        let keys = self
            .features
            .iter()
            .flat_map(Map::keys)
            .filter(|key| key.starts_with(CAMERA));
        let videos = keys.map(|key| self.file(&format!("videos/{key}"), "mp4"));
        let tables = ["data", "meta/episodes"].map(|folder| self.file(folder, "parquet"));
        for path in videos.chain(tables).filter(|path| path.exists()) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn add(&mut self, episode: &EpisodeRows, end: EpisodeEnd) -> Result<(), LeRobotError> {
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
            self.write_json("modality.json", features.modality())?;
        }
        self.tell(episode, end)?;
        let entries: Map<String, Value> = stats
            .iter()
            .map(|(name, moments)| (name.clone(), moments.to_json()))
            .collect();
        self.write_json("stats.json", &Value::from(entries))?;
        let totals = DatasetTotals {
            episodes: self.episodes + 1,
            frames: self.frames + episode.rows() as u64,
            tasks: tasks.len(),
        };
        let entries = self.features.as_ref().unwrap_or(features.entries());
        self.write_json("info.json", &self.info(&totals, entries))?;
        self.episodes = totals.episodes;
        self.frames = totals.frames;
        self.tasks = tasks;
        self.stats = stats;
        self.features
            .get_or_insert_with(|| features.entries().clone());
        Ok(())
    }

    /// Writes the files of one episode; returns the statistics of all episodes including it.
    fn write_episode(
        &self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
        task: i64,
    ) -> Result<BTreeMap<String, Moments>, LeRobotError> {
        let mut stats = BTreeMap::new();
        for (name, pictures) in &episode.pictures {
            let key = format!("{CAMERA}{}", plain(name));
            let path = self.made(&format!("videos/{key}"), "mp4")?;
            camera::write(path, name, pictures, self.fps() as u32)?;
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
            let moments = Moments::of(&in_f64(&feature.values), feature.width);
            stats.insert(feature.name.clone(), moments);
        }
        let columns: Vec<_> = data.into_iter().map(FeatureColumn::into_table).collect();
        write_table(&self.made("data", "parquet")?, &columns, None)?;
        write_table(&self.made("meta/episodes", "parquet")?, &row, None)?;
        for (name, moments) in &mut stats {
            *moments = self
                .stats
                .get(name)
                .map_or_else(|| moments.clone(), |before| before.and(moments));
        }
        Ok(stats)
    }

    /// Appends the facts for which LeRobot has no field.
    fn tell(&self, episode: &EpisodeRows, end: EpisodeEnd) -> Result<(), LeRobotError> {
        let line = json!({
            "episode_index": self.episodes, "episode": episode.meta.episode, "seed": episode.meta.seed,
            "env": episode.env.0, "success": end.success, "terminated": end.terminated, "truncated": end.truncated,
        });
        let path = self.root.join("meta/rrun_episodes.jsonl");
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(|err| LeRobotError::file(&path, err))
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
            "splits": {"train": format!("0:{}", totals.episodes)},
            "data_path": format!("data/{chunked}.parquet"),
            "video_path": videos.then(|| format!("videos/{{video_key}}/{chunked}.mp4")),
            "features": features,
        })
    }

    fn fps(&self) -> u64 {
        u64::from(self.env.control_hz.max(1))
    }

    /// Returns the path of the next episode's file below `folder`.
    fn file(&self, folder: &str, ending: &str) -> PathBuf {
        let (chunk, file) = (self.episodes / CHUNK, self.episodes % CHUNK);
        self.root
            .join(folder)
            .join(format!("chunk-{chunk:03}"))
            .join(format!("file-{file:03}.{ending}"))
    }

    fn made(&self, folder: &str, ending: &str) -> Result<PathBuf, LeRobotError> {
        let path = self.file(folder, ending);
        let parent = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).map_err(|err| LeRobotError::file(parent, err))?;
        Ok(path)
    }

    /// Writes a file of `meta` and moves it into place by a rename.
    fn write_json(&self, name: &str, value: &Value) -> Result<(), LeRobotError> {
        let path = self.root.join("meta").join(name);
        let temporary = path.with_added_extension("tmp");
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        let written = fs::File::create(&temporary).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        });
        written.map_err(|err| LeRobotError::file(&path, err))
    }
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
        let name = format!("episode_{}", self.episodes);
        self.add(episode, end)
            .map_err(|reason| RecordError::file(&self.root, reason))?;
        Ok(Some(EpisodeLocation {
            dataset: self.root.clone(),
            name,
        }))
    }

    fn finish(self: Box<Self>) -> ThreadResult {
        ThreadResult::default()
    }
}

/// Writes the tasks like pandas writes a table with a named index, the task; lerobot looks tasks up
/// by the index.
fn write_tasks(path: &Path, tasks: &[String]) -> Result<(), LeRobotError> {
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
) -> Result<(), LeRobotError> {
    table::write(path, columns, note).map_err(|err| LeRobotError::file(path, err))
}
