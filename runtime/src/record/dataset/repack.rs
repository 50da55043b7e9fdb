//! Creates a new dataset file: empty, or with the complete demos of the existing file that count.
//!
//! It is written beside the old one as `<name>.tmp` and replaces it by a rename. Unreadable data is
//! never overwritten: the old file stays as `<name>.damaged`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use hdf5::types::VarLenUnicode;
use hdf5::{Group, OpenMode};

use crate::record::dataset::demo::{set, set_text};
use crate::record::dataset::file::{BUILDING, DATA, open, reserve, sync};
use crate::record::dataset::set_aside;
use crate::record::{RecordError, hdf5_reason};

/// Number of demos that are copied before both files are closed and opened again. Until then, HDF5
/// keeps what it knows of them: some 60 KB for each.
const AT_ONCE: usize = 64;

/// The demos that were copied.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Number of the next demo: one more than the highest.
    pub(super) next: u64,
    /// Number of rows of all demos.
    pub(super) total: u64,
    /// What could not be copied.
    lost: Vec<String>,
}

/// Makes `path` a file to which episodes can be appended. Of an existing one, the demos of
/// `left_out` are not kept. `notes` receives a line if something cannot be read.
pub(super) fn start(
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
pub(super) fn env_args(path: &Path) -> Result<String, RecordError> {
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
