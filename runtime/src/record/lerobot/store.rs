//! The folder of one dataset: writes an episode's files first, then those about all episodes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::env::EnvSpec;
use crate::record::closed::Closed;
use crate::record::episode::Episode;
use crate::record::lerobot::features::{CAMERA, Features, plain};
use crate::record::lerobot::moments::Moments;
use crate::record::lerobot::rows::{Place, column, in_f64};
use crate::record::lerobot::table::{self, Column, Values};
use crate::record::lerobot::{CHUNK, camera};
use crate::record::writer::Store;
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
                "`{root}` cannot be gone on with and is kept as `{aside}`: {reason}"
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

    fn read(&mut self) -> Result<(), String> {
        let json = |name: &str| -> Result<Value, String> {
            let path = self.root.join("meta").join(name);
            let text = fs::read(&path).map_err(|err| format!("`{}`: {err}", path.display()))?;
            serde_json::from_slice(&text).map_err(|err| format!("`{}`: {err}", path.display()))
        };
        let (info, stats) = (json("info.json")?, json("stats.json")?);
        let number = |name: &str| {
            info[name]
                .as_u64()
                .ok_or_else(|| format!("`info.json` has no number `{name}`"))
        };
        (self.episodes, self.frames) = (number("total_episodes")?, number("total_frames")?);
        let fps = number("fps")?;
        if fps != self.fps() {
            return Err(format!(
                "it has {fps} pictures a second, the environment {}",
                self.fps()
            ));
        }
        self.features = Some(
            info["features"]
                .as_object()
                .ok_or("`info.json` has no `features`")?
                .clone(),
        );
        let stats = stats.as_object().ok_or("`stats.json` is no object")?.iter();
        let stats = stats.map(|(name, entry)| Some((name.clone(), Moments::from_json(entry)?)));
        self.stats = stats
            .collect::<Option<_>>()
            .ok_or("`stats.json` has not all statistics")?;
        let mut tasks = table::read_tasks(&self.root.join("meta/tasks.parquet"))
            .map_err(|err| err.to_string())?;
        tasks.sort();
        self.tasks = tasks.into_iter().map(|(_, task)| task).collect();
        Ok(())
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

    fn add(&mut self, episode: &Episode, end: EpisodeEnd) -> Result<(), String> {
        let features = Features::of(episode, &self.env);
        let entries = self.features.as_ref().unwrap_or(features.entries());
        if let Some(reason) = Features::refusal(entries, &features) {
            return Err(reason);
        }
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
        let counts = (
            self.episodes + 1,
            self.frames + episode.rows() as u64,
            tasks.len(),
        );
        self.write_json(
            "info.json",
            &self.info(counts, self.features.as_ref().unwrap_or(features.entries())),
        )?;
        (self.episodes, self.frames) = (counts.0, counts.1);
        (self.tasks, self.stats) = (tasks, stats);
        self.features
            .get_or_insert_with(|| features.entries().clone());
        Ok(())
    }

    /// Writes the files of one episode; returns the statistics of all episodes including it.
    fn write_episode(
        &self,
        episode: &Episode,
        end: EpisodeEnd,
        task: i64,
    ) -> Result<BTreeMap<String, Moments>, String> {
        let mut stats = BTreeMap::new();
        for (name, pictures) in &episode.pictures {
            let key = format!("{CAMERA}{}", plain(name));
            let path = self.made(&format!("videos/{key}"), "mp4")?;
            camera::write(path, name, pictures, self.fps() as u32)?;
            stats.insert(key, camera::moments(pictures));
        }
        let place = Place {
            index: self.episodes,
            first: self.frames,
            fps: self.fps(),
        };
        let row = place.row(episode, stats.keys());
        let data = place.rows(episode, end, task);
        stats.extend(
            data.iter()
                .map(|(name, values, width)| (name.clone(), Moments::of(&in_f64(values), *width))),
        );
        let columns: Vec<Column> = data
            .into_iter()
            .map(|(name, values, width)| column(name, values, width))
            .collect();
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
    fn tell(&self, episode: &Episode, end: EpisodeEnd) -> Result<(), String> {
        let line = json!({
            "episode_index": self.episodes, "episode": episode.meta.episode, "seed": episode.meta.seed,
            "env": episode.env.0, "success": end.success, "terminated": end.terminated, "truncated": end.truncated,
        });
        let path = self.root.join("meta/rrun_episodes.jsonl");
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(|err| format!("`{}`: {err}", path.display()))
    }

    fn info(
        &self,
        (episodes, frames, tasks): (u64, u64, usize),
        features: &Map<String, Value>,
    ) -> Value {
        let chunked = "chunk-{chunk_index:03d}/file-{file_index:03d}";
        let videos = features.keys().any(|key| key.starts_with(CAMERA));
        json!({
            "codebase_version": "v3.0",
            "robot_type": self.env.name,
            "total_episodes": episodes,
            "total_frames": frames,
            "total_tasks": tasks,
            "chunks_size": CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": self.fps(),
            "splits": {"train": format!("0:{episodes}")},
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

    fn made(&self, folder: &str, ending: &str) -> Result<PathBuf, String> {
        let path = self.file(folder, ending);
        let parent = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).map_err(|err| format!("`{}`: {err}", parent.display()))?;
        Ok(path)
    }

    /// Writes a file of `meta` and moves it into place by a rename.
    fn write_json(&self, name: &str, value: &Value) -> Result<(), String> {
        let path = self.root.join("meta").join(name);
        let temporary = path.with_added_extension("tmp");
        let mut text = serde_json::to_vec_pretty(value).map_err(|err| err.to_string())?;
        text.push(b'\n');
        let written = fs::File::create(&temporary).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        });
        written.map_err(|err| format!("`{}`: {err}", path.display()))
    }
}

impl Store for Folder {
    fn append(
        &mut self,
        episode: &Episode,
        end: EpisodeEnd,
    ) -> Result<Option<(PathBuf, String)>, RecordError> {
        episode
            .complete()
            .map_err(|reason| RecordError::file(&self.root, reason))?;
        // LeRobot cannot store an episode without a step.
        if episode.rows() == 0 {
            return Ok(None);
        }
        let name = format!("episode_{}", self.episodes);
        let added = self.add(episode, end);
        added
            .map(|()| Some((self.root.clone(), name)))
            .map_err(|reason| RecordError::file(&self.root, reason))
    }

    fn finish(self: Box<Self>) -> Closed {
        Closed::default()
    }
}

/// Writes the tasks like pandas writes a table with a named index, the task; lerobot looks tasks up
/// by the index.
fn write_tasks(path: &Path, tasks: &[String]) -> Result<(), String> {
    let entry = |name: &str, pandas: &str, numpy: &str| json!({"name": name, "field_name": name, "pandas_type": pandas, "numpy_type": numpy, "metadata": null});
    let pandas = json!({
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [entry("task_index", "int64", "int64"), entry("task", "unicode", "object")],
        "creator": {"library": "rrun", "version": env!("CARGO_PKG_VERSION")},
        "pandas_version": "2.2.3",
    });
    let columns = [
        Column::of("task_index", Values::I64((0..tasks.len() as i64).collect())),
        Column::of("task", Values::Text(tasks.to_vec())),
    ];
    write_table(path, &columns, Some(("pandas", pandas.to_string())))
}

fn write_table(
    path: &Path,
    columns: &[Column],
    note: Option<(&str, String)>,
) -> Result<(), String> {
    table::write(path, columns, note).map_err(|err| format!("`{}`: {err}", path.display()))
}
