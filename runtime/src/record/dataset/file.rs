//! The dataset file of one rank, which is valid at every moment.
//!
//! HDF5 changes a file in place: a process killed between two writes of the library leaves an index
//! with invalid addresses, and then the whole file is lost, not only the current episode. So the
//! group that readers see is never modified. The file holds two groups with the same demos, `data`
//! and [`BUILDING`], and an episode is added in three steps:
//!
//! ```text
//!   1 reserve   append room to the file: a full disk shows before HDF5 is asked, and
//!               the end of file that HDF5 records is never past the real one
//!   2 build     add the new demo to `building` (and a link to the one it lacks); close, fsync
//!   3 swap      exchange the names `building` and `data` by one write inside one page; fsync
//! ```
//!
//! After a kill in step 1 or 2, `data` is unchanged; after step 3 it has the new demo. New space is
//! only taken behind the old end or from what this session freed in `building`, so nothing that
//! `data` needs is overwritten, in whatever order the library's cache writes. The file is created
//! for the earliest library version (superblock 0), which has no "open for write" mark, and is
//! closed between episodes, so that other programs can read it during the run. HDF5's own file lock
//! is off, because a reader's shared lock would block the next episode, and many cluster file
//! systems have no locks.
//!
//! At the end `building` is unlinked. If the file exists at the start, its complete demos that count
//! are copied to a new file (see [`crate::record::dataset::repack`]), which replaces the old one by a
//! rename.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use hdf5::OpenMode;

use crate::record::dataset::hdf5_file::{BUILDING, DATA, open, reserve, sync};
use crate::record::dataset::{EarlierDemos, demo, repack, root_table};
use crate::record::episode::EpisodeRows;
use crate::record::error::hdf5_reason;
use crate::record::lane::Closed;
use crate::record::parts::EpisodeLocation;
use crate::record::writer::DatasetWriter;
use crate::record::{EpisodeEnd, RecordError};

/// Bytes reserved for the parts of one HDF5 dataset beside its values: object header and chunk
/// index, generously.
const DATASET_OVERHEAD: u64 = 16 << 10;
/// Bytes reserved for the groups, attributes and link tables of one episode, generously.
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
    /// True if an episode failed halfway, so that `building` may be damaged.
    torn: bool,
}

impl DemoFile {
    /// Creates the file, or continues an existing one, of which `earlier` tells what the journals
    /// say. `notes` receives a line for everything that was lost.
    pub(super) fn open(
        path: PathBuf,
        env_args: String,
        earlier: &EarlierDemos,
        notes: &mut Vec<String>,
    ) -> Result<Self, RecordError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|err| RecordError::file(parent, err))?;
        }
        let fresh = repack::start(&path, &env_args, &earlier.left_out)?;
        notes.extend(fresh.warnings);
        Ok(Self {
            path,
            env_args,
            next: fresh.next.max(earlier.next),
            total: fresh.total,
            lacking: None,
            torn: false,
        })
    }

    /// Drops demonstrations of an existing file.
    pub(super) fn leave_out(path: &Path, left_out: &BTreeSet<String>) -> Result<(), RecordError> {
        let env_args = repack::env_args(path)?;
        let earlier = EarlierDemos {
            next: 0,
            left_out: left_out.clone(),
        };
        Self::open(path.to_owned(), env_args, &earlier, &mut Vec::new())?.close()
    }

    /// Adds an episode and returns its name after it is on disk.
    fn add(&mut self, episode: &EpisodeRows, end: EpisodeEnd) -> Result<String, RecordError> {
        episode
            .complete()
            .map_err(|reason| RecordError::file(&self.path, reason))?;
        self.mend()?;
        let name = format!("demo_{}", self.next);
        let total = self.total + episode.rows() as u64;
        reserve(&self.path, room(episode)).map_err(|err| RecordError::file(&self.path, err))?;
        self.torn = true;
        self.build(&name, episode, end, total)
            .map_err(|err| RecordError::file(&self.path, hdf5_reason(&err)))?;
        publish(&self.path).map_err(|err| RecordError::file(&self.path, err))?;
        self.torn = false;
        self.next += 1;
        self.total = total;
        self.lacking = Some(name.clone());
        Ok(name)
    }

    /// Removes everything but `data` from the file.
    fn close(&mut self) -> Result<(), RecordError> {
        self.mend()?;
        drop_building(&self.path)
            .map_err(|err| RecordError::file(&self.path, hdf5_reason(&err)))?;
        sync(&self.path).map_err(|err| RecordError::file(&self.path, err))
    }

    /// After an episode that failed halfway, copies the demos of `data` to a new file.
    fn mend(&mut self) -> Result<(), RecordError> {
        if self.torn {
            let fresh = repack::start(&self.path, &self.env_args, &BTreeSet::new())?;
            self.next = fresh.next.max(self.next);
            self.total = fresh.total;
            self.lacking = None;
            self.torn = false;
        }
        Ok(())
    }

    fn build(
        &self,
        name: &str,
        episode: &EpisodeRows,
        end: EpisodeEnd,
        total: u64,
    ) -> hdf5::Result<()> {
        let file = open(&self.path, OpenMode::ReadWrite)?;
        if let Some(lacking) = &self.lacking {
            file.link_hard(
                &format!("/{DATA}/{lacking}"),
                &format!("/{BUILDING}/{lacking}"),
            )?;
        }
        let building = file.group(BUILDING)?;
        demo::write(&building.create_group(name)?, episode, end)?;
        building.attr("total")?.write_scalar(&(total as i64))?;
        drop(building);
        file.flush()?;
        file.close()
    }
}

impl DatasetWriter for DemoFile {
    fn append(
        &mut self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
    ) -> Result<Option<EpisodeLocation>, RecordError> {
        let name = self.add(episode, end)?;
        Ok(Some(EpisodeLocation {
            dataset: self.path.clone(),
            name,
        }))
    }

    fn finish(mut self: Box<Self>) -> Closed {
        Closed::of(self.close())
    }
}

/// Returns the maximum number of bytes of an episode in the file.
fn room(episode: &EpisodeRows) -> u64 {
    let datasets =
        (episode.columns.len() + episode.pictures.len() + episode.initial.len() + 3) as u64;
    let chunk_index: u64 = episode
        .pictures
        .values()
        .map(|pictures| pictures.frames.len() as u64 * 128)
        .sum();
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
