//! Creates a new dataset file: empty, or with the complete demos of the existing file that count.
//!
//! It is written beside the old one as `<name>.tmp` and replaces it by a rename. Unreadable data is
//! never overwritten: the old file stays as `<name>.damaged`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hdf5::types::VarLenUnicode;
use hdf5::{Group, OpenMode};

use crate::record::RecordError;
use crate::record::dataset::demo::{set, set_text};
use crate::record::dataset::hdf5_file::{BUILDING, DATA, open, reserve, sync};
use crate::record::dataset::root_table;
use crate::record::error::hdf5_reason;

/// Number of demos that are copied before both files are closed and opened again. Until then, HDF5
/// keeps what it knows of them: some 60 KB for each.
const AT_ONCE: usize = 64;

/// A file that is ready for more episodes.
#[derive(Debug, Default)]
pub(super) struct FreshFile {
    /// Number of the next demo: one more than the highest.
    pub(super) next: u64,
    /// Number of rows of all demos.
    pub(super) total: u64,
    /// Notes on what was lost or kept aside, one line each.
    pub(super) warnings: Vec<String>,
    /// True if something of the existing file could not be copied.
    is_incomplete: bool,
}

/// Makes `path` a file to which episodes can be appended. Of an existing one, the demos of
/// `left_out` are not kept.
pub(super) fn start(
    path: &Path,
    env_args: &str,
    left_out: &BTreeSet<String>,
) -> Result<FreshFile, RecordError> {
    let temporary = beside(path, "tmp");
    let exists = path
        .try_exists()
        .map_err(|err| RecordError::file(path, err))?;
    let fresh = if exists {
        resume(path, &temporary, env_args, left_out)?
    } else {
        empty(&temporary, env_args)?
    };
    check(&temporary)?;
    if fresh.is_incomplete {
        set_aside(path)?;
    }
    fs::rename(&temporary, path).map_err(|err| RecordError::file(path, err))?;
    Ok(fresh)
}

/// Copies what can be read and is not left out.
fn resume(
    path: &Path,
    temporary: &Path,
    env_args: &str,
    left_out: &BTreeSet<String>,
) -> Result<FreshFile, RecordError> {
    let found = open(path, OpenMode::Read).and_then(|file| numbers(&file.group(DATA)?));
    let stays = |number: &u64| !left_out.contains(&name(*number));
    let numbers: Vec<u64> = match found {
        Ok(found) => found.into_iter().filter(stays).collect(),
        Err(err) => {
            let mut fresh = empty(temporary, env_args)?;
            let aside = free_name(path, "damaged");
            let reason = hdf5_reason(&err);
            let line = format!(
                "`{}` cannot be read and is kept as `{}`: {reason}",
                path.display(),
                aside.display()
            );
            fresh.warnings.push(line);
            fresh.is_incomplete = true;
            return Ok(fresh);
        }
    };
    // The copy may be smaller, and at most a few headers larger. A full disk shows here.
    let size = fs::metadata(path)
        .map_err(|err| RecordError::file(path, err))?
        .len();
    fs::File::create(temporary)
        .and_then(|_| reserve(temporary, size))
        .map_err(|err| RecordError::file(temporary, err))?;
    let mut fresh = write(temporary, env_args, path, &numbers)
        .map_err(|err| RecordError::file(temporary, hdf5_reason(&err)))?;
    if fresh.is_incomplete {
        let aside = free_name(path, "damaged");
        fresh.warnings.push(format!(
            "`{}` is kept as `{}`",
            path.display(),
            aside.display()
        ));
    }
    Ok(fresh)
}

fn empty(temporary: &Path, env_args: &str) -> Result<FreshFile, RecordError> {
    write(temporary, env_args, temporary, &[])
        .map_err(|err| RecordError::file(temporary, hdf5_reason(&err)))
}

/// Creates the file with both groups and, in both, those of the demos of `old` that are complete.
fn write(temporary: &Path, env_args: &str, old: &Path, numbers: &[u64]) -> hdf5::Result<FreshFile> {
    let file = open(temporary, OpenMode::Create)?;
    for group in [BUILDING, DATA] {
        file.create_group(group)?;
    }
    file.close()?;
    let mut fresh = FreshFile::default();
    for part in numbers.chunks(AT_ONCE) {
        let (from, to) = (
            open(old, OpenMode::Read)?,
            open(temporary, OpenMode::ReadWrite)?,
        );
        let (demos, copies) = (from.group(DATA)?, to.group(DATA)?);
        for number in part {
            fresh.take(*number, &demos, &copies)?;
        }
        drop((demos, copies));
        to.close()?;
    }
    let file = open(temporary, OpenMode::ReadWrite)?;
    for group in [BUILDING, DATA] {
        let group = file.group(group)?;
        set_text(&group, "env_args", env_args)?;
        set(&group, "total", fresh.total as i64)?;
    }
    file.flush()?;
    file.close()?;
    Ok(fresh)
}

impl FreshFile {
    /// Copies a demo if it is complete, and links the copy to both groups.
    fn take(&mut self, number: u64, demos: &Group, copies: &Group) -> hdf5::Result<()> {
        self.next = number + 1;
        let name = name(number);
        match copy(demos, copies, &name) {
            Ok(rows) => {
                copies.link_hard(&format!("/{DATA}/{name}"), &format!("/{BUILDING}/{name}"))?;
                self.total += rows;
            }
            Err(Skipped::Incomplete) => {}
            Err(Skipped::Unreadable(err)) => {
                self.warnings.push(format!(
                    "`{name}` cannot be read and is left out: {}",
                    hdf5_reason(&err)
                ));
                self.is_incomplete = true;
                if copies.link_exists(&name) {
                    copies.unlink(&name)?;
                }
            }
        }
        Ok(())
    }
}

/// The reason why a demo is not copied.
enum Skipped {
    /// It has no `num_samples`: it was being written when the process died.
    Incomplete,
    /// The library cannot read it.
    Unreadable(hdf5::Error),
}

/// Copies one demo and returns its number of rows.
fn copy(old: &Group, new: &Group, name: &str) -> Result<u64, Skipped> {
    let demo = old.group(name).map_err(Skipped::Unreadable)?;
    let names = demo.attr_names().map_err(Skipped::Unreadable)?;
    if !names.iter().any(|name| name == "num_samples") {
        return Err(Skipped::Incomplete);
    }
    let rows = demo
        .attr("num_samples")
        .and_then(|attr| attr.read_scalar::<i64>())
        .map_err(Skipped::Unreadable)?;
    demo.copy_to(new, name).map_err(Skipped::Unreadable)?;
    Ok(rows.max(0) as u64)
}

/// Returns the names of the demos of an existing file, ascending.
pub(super) fn names(path: &Path) -> Result<Vec<String>, RecordError> {
    let found = open(path, OpenMode::Read).and_then(|file| numbers(&file.group(DATA)?));
    let found = found.map_err(|err| RecordError::file(path, hdf5_reason(&err)))?;
    Ok(found.into_iter().map(name).collect())
}

/// Returns the attribute `env_args` of an existing file.
pub(super) fn env_args(path: &Path) -> Result<String, RecordError> {
    let read = || {
        let data = open(path, OpenMode::Read)?.group(DATA)?;
        data.attr("env_args")?.read_scalar::<VarLenUnicode>()
    };
    let text = read().map_err(|err| RecordError::file(path, hdf5_reason(&err)))?;
    Ok(text.as_str().to_owned())
}

fn name(number: u64) -> String {
    format!("demo_{number}")
}

/// Returns the numbers of the `demo_<n>` members, ascending.
fn numbers(group: &Group) -> hdf5::Result<Vec<u64>> {
    let names = group.member_names()?;
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| name.strip_prefix("demo_")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Checks that the file has the layout that [`root_table`] needs, by a swap and its reversal.
fn check(temporary: &Path) -> Result<(), RecordError> {
    let tried = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(temporary)
        .and_then(|file| {
            root_table::swap(&file)?;
            root_table::swap(&file)
        });
    tried
        .and_then(|()| sync(temporary))
        .map_err(|err| RecordError::file(temporary, err))
}

fn set_aside(path: &Path) -> Result<(), RecordError> {
    fs::rename(path, free_name(path, "damaged")).map_err(|err| RecordError::file(path, err))
}

/// Returns `<path>.<ending>`, with a number appended if that exists.
fn free_name(path: &Path, ending: &str) -> PathBuf {
    let mut candidate = beside(path, ending);
    let mut number = 2;
    while candidate.exists() {
        candidate = beside(path, &format!("{ending}{number}"));
        number += 1;
    }
    candidate
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}
