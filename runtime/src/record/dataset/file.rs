//! The dataset file of one rank, intact at every moment.
//!
//! An HDF5 file is changed in place: a process killed between two writes of the library leaves an index that points
//! nowhere, and with it everything is lost, not only the episode being written. So the group that readers see is never
//! touched. The file holds two groups with the same demos, `data` and [`BUILDING`], and an episode is added in turns:
//!
//! ```text
//!   1 reserve   zeros are appended to the file: a full disk shows before HDF5 is asked, and
//!               the end of file that HDF5 writes down is never past the real one
//!   2 build     `building` gets the new demo (and a link to the one it lacks); close, fsync
//!   3 swap      `building` <-> `data` change names by one write inside one page; fsync
//! ```
//!
//! Killed in 1 or 2, `data` is what it was; killed after 3, it has the new demo. New space is only taken behind the old
//! end or from what this session freed in `building`, so nothing that `data` needs is written over, whatever the
//! library's cache evicts when. The file is created for the earliest library version (superblock 0), which has no
//! "open for write" mark, and is closed between episodes: other programs can read it during the run. HDF5's own file lock
//! is off, because a reader's shared lock would stop the next episode, and many cluster file systems have none.
//!
//! At the end `building` is unlinked. At a start with an existing file its complete demos are copied to a fresh file
//! (see [`super::repack`]), which takes the old one's place by a rename.

use std::fs::{self, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use hdf5::{FileBuilder, OpenMode};

use super::{demo, repack, root_table};
use crate::record::closed::Closed;
use crate::record::episode::Episode;
use crate::record::error::hdf5_reason;
use crate::record::writer::Store;
use crate::record::{EpisodeEnd, RecordError};

/// The group that readers see.
pub(super) const DATA: &str = "data";
/// The group that is being written. Its name sorts before `data`, so that a search for `data` finds it even while the
/// library takes this name away at the end.
pub(super) const BUILDING: &str = "building";

/// Room for the parts of one HDF5 dataset that are not values: object header and chunk index, generously.
const DATASET_OVERHEAD: u64 = 16 << 10;
/// Room for the groups, attributes and link tables of one episode, generously.
const EPISODE_OVERHEAD: u64 = 128 << 10;

/// An open dataset file.
#[derive(Debug)]
pub(super) struct DemoFile {
    path: PathBuf,
    env_args: String,
    next: u64,
    total: u64,
    /// The demo that `data` has and `building` lacks.
    lacking: Option<String>,
    /// An episode failed halfway: `building` is not to be trusted.
    torn: bool,
}

impl DemoFile {
    /// Creates the file, or goes on with the one that is there. The number of its next demo is `first_demo` at least.
    /// `notes` gets a line for whatever was lost.
    pub(super) fn open(
        path: PathBuf,
        env_args: &serde_json::Value,
        first_demo: u64,
        notes: &mut Vec<String>,
    ) -> Result<Self, RecordError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|err| RecordError::file(parent, err))?;
        }
        let env_args = env_args.to_string();
        let fresh = repack::start(&path, &env_args)?;
        notes.extend(fresh.warnings);
        Ok(Self { path, env_args, next: fresh.next.max(first_demo), total: fresh.total, lacking: None, torn: false })
    }

    /// Adds an episode and answers with its name once it is on disk.
    fn add(&mut self, episode: &Episode, end: EpisodeEnd) -> Result<String, RecordError> {
        episode.complete().map_err(|reason| RecordError::file(&self.path, reason))?;
        self.mend()?;
        let name = format!("demo_{}", self.next);
        let total = self.total + episode.rows() as u64;
        reserve(&self.path, room(episode)).map_err(|err| RecordError::file(&self.path, err))?;
        self.torn = true;
        self.build(&name, episode, end, total).map_err(|err| RecordError::file(&self.path, hdf5_reason(&err)))?;
        publish(&self.path).map_err(|err| RecordError::file(&self.path, err))?;
        self.torn = false;
        self.next += 1;
        self.total = total;
        self.lacking = Some(name.clone());
        Ok(name)
    }

    /// Leaves only `data` in the file.
    fn close(&mut self) -> Result<(), RecordError> {
        self.mend()?;
        drop_building(&self.path).map_err(|err| RecordError::file(&self.path, hdf5_reason(&err)))?;
        sync(&self.path).map_err(|err| RecordError::file(&self.path, err))
    }

    /// After an episode that failed halfway the demos of `data` move to a fresh file.
    fn mend(&mut self) -> Result<(), RecordError> {
        if self.torn {
            let fresh = repack::start(&self.path, &self.env_args)?;
            (self.next, self.total, self.lacking, self.torn) = (fresh.next.max(self.next), fresh.total, None, false);
        }
        Ok(())
    }

    fn build(&self, name: &str, episode: &Episode, end: EpisodeEnd, total: u64) -> hdf5::Result<()> {
        let file = open(&self.path, OpenMode::ReadWrite)?;
        if let Some(lacking) = &self.lacking {
            file.link_hard(&format!("/{DATA}/{lacking}"), &format!("/{BUILDING}/{lacking}"))?;
        }
        let building = file.group(BUILDING)?;
        demo::write(&building.create_group(name)?, episode, end)?;
        building.attr("total")?.write_scalar(&(total as i64))?;
        drop(building);
        file.flush()?;
        file.close()
    }
}

impl Store for DemoFile {
    fn append(&mut self, episode: &Episode, end: EpisodeEnd) -> Result<Option<(PathBuf, String)>, RecordError> {
        let demo = self.add(episode, end)?;
        Ok(Some((self.path.clone(), demo)))
    }

    fn finish(mut self: Box<Self>) -> Closed {
        Closed::of(self.close())
    }
}

/// Opens with the settings that every file of ours is opened with.
pub(super) fn open(path: &Path, mode: OpenMode) -> hdf5::Result<hdf5::File> {
    let mut builder = FileBuilder::new();
    builder.with_fapl(|fapl| fapl.libver_earliest().file_locking(false)).open_as(path, mode)
}

/// Waits until the system has written the file to disk.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.sync_data()
}

/// Appends zeros, so that the space is the file's before HDF5 needs it; gives all back when there is not enough.
pub(super) fn reserve(path: &Path, bytes: u64) -> io::Result<()> {
    static BLOCK: [u8; 1 << 16] = [0; 1 << 16];
    let mut file = OpenOptions::new().write(true).open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(BLOCK.len() as u64);
        if let Err(err) = file.write_all(&BLOCK[..part as usize]) {
            file.set_len(end)?;
            return Err(err);
        }
        left -= part;
    }
    Ok(())
}

/// What an episode takes at most.
fn room(episode: &Episode) -> u64 {
    let datasets = (episode.columns.len() + episode.pictures.len() + episode.initial.len() + 3) as u64;
    let chunk_index: u64 = episode.pictures.values().map(|pictures| pictures.frames.len() as u64 * 128).sum();
    let values = episode.bytes();
    values + values / 64 + chunk_index + datasets * DATASET_OVERHEAD + EPISODE_OVERHEAD
}

fn publish(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.sync_data()?;
    root_table::swap(&file)?;
    file.sync_data()
}

fn drop_building(path: &Path) -> hdf5::Result<()> {
    let file = open(path, OpenMode::ReadWrite)?;
    if file.link_exists(BUILDING) {
        file.unlink(BUILDING)?;
    }
    file.flush()?;
    file.close()
}
