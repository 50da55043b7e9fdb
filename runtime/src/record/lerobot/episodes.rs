//! `meta/rrun_episodes.jsonl`: one line for each episode with what LeRobot has no field for, its
//! length and its statistics. What the other files of `meta` say about all episodes follows from
//! these lines.
//!
//! `info.json` decides how many episodes there are. A kill between two files leaves lines, statistics
//! and tables of episodes that it does not count, and [`Counted::mend`] takes them away. It does the
//! same with the last episodes of a folder if their lines in the journal were never written.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jobs::layout::write_whole;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::record::episode::EpisodeRows;
use crate::record::lerobot::features::CAMERA;
use crate::record::lerobot::moments::Moments;
use crate::record::lerobot::table::read_tasks;
use crate::record::lerobot::{file, meta};
use crate::record::{EpisodeEnd, RecordError};

/// Statistics by feature.
pub(super) type FolderStats = BTreeMap<String, Moments>;

const LIST: &str = "rrun_episodes.jsonl";
const INFO: &str = "info.json";
const STATS: &str = "stats.json";

/// One line of the list.
#[derive(Serialize, Deserialize)]
pub(super) struct EpisodeFacts {
    episode_index: u64,
    episode: u64,
    seed: u64,
    env: usize,
    success: bool,
    terminated: bool,
    truncated: bool,
    length: u64,
    #[serde(rename = "return")]
    return_: Option<f64>,
    stats: Map<String, Value>,
}

impl EpisodeFacts {
    pub(super) fn of(
        index: u64,
        episode: &EpisodeRows,
        end: EpisodeEnd,
        stats: &FolderStats,
    ) -> Self {
        Self {
            episode_index: index,
            episode: episode.meta.episode,
            seed: episode.meta.seed,
            env: episode.env.0,
            success: end.success,
            terminated: end.terminated,
            truncated: end.truncated,
            length: episode.rows() as u64,
            return_: Some(episode.rewards.iter().copied().map(f64::from).sum()),
            stats: to_json(stats),
        }
    }

    /// Appends the line to the list.
    pub(super) fn append(&self, root: &Path) -> Result<(), RecordError> {
        let path = meta(root, LIST);
        let line = serde_json::to_vec(self);
        let mut line = line.map_err(|err| RecordError::file(&path, err))?;
        line.push(b'\n');
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| {
            file.write_all(&line)?;
            file.sync_data()
        });
        written.map_err(|err| RecordError::file(&path, err))
    }
}

/// Combines the statistics of two sets of rows.
pub(super) fn and(before: &FolderStats, stats: FolderStats) -> FolderStats {
    let joined = |(name, moments): (String, Moments)| {
        let moments = match before.get(&name) {
            Some(before) => before.and(&moments),
            None => moments,
        };
        (name, moments)
    };
    stats.into_iter().map(joined).collect()
}

/// Replaces `stats.json`.
pub(super) fn write_stats(root: &Path, stats: &FolderStats) -> Result<(), RecordError> {
    write_json(root, STATS, &Value::from(to_json(stats)))
}

/// Replaces `info.json`: from then on its episodes count.
pub(super) fn write_info(root: &Path, info: &Value) -> Result<(), RecordError> {
    write_json(root, INFO, info)
}

fn to_json(stats: &FolderStats) -> Map<String, Value> {
    let entry = |(name, moments): (&String, &Moments)| (name.clone(), moments.to_json());
    stats.iter().map(entry).collect()
}

/// Returns the names of the episodes that a folder counts.
pub(super) fn names(root: &Path) -> Result<Vec<String>, RecordError> {
    let counted = match read_info(root)? {
        Some(info) => number(&info, "total_episodes")?,
        None => 0,
    };
    Ok((0..counted).map(name).collect())
}

/// Returns the name of an episode in the journal.
pub(super) fn name(index: u64) -> String {
    format!("episode_{index}")
}

/// The episodes of a folder that stay.
pub(super) struct Counted {
    pub(super) episodes: u64,
    pub(super) frames: u64,
    pub(super) stats: FolderStats,
    /// `info.json`; `None` before the first episode.
    pub(super) info: Option<Value>,
    /// Instructions in the order of their task numbers.
    pub(super) tasks: Vec<String>,
    /// Bytes of their lines in the list.
    lines: Vec<u8>,
}

impl Counted {
    /// Reads a folder, of which at most the first `most` episodes stay.
    pub(super) fn read(root: &Path, most: u64) -> Result<Self, RecordError> {
        let mut counted = Self {
            episodes: 0,
            frames: 0,
            stats: FolderStats::new(),
            info: read_info(root)?,
            tasks: Vec::new(),
            lines: Vec::new(),
        };
        let Some(info) = &counted.info else {
            return Ok(counted);
        };
        let wanted = number(info, "total_episodes")?.min(most);
        let list = meta(root, LIST);
        let text = fs::read(&list).map_err(|err| RecordError::file(&list, err))?;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if counted.episodes == wanted {
                break;
            }
            let facts: EpisodeFacts =
                serde_json::from_slice(line).map_err(|err| RecordError::file(&list, err))?;
            counted.add(facts)?;
            counted.lines.extend_from_slice(line);
        }
        if counted.episodes < wanted {
            let (found, wanted) = (counted.episodes, wanted);
            return Err(is_not_listed(found, wanted));
        }
        let tasks = meta(root, "tasks.parquet");
        let mut tasks = read_tasks(&tasks).map_err(|err| RecordError::file(&tasks, err))?;
        tasks.sort();
        counted.tasks = tasks.into_iter().map(|(_, task)| task).collect();
        Ok(counted)
    }

    fn add(&mut self, facts: EpisodeFacts) -> Result<(), RecordError> {
        let (found, wanted) = (facts.episode_index, self.episodes);
        if found != wanted {
            return Err(is_not_listed(found, wanted));
        }
        let entry = |(name, entry): (String, Value)| Some((name, Moments::from_json(&entry)?));
        let stats: Option<FolderStats> = facts.stats.into_iter().map(entry).collect();
        let stats = stats.ok_or_else(|| lacks("`rrun_episodes.jsonl`", "all statistics"))?;
        self.stats = and(&self.stats, stats);
        self.episodes += 1;
        self.frames += facts.length;
        Ok(())
    }

    /// Makes all files of the folder agree. A kill meanwhile leaves a folder that this mends.
    pub(super) fn mend(&self, root: &Path) -> Result<(), RecordError> {
        let Some(info) = &self.info else {
            return self.clear(root);
        };
        if self.episodes == 0 {
            let path = meta(root, INFO);
            fs::remove_file(&path).map_err(|err| RecordError::file(&path, err))?;
            return self.clear(root);
        }
        let mut now = info.clone();
        now["total_episodes"] = self.episodes.into();
        now["total_frames"] = self.frames.into();
        now["total_tasks"] = self.tasks.len().into();
        now["splits"] = splits(self.episodes);
        if now != *info {
            write_info(root, &now)?;
        }
        let path = meta(root, STATS);
        let stats = Value::from(to_json(&self.stats));
        let found = fs::read(&path).ok();
        if found.and_then(|text| serde_json::from_slice(&text).ok()) != Some(stats) {
            write_stats(root, &self.stats)?;
        }
        let path = meta(root, LIST);
        if fs::read(&path).ok().as_ref() != Some(&self.lines) {
            replace(&path, &self.lines)?;
        }
        self.drop_uncounted(root)
    }

    /// Takes away what a kill has left of a first episode.
    fn clear(&self, root: &Path) -> Result<(), RecordError> {
        for name in [STATS, LIST] {
            let path = meta(root, name);
            match fs::remove_file(&path) {
                Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
                    return Err(RecordError::file(&path, err));
                }
                _ => {}
            }
        }
        self.drop_uncounted(root)
    }

    /// Deletes the files of later episodes. lerobot reads all tables that it finds, so the last goes
    /// first: after a kill, those that are left follow those that stay.
    fn drop_uncounted(&self, root: &Path) -> Result<(), RecordError> {
        let mut folders = vec![root.join("data"), root.join("meta/episodes")];
        let videos = fs::read_dir(root.join("videos")).into_iter().flatten();
        let videos = videos.flatten().map(|entry| entry.path());
        folders.extend(videos.filter(|path| is_camera(path)));
        let files = |index: u64| -> Vec<PathBuf> {
            let of = |folder: &PathBuf| ["parquet", "mp4"].map(|end| file(folder, index, end));
            let all = folders.iter().flat_map(of);
            all.filter(|path| path.exists()).collect()
        };
        let left = (self.episodes..).map(files);
        let left: Vec<_> = left.take_while(|files| !files.is_empty()).collect();
        for path in left.into_iter().rev().flatten() {
            fs::remove_file(&path).map_err(|err| RecordError::file(&path, err))?;
        }
        Ok(())
    }
}

/// Returns the error that a file has no such part.
pub(super) fn lacks(file: &str, what: &str) -> RecordError {
    RecordError(format!("{file} does not have {what}"))
}

fn is_not_listed(found: u64, wanted: u64) -> RecordError {
    RecordError(format!(
        "`rrun_episodes.jsonl` has episode {found} where {wanted} is expected"
    ))
}

/// The `splits` of `info.json`.
pub(super) fn splits(episodes: u64) -> Value {
    json!({"train": format!("0:{episodes}")})
}

fn is_camera(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(CAMERA)
}

/// Returns `info.json`; `None` if there is none.
fn read_info(root: &Path) -> Result<Option<Value>, RecordError> {
    let path = meta(root, INFO);
    let text = match fs::read(&path) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|err| RecordError::file(&path, err))?,
    };
    let info = serde_json::from_slice(&text).map_err(|err| RecordError::file(&path, err))?;
    Ok(Some(info))
}

/// Returns a number of `info.json`.
pub(super) fn number(info: &Value, name: &'static str) -> Result<u64, RecordError> {
    let number = info[name].as_u64();
    number.ok_or_else(|| lacks("`info.json`", &format!("a number `{name}`")))
}

/// Writes a file of `meta` and moves it into place by a rename.
pub(super) fn write_json(root: &Path, name: &str, value: &Value) -> Result<(), RecordError> {
    let path = meta(root, name);
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|err| RecordError::file(&path, err))?;
    replace(&path, format!("{text}\n").as_bytes())
}

fn replace(path: &Path, text: &[u8]) -> Result<(), RecordError> {
    write_whole(path, text).map_err(|err| RecordError::file(path, err))
}
