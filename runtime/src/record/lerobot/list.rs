//! `meta/rrun_episodes.jsonl`: one line for each episode with what LeRobot has no field for, its
//! length and its statistics. What the other files of `meta` say about all episodes follows from
//! these lines.
//!
//! `info.json` decides how many episodes there are. A kill between two files leaves lines,
//! statistics and tables of episodes that it does not count, and [`Folder::mend`] takes them away.
//! It does the same with the last episodes of a folder if their lines in the journal were never
//! written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use jobs::files;
use jobs::layout::write_whole;
use serde_json::{Value, json};

use crate::record::episode::EpisodeRows;
use crate::record::lerobot::stats::{self, FolderStats};
use crate::record::lerobot::table::read_tasks;
use crate::record::lerobot::{CAMERA, CHUNK};
use crate::record::{EpisodeEnd, RecordError};

const LIST: &str = "rrun_episodes.jsonl";
const INFO: &str = "info.json";
const STATS: &str = "stats.json";

/// A folder and the episodes that it counts.
#[derive(Clone)]
pub(super) struct Folder {
    pub(super) root: PathBuf,
    /// `info.json`; null before the first episode.
    pub(super) info: Value,
    pub(super) episodes: u64,
    pub(super) frames: u64,
    /// Instructions in the order of their task numbers.
    pub(super) tasks: Vec<String>,
    pub(super) stats: FolderStats,
}

/// Returns the names of the episodes of a folder.
pub(in crate::record) fn names(root: &Path) -> Result<Vec<String>, RecordError> {
    let counted = Folder::new(root).counted();
    let counted = counted.map_err(|err| RecordError::file(root, err))?;
    Ok((0..counted).map(name).collect())
}

/// Drops the last episodes of a folder that are in `left_out`, and what a kill has left of others.
pub(in crate::record) fn leave_out(
    root: &Path,
    left_out: &BTreeSet<String>,
) -> Result<(), RecordError> {
    let mut folder = Folder::new(root);
    let lines = folder.read(left_out);
    let mended = lines.and_then(|lines| folder.mend(&lines));
    mended.map_err(|err| RecordError::file(root, err))
}

/// Returns the name of an episode in the journal.
pub(super) fn name(index: u64) -> String {
    format!("episode_{index}")
}

impl Folder {
    /// Returns a folder without episodes.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            info: Value::Null,
            episodes: 0,
            frames: 0,
            tasks: Vec::new(),
            stats: FolderStats::new(),
        }
    }

    /// Returns the path of an episode's file below the folder of its kind.
    pub(super) fn file(&self, folder: &str, index: u64, ending: &str) -> PathBuf {
        let (chunk, file) = (index / CHUNK, index % CHUNK);
        let name = format!("chunk-{chunk:03}/file-{file:03}.{ending}");
        self.root.join(folder).join(name)
    }

    /// Returns the path of a file about all episodes.
    pub(super) fn meta(&self, name: &str) -> PathBuf {
        self.root.join("meta").join(name)
    }

    /// Reads `info.json`, and returns the number of episodes that it counts.
    fn counted(&mut self) -> Result<u64, RecordError> {
        let path = self.meta(INFO);
        let failed = |err: io::Error| RecordError::file(&path, err);
        let text = match fs::read(&path) {
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(0),
            text => text.map_err(failed)?,
        };
        let info = serde_json::from_slice(&text);
        self.info = info.map_err(|err| failed(err.into()))?;
        number(&self.info, "total_episodes")
    }

    /// Reads the episodes that stay; returns their lines. Episodes are numbered without gaps, so
    /// only those of `left_out` can go that no other one follows.
    pub(super) fn read(&mut self, left_out: &BTreeSet<String>) -> Result<Vec<u8>, RecordError> {
        let counted = self.counted()?;
        let mut stay = (1..=counted).rev();
        let wanted = stay.find(|count| !left_out.contains(&name(count - 1)));
        let wanted = wanted.unwrap_or(0);
        let mut lines = Vec::new();
        if self.info.is_null() {
            return Ok(lines);
        }
        let list = self.meta(LIST);
        let text = fs::read(&list).map_err(|err| RecordError::file(&list, err))?;
        let each = text.split_inclusive(|byte| *byte == b'\n');
        for line in each.take(wanted as usize) {
            let facts = serde_json::from_slice(line);
            self.add(&facts.map_err(|err| RecordError::file(&list, err))?)?;
            lines.extend_from_slice(line);
        }
        if self.episodes < wanted {
            return Err(is_not_listed(self.episodes, wanted));
        }
        let path = self.meta("tasks.parquet");
        let mut tasks = read_tasks(&path).map_err(|err| RecordError::file(&path, err))?;
        tasks.sort();
        self.tasks = tasks.into_iter().map(|(_, task)| task).collect();
        Ok(lines)
    }

    /// Adds what a line says.
    fn add(&mut self, facts: &Value) -> Result<(), RecordError> {
        let (Some(found), Some(length), Some(stats)) = (
            facts["episode_index"].as_u64(),
            facts["length"].as_u64(),
            stats::from_json(&facts["stats"]),
        ) else {
            return Err(lacks("`rrun_episodes.jsonl`", "all statistics"));
        };
        if found != self.episodes {
            return Err(is_not_listed(found, self.episodes));
        }
        self.stats = stats::and(&self.stats, stats);
        self.episodes += 1;
        self.frames += length;
        Ok(())
    }

    /// Appends the line of the next episode to the list.
    pub(super) fn list(
        &self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
        stats: &FolderStats,
    ) -> Result<(), RecordError> {
        let rewards = episode.rewards.iter().copied().map(f64::from);
        let line = json!({
            "episode_index": self.episodes,
            "episode": episode.episode,
            "seed": episode.seed,
            "env": episode.env.0,
            "success": end.success,
            "terminated": end.terminated,
            "truncated": end.truncated,
            "length": episode.rows(),
            "return": rewards.sum::<f64>(),
            "stats": stats::to_json(stats),
        });
        let path = self.meta(LIST);
        let file = File::options().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| {
            file.write_all(format!("{line}\n").as_bytes())?;
            file.sync_data()
        });
        written.map_err(|err| RecordError::file(&path, err))
    }

    /// Replaces `info.json`: from then on the episodes count.
    pub(super) fn count(&mut self) -> Result<(), RecordError> {
        self.info["total_episodes"] = self.episodes.into();
        self.info["total_frames"] = self.frames.into();
        self.info["total_tasks"] = self.tasks.len().into();
        self.info["splits"] = json!({"train": format!("0:{}", self.episodes)});
        self.write_json(INFO, &self.info)
    }

    /// Replaces `stats.json`.
    pub(super) fn write_stats(&self) -> Result<(), RecordError> {
        self.write_json(STATS, &stats::to_json(&self.stats))
    }

    /// Makes all files of the folder agree with `lines`. A kill meanwhile leaves a folder that this
    /// mends.
    pub(super) fn mend(&mut self, lines: &[u8]) -> Result<(), RecordError> {
        if self.episodes > 0 {
            self.count()?;
            self.write_stats()?;
            self.replace(LIST, lines)?;
        } else {
            // What a kill has left of a first episode.
            *self = Self::new(&self.root);
            for name in [INFO, STATS, LIST] {
                remove(&self.meta(name))?;
            }
        }
        self.drop_uncounted()
    }

    /// Deletes the files of later episodes. lerobot reads all tables that it finds, so the last
    /// goes first: after a kill, those that are left follow those that stay.
    fn drop_uncounted(&self) -> Result<(), RecordError> {
        let mut folders = vec!["data".to_owned(), "meta/episodes".to_owned()];
        let videos = fs::read_dir(self.root.join("videos")).into_iter().flatten();
        let videos = videos.flatten().map(|entry| entry.file_name());
        let videos = videos.filter_map(|name| name.into_string().ok());
        let videos = videos.filter(|name| name.starts_with(CAMERA));
        folders.extend(videos.map(|name| format!("videos/{name}")));
        let files = |index: u64| -> Vec<PathBuf> {
            let of =
                |folder: &String| ["parquet", "mp4"].map(|ending| self.file(folder, index, ending));
            let all = folders.iter().flat_map(of);
            all.filter(|path| path.exists()).collect()
        };
        let left = (self.episodes..).map(files);
        let left: Vec<_> = left.take_while(|files| !files.is_empty()).collect();
        let mut last_first = left.iter().rev().flatten();
        last_first.try_for_each(|path| remove(path))
    }

    /// Writes a file of `meta` and moves it into place by a rename.
    pub(super) fn write_json(&self, name: &str, value: &Value) -> Result<(), RecordError> {
        self.replace(name, format!("{value:#}\n").as_bytes())
    }

    fn replace(&self, name: &str, text: &[u8]) -> Result<(), RecordError> {
        let path = self.meta(name);
        if fs::read(&path).is_ok_and(|found| found == text) {
            return Ok(());
        }
        write_whole(&path, text).map_err(|err| RecordError::file(&path, err))
    }
}

fn remove(path: &Path) -> Result<(), RecordError> {
    files::remove(path).map_err(|err| RecordError::file(path, err))
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

/// Returns a number of `info.json`.
pub(super) fn number(info: &Value, name: &str) -> Result<u64, RecordError> {
    let number = info[name].as_u64();
    number.ok_or_else(|| lacks("`info.json`", &format!("a number `{name}`")))
}
