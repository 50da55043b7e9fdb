//! Replaces the jobs of a run: the files and lines that do not stay move to `superseded/<n>`, all
//! of them or none.
//!
//! ```text
//! 1 prepare  superseded/<n>.new/  plan.json         a copy of the current plan
//!                                 .next/plan.json   the new plan
//!                                 .next/journal/    the journals of the jobs that stay
//!                                 .moves.json       the renames of step 3
//! 2 decide   superseded/<n>.new ─► superseded/<n>   one rename
//! 3 move     each rename of .moves.json, then remove the file
//! ```
//! If the process is killed before step 2, the run is as it was, and the next start removes what
//! was prepared. If it is killed after step 2, moves are left over, and the next start makes them;
//! it detects the moves that were already made. All of this happens under the lock of the plan,
//! while nobody writes a journal.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::journal::{self, Line};
use crate::layout::{RunFolder, write_whole};
use crate::plan::RunPlan;
use crate::plan::difference::Difference;

/// Suffix of a prepared folder, which nothing depends on yet.
const PREPARED: &str = "new";

/// File with the moves that are left to make. It cannot collide with a job, because no job name
/// begins with a dot.
const MOVES: &str = ".moves.json";

/// Folder with the files that replace those that move away.
const NEXT: &str = ".next";

/// A rename within the run folder; both paths are relative to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Move {
    from: PathBuf,
    to: PathBuf,
}

impl Move {
    /// Returns whether it is a move that `rrun` itself writes into `superseded/<n>`. A folder from
    /// another user could have any other move, which might lead out of the folder.
    fn is_ours(&self, decided: &Path) -> bool {
        let next =
            |name: &str| self.from == decided.join(NEXT).join(name) && self.to == Path::new(name);
        let mut parts = self.from.components();
        let is_name = matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(_)), None)
        );
        next("plan.json") || next("journal") || (is_name && self.to == decided.join(&self.from))
    }

    fn away(name: &Path, to: &Path) -> Self {
        Self {
            from: name.to_owned(),
            to: to.join(name),
        }
    }

    /// Makes the move, unless it was already made.
    fn make(&self, root: &Path) -> io::Result<()> {
        let (from, to) = (root.join(&self.from), root.join(&self.to));
        // The plan is the only file that is replaced. Any other one shows that it was moved already.
        if self.to != Path::new("plan.json") && to.symlink_metadata().is_ok() {
            return Ok(());
        }
        match fs::rename(from, to) {
            Err(err) if err.kind() != ErrorKind::NotFound => {
                let moved = format!(
                    "`{}` cannot become `{}`: {err}",
                    self.from.display(),
                    self.to.display()
                );
                Err(io::Error::new(err.kind(), moved))
            }
            _ => Ok(()),
        }
    }
}

/// Where the plan and the journals currently are, given the decided moves that were already made.
pub(super) struct CurrentPaths {
    pub(super) plan: PathBuf,
    pub(super) journals: PathBuf,
}

impl CurrentPaths {
    /// Finds both paths without changing anything.
    pub(super) fn of(folder: &RunFolder) -> Self {
        let next = decided(folder).map(|decided| decided.join(NEXT));
        let either = |name: &str, or: PathBuf| {
            let waiting = next
                .as_ref()
                .map(|next| next.join(name))
                .filter(|path| path.exists());
            waiting.unwrap_or(or)
        };
        Self {
            plan: either("plan.json", folder.plan()),
            journals: either("journal", folder.journals()),
        }
    }
}

/// Returns whether an earlier start left a replacement half done.
pub(super) fn is_half_done(folder: &RunFolder) -> bool {
    decided(folder).is_some() || !prepared(folder).is_empty()
}

/// Finishes or undoes the replacement that an earlier start left half done.
pub(super) fn mend(folder: &RunFolder) -> io::Result<()> {
    remove_prepared(folder)?;
    match decided(folder) {
        Some(decided) => finish(folder, &decided),
        None => Ok(()),
    }
}

/// Replaces the plan of `folder` by `next`. What does not stay moves to a folder of its own.
pub(super) fn supersede(
    folder: &RunFolder,
    next: &RunPlan,
    difference: &Difference,
) -> io::Result<()> {
    match prepare(folder, next, difference) {
        Ok(decided) => finish(folder, &decided),
        Err(err) => {
            // The prepared folder is of no use; the next start would remove it, too.
            remove_prepared(folder).ok();
            Err(err)
        }
    }
}

fn remove_prepared(folder: &RunFolder) -> io::Result<()> {
    prepared(folder).iter().try_for_each(fs::remove_dir_all)
}

/// Steps 1 and 2: prepares the folder and decides.
fn prepare(folder: &RunFolder, next: &RunPlan, difference: &Difference) -> io::Result<PathBuf> {
    let number = number(folder)?;
    let place = Path::new("superseded").join(number.to_string());
    let fresh = folder.superseded().join(format!("{number}.{PREPARED}"));
    let coming = fresh.join(NEXT);
    fs::create_dir_all(coming.join("journal"))?;
    write_whole(
        &fresh.join("plan.json"),
        &files::read(&folder.plan(), MAX_DOCUMENT_BYTES)?,
    )?;
    write_whole(&coming.join("plan.json"), &serde_json::to_vec_pretty(next)?)?;
    carry(folder, difference, &coming.join("journal"))?;
    write_whole(
        &fresh.join(MOVES),
        &serde_json::to_vec_pretty(&moves(folder, difference, &place)?)?,
    )?;
    [&coming.join("journal"), &coming, &fresh]
        .iter()
        .try_for_each(|part| sync(part))?;
    let decided = folder.root().join(&place);
    fs::rename(fresh, &decided)?;
    sync(&folder.superseded())?;
    Ok(decided)
}

/// Copies the lines of the jobs that stay; a journal that would be empty is left out.
fn carry(folder: &RunFolder, difference: &Difference, to: &Path) -> io::Result<()> {
    let jobs = difference.jobs.iter().filter(|job| job.stays());
    let staying: HashMap<_, _> = jobs.map(|job| (&*job.name, job.episodes)).collect();
    for path in journal::files(&folder.journals())? {
        let mut text = Vec::new();
        journal::each(&path, |line, written| {
            if stays(&line, &staying) {
                text.extend(written);
                text.push(b'\n');
            }
        })?;
        if let (Some(name), false) = (path.file_name(), text.is_empty()) {
            write_whole(&to.join(name), &text)?;
        }
    }
    Ok(())
}

/// Returns whether a line stays with these jobs, of which episodes from a number on do not stay.
fn stays(line: &Line, jobs: &HashMap<&str, Option<u64>>) -> bool {
    // They are about the jobs as they were. Files are hashed again at the next start.
    if let Line::Decision(_) | Line::PolicyFiles(_) = line {
        return false;
    }
    let Some((name, _)) = line.job() else {
        return true;
    };
    let episode = line.episode();
    let end = jobs.get(name);
    end.is_some_and(|end| episode.zip(*end).is_none_or(|(episode, end)| episode < end))
}

/// Returns the moves: first those away, then those into place. The plan is replaced by one rename,
/// so that there always is one.
fn moves(folder: &RunFolder, difference: &Difference, to: &Path) -> io::Result<Vec<Move>> {
    let leaving = difference.jobs.iter().filter(|job| !job.stays());
    let leaving = leaving.map(|job| PathBuf::from(&job.name));
    let reports = folder
        .reports()
        .into_iter()
        .filter_map(|path| path.file_name().map(PathBuf::from));
    let mut moves: Vec<_> = leaving
        .chain(reports)
        .map(|name| Move::away(&name, to))
        .collect();
    moves.retain(|step| folder.root().join(&step.from).symlink_metadata().is_ok());
    moves.push(Move::away(Path::new("journal"), to));
    moves.extend(["journal", "plan.json"].map(|name| Move {
        from: to.join(NEXT).join(name),
        to: name.into(),
    }));
    Ok(moves)
}

/// Step 3: makes the moves, then removes their list.
fn finish(folder: &RunFolder, decided: &Path) -> io::Result<()> {
    let place = decided.strip_prefix(folder.root()).unwrap_or(decided);
    let moves = read(
        &files::read(&decided.join(MOVES), MAX_DOCUMENT_BYTES)?,
        place,
    )
    .map_err(|err| refused(&decided.join(MOVES), &err.to_string()))?;
    for dir in [place.to_owned(), place.join(NEXT)] {
        real_folder(&folder.root().join(dir))?;
    }
    moves.iter().try_for_each(|step| step.make(folder.root()))?;
    sync(decided)?;
    sync(folder.root())?;
    match fs::remove_dir(decided.join(NEXT)) {
        Err(err) if err.kind() != ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    fs::remove_file(decided.join(MOVES))
}

/// Parses the text of a `.moves.json` in `place`, which is relative to the run folder.
fn read(text: &[u8], place: &Path) -> io::Result<Vec<Move>> {
    let moves: Vec<Move> = serde_json::from_slice(text)?;
    if let Some(other) = moves.iter().find(|step| !step.is_ours(place)) {
        let found = format!("`{}` to `{}`", other.from.display(), other.to.display());
        let why = format!("it moves {found}, which rrun never does");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok(moves)
}

/// Returns whether the text of `superseded/<n>/.moves.json` has only moves that `rrun` writes
/// itself: none leads out of the run folder, and none replaces anything but the plan. `place` is
/// `superseded/<n>`.
pub fn are_moves_of_ours(text: &[u8], place: &Path) -> bool {
    read(text, place).is_ok()
}

/// Refuses a symbolic link where a folder is expected, because files would be moved through it out
/// of the run folder.
fn real_folder(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(refused(path, "it is not a folder, or it is a link to one")),
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
        Err(err) => Err(err),
    }
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("`{}` cannot be used: {why}", path.display()),
    )
}

/// Returns the next free number `<n>`.
fn number(folder: &RunFolder) -> io::Result<u32> {
    real_folder(&folder.superseded())?;
    fs::create_dir_all(folder.superseded())?;
    let numbers = entries(folder)
        .into_iter()
        .filter_map(|path| number_of(&path));
    Ok(numbers.max().unwrap_or(0) + 1)
}

/// Returns the folder with moves that are left to make; there is at most one.
fn decided(folder: &RunFolder) -> Option<PathBuf> {
    let is_number = |path: &PathBuf| number_of(path).is_some();
    entries(folder)
        .into_iter()
        .filter(is_number)
        .find(|path| path.join(MOVES).exists())
}

/// Returns the prepared folders, which nothing depends on.
fn prepared(folder: &RunFolder) -> Vec<PathBuf> {
    let is_prepared = |path: &PathBuf| {
        let has_suffix = path.extension().is_some_and(|suffix| suffix == PREPARED);
        has_suffix && number_of(&path.with_extension("")).is_some()
    };
    entries(folder).into_iter().filter(is_prepared).collect()
}

fn number_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

/// Returns the folders in `superseded`; none if that is a symbolic link, which may lead anywhere.
fn entries(folder: &RunFolder) -> Vec<PathBuf> {
    let place = folder.superseded();
    if real_folder(&place).is_err() {
        return Vec::new();
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Syncs a folder, so that the names in it are on the disk.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
