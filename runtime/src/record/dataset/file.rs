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
//! At the end `building` is unlinked. If the file exists at the start, its complete demos that
//! count are copied to a new file, `<name>.tmp` beside it, which replaces the old one by a rename.
//! Unreadable data is never overwritten: the old file stays as `<name>.damaged`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use hdf5::types::VarLenUnicode;
use hdf5::{FileBuilder, Group, OpenMode};
use nix::errno::Errno;

use crate::record::dataset::demo::{self, set, set_text};
use crate::record::dataset::{Dataset, EarlierDemos, root_table, set_aside};
use crate::record::episode::EpisodeRows;
use crate::record::{EpisodeEnd, RecordError, hdf5_reason};

/// The group that readers see.
pub(super) const DATA: &str = "data";
/// The group that is being written. Its name sorts before `data`, so that a lookup of `data`
/// succeeds even while the library removes this name at the end.
pub(super) const BUILDING: &str = "building";
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
        let found = repack(&path, &env_args, &earlier.left_out, notes)?;
        Ok(Self {
            path,
            env_args,
            next: found.next.max(earlier.next),
            total: found.total,
            lacking: None,
            torn: false,
        })
    }

    /// Drops demonstrations of an existing file.
    pub(super) fn leave_out(path: &Path, left_out: &BTreeSet<String>) -> Result<(), RecordError> {
        let env_args = env_args(path)?;
        let earlier = EarlierDemos {
            next: 0,
            left_out: left_out.clone(),
        };
        Self::open(path.to_owned(), env_args, &earlier, &mut Vec::new())?.close()
    }

    /// After an episode that failed halfway, copies the demos of `data` to a new file.
    fn mend(&mut self) -> Result<(), RecordError> {
        if self.torn {
            let nothing = BTreeSet::new();
            let found = repack(&self.path, &self.env_args, &nothing, &mut Vec::new())?;
            (self.next, self.total) = (found.next.max(self.next), found.total);
            (self.lacking, self.torn) = (None, false);
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
            let [from, to] = [DATA, BUILDING].map(|group| format!("/{group}/{lacking}"));
            file.link_hard(&from, &to)?;
        }
        let building = file.group(BUILDING)?;
        demo::write(&building.create_group(name)?, episode, end)?;
        building.attr("total")?.write_scalar(&(total as i64))?;
        drop(building);
        file.flush()?;
        file.close()
    }
}

impl Dataset for DemoFile {
    fn append(
        &mut self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
    ) -> Result<Option<String>, RecordError> {
        self.mend()?;
        let failed = |err| RecordError::file(&self.path, err);
        let name = format!("demo_{}", self.next);
        let total = self.total + episode.rows() as u64;
        reserve(&self.path, room(episode)).map_err(failed)?;
        self.torn = true;
        let built = self.build(&name, episode, end, total);
        built.map_err(|err| RecordError::hdf5(&self.path, &err))?;
        publish(&self.path).map_err(failed)?;
        self.torn = false;
        self.next += 1;
        self.total = total;
        self.lacking = Some(name.clone());
        Ok(Some(name))
    }

    /// Removes everything but `data` from the file.
    fn close(&mut self) -> Result<(), RecordError> {
        self.mend()?;
        let dropped = drop_building(&self.path);
        dropped.map_err(|err| RecordError::hdf5(&self.path, &err))?;
        sync(&self.path).map_err(|err| RecordError::file(&self.path, err))
    }
}

/// Returns the maximum number of bytes of an episode in the file.
fn room(episode: &EpisodeRows) -> u64 {
    let datasets = episode.columns.len() + episode.pictures.len() + episode.initial.len() + 3;
    let chunks: usize = episode.pictures.values().map(Vec::len).sum();
    let (values, overhead) = (episode.bytes(), datasets as u64 * DATASET_OVERHEAD);
    values + values / 64 + chunks as u64 * 128 + overhead + EPISODE_OVERHEAD
}

/// Opens a file with the settings that all dataset files need.
pub(super) fn open(path: &Path, mode: OpenMode) -> hdf5::Result<hdf5::File> {
    let mut builder = FileBuilder::new();
    builder
        .with_fapl(|fapl| fapl.libver_earliest().file_locking(false))
        .open_as(path, mode)
}

/// Waits until the system has written the file to disk.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    File::options().write(true).open(path)?.sync_data()
}

/// Appends room to the file, so that it has the space before HDF5 needs it, without writing it.
/// Undoes this if the disk is full.
pub(super) fn reserve(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let end = file.metadata()?.len();
    let (from, room) = (end.cast_signed(), bytes.cast_signed());
    let reserved = loop {
        match nix::fcntl::posix_fallocate(&file, from, room) {
            Err(Errno::EINTR) => {}
            reserved => break reserved,
        }
    };
    if reserved.is_err() {
        file.set_len(end)?;
    }
    Ok(reserved?)
}

fn publish(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
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

/// Number of demos that are copied before both files are closed and opened again. Until then, HDF5
/// keeps what it knows of them: some 60 KB for each.
const AT_ONCE: usize = 64;

/// The demos that were copied.
#[derive(Debug, Default)]
struct Copied {
    /// Number of the next demo: one more than the highest.
    pub(super) next: u64,
    /// Number of rows of all demos.
    pub(super) total: u64,
    /// What could not be copied.
    lost: Vec<String>,
}

/// Makes `path` a file to which episodes can be appended. Of an existing one, the demos of
/// `left_out` are not kept. `notes` receives a line if something cannot be read.
fn repack(
    path: &Path,
    env_args: &str,
    left_out: &BTreeSet<String>,
    notes: &mut Vec<String>,
) -> Result<Copied, RecordError> {
    let failed = |err| RecordError::file(path, err);
    let temporary = path.with_added_extension("tmp");
    let found = match path.try_exists().map_err(failed)? {
        true => numbers(path),
        false => Ok(Vec::new()),
    };
    let mut lost = found.as_ref().err().map(hdf5_reason);
    let mut kept = found.unwrap_or_default();
    kept.retain(|number| !left_out.contains(&name(*number)));
    if !kept.is_empty() {
        // The copy may be smaller, and at most a few headers larger. A full disk shows here.
        let size = fs::metadata(path).map_err(failed)?.len();
        let reserved = File::create(&temporary).and_then(|_| reserve(&temporary, size));
        reserved.map_err(|err| RecordError::file(&temporary, err))?;
    }
    let copied = copy_all(&temporary, env_args, path, &kept);
    let copied = copied.map_err(|err| RecordError::hdf5(&temporary, &err))?;
    sync(&temporary).map_err(|err| RecordError::file(&temporary, err))?;
    if !copied.lost.is_empty() {
        lost = Some(copied.lost.join("; "));
    }
    if let Some(reason) = lost {
        notes.push(set_aside(path, &reason)?);
    }
    fs::rename(&temporary, path).map_err(failed)?;
    Ok(copied)
}

/// Creates the file with both groups and, in both, those of the demos of `old` that are complete.
fn copy_all(new: &Path, env_args: &str, old: &Path, numbers: &[u64]) -> hdf5::Result<Copied> {
    let file = open(new, OpenMode::Create)?;
    for group in [BUILDING, DATA] {
        file.create_group(group)?;
    }
    file.close()?;
    let mut copied = Copied::default();
    for part in numbers.chunks(AT_ONCE) {
        let (from, to) = (open(old, OpenMode::Read)?, open(new, OpenMode::ReadWrite)?);
        let (demos, copies) = (from.group(DATA)?, to.group(DATA)?);
        for number in part {
            copied.add(*number, &demos, &copies)?;
        }
        drop((demos, copies));
        to.close()?;
    }
    let file = open(new, OpenMode::ReadWrite)?;
    for group in [BUILDING, DATA] {
        let group = file.group(group)?;
        set_text(&group, "env_args", env_args)?;
        set(&group, "total", copied.total as i64)?;
    }
    file.flush()?;
    file.close()?;
    Ok(copied)
}

impl Copied {
    /// Copies a demo if it is complete, and links the copy to both groups.
    fn add(&mut self, number: u64, demos: &Group, copies: &Group) -> hdf5::Result<()> {
        self.next = number + 1;
        let name = name(number);
        match copy(demos, copies, &name) {
            Ok(Some(rows)) => {
                copies.link_hard(&format!("/{DATA}/{name}"), &format!("/{BUILDING}/{name}"))?;
                self.total += rows;
            }
            Ok(None) => {}
            Err(err) => {
                let reason = hdf5_reason(&err);
                let lost = format!("`{name}` cannot be read and is left out: {reason}");
                self.lost.push(lost);
                if copies.link_exists(&name) {
                    copies.unlink(&name)?;
                }
            }
        }
        Ok(())
    }
}

/// Copies one demo and returns its number of rows; `None` if it has no `num_samples`, because it
/// was being written when the process died.
fn copy(old: &Group, new: &Group, name: &str) -> hdf5::Result<Option<u64>> {
    let demo = old.group(name)?;
    if !demo.attr_names()?.iter().any(|name| name == "num_samples") {
        return Ok(None);
    }
    let rows = demo.attr("num_samples")?.read_scalar::<i64>()?;
    demo.copy_to(new, name)?;
    Ok(Some(rows.max(0) as u64))
}

/// Returns the names of the demos of an existing file, ascending.
pub(super) fn names(path: &Path) -> Result<Vec<String>, RecordError> {
    let found = numbers(path).map_err(|err| RecordError::hdf5(path, &err))?;
    Ok(found.into_iter().map(name).collect())
}

/// Returns the attribute `env_args` of an existing file.
fn env_args(path: &Path) -> Result<String, RecordError> {
    let read = || {
        let data = open(path, OpenMode::Read)?.group(DATA)?;
        data.attr("env_args")?.read_scalar::<VarLenUnicode>()
    };
    let text = read().map_err(|err| RecordError::hdf5(path, &err))?;
    Ok(text.as_str().to_owned())
}

fn name(number: u64) -> String {
    format!("demo_{number}")
}

/// Returns the numbers of the `demo_<n>` members of `data`, ascending.
fn numbers(path: &Path) -> hdf5::Result<Vec<u64>> {
    let names = open(path, OpenMode::Read)?.group(DATA)?.member_names()?;
    let numbers = names
        .iter()
        .filter_map(|name| name.strip_prefix("demo_")?.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    Ok(numbers)
}
