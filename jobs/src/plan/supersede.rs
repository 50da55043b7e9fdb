//! A run goes on with other jobs: what does not stay moves to `superseded/<n>`, all of it or nothing.
//!
//! ```text
//! 1 prepare  superseded/<n>.new/  plan.json         a copy of the plan
//!                                 .next/plan.json   the new one
//!                                 .next/journal/    the journals of the jobs that stay
//!                                 .moves.json       what is to be renamed
//! 2 decide   superseded/<n>.new ─► superseded/<n>   one rename
//! 3 move     each of .moves.json, then that is removed
//! ```
//! Whatever is killed before 2 leaves the run as it was, and the next start removes what was prepared. Whatever is
//! killed after it leaves moves to be made, and the next start makes them: a move that was made is seen to be. All of
//! it happens under the lock of the plan, while nobody writes a journal.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RunPlan;
use super::carry::Carry;
use super::difference::Difference;
use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::journal;
use crate::layout::{RunFolder, write_whole};

/// Suffix of a folder that nothing depends on yet.
const PREPARED: &str = "new";

/// The moves that are left. No job begins with a dot.
const MOVES: &str = ".moves.json";

/// What takes the place of what moves away.
const NEXT: &str = ".next";

/// A rename within the run folder, both ends relative to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Move {
    from: PathBuf,
    to: PathBuf,
    /// What is there is replaced; otherwise it shows that the move was made.
    replaces: bool,
}

impl Move {
    /// Whether it is one that a run of ours has written down in `superseded/<n>`: somebody else's folder could have any
    /// other, which would lead out of it.
    fn is_ours(&self, decided: &Path) -> bool {
        let next = |name: &str| self.from == decided.join(NEXT).join(name) && self.to == Path::new(name);
        let mut parts = self.from.components();
        let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        match self.replaces {
            true => next("plan.json"),
            false => next("journal") || (is_name && self.to == decided.join(&self.from)),
        }
    }

    fn away(name: &Path, to: &Path) -> Self {
        Self { from: name.to_owned(), to: to.join(name), replaces: false }
    }

    /// Makes it, if it was not made.
    fn make(&self, root: &Path) -> io::Result<()> {
        let (from, to) = (root.join(&self.from), root.join(&self.to));
        if !self.replaces && to.symlink_metadata().is_ok() {
            return Ok(());
        }
        match fs::rename(from, to) {
            Err(err) if err.kind() != ErrorKind::NotFound => {
                let moved = format!("`{}` cannot become `{}`: {err}", self.from.display(), self.to.display());
                Err(io::Error::new(err.kind(), moved))
            }
            _ => Ok(()),
        }
    }
}

/// Where plan and journals are, as far as moves that were decided on have been made.
pub(super) struct Standing {
    pub(super) plan: PathBuf,
    pub(super) journals: PathBuf,
}

impl Standing {
    /// Looks, and changes nothing.
    pub(super) fn of(folder: &RunFolder) -> Self {
        let next = decided(folder).map(|decided| decided.join(NEXT));
        let either = |name: &str, or: PathBuf| {
            let waiting = next.as_ref().map(|next| next.join(name)).filter(|path| path.exists());
            waiting.unwrap_or(or)
        };
        Self { plan: either("plan.json", folder.plan()), journals: either("journal", folder.journals()) }
    }
}

/// Whether a start before this one left something half done.
pub(super) fn is_half_done(folder: &RunFolder) -> bool {
    decided(folder).is_some() || !prepared(folder).is_empty()
}

/// Finishes or undoes what a start before this one left half done.
pub(super) fn mend(folder: &RunFolder) -> io::Result<()> {
    prepared(folder).iter().try_for_each(fs::remove_dir_all)?;
    match decided(folder) {
        Some(decided) => finish(folder, &decided),
        None => Ok(()),
    }
}

/// Puts `next` in the place of the plan of `folder`; answers with the folder that has what did not stay, relative to it.
pub(super) fn supersede(folder: &RunFolder, next: &RunPlan, difference: &Difference) -> io::Result<PathBuf> {
    let decided = prepare(folder, next, difference).inspect_err(|_| {
        // What was prepared is of no use; the next start would remove it, too.
        prepared(folder).iter().for_each(|fresh| drop(fs::remove_dir_all(fresh)));
    })?;
    finish(folder, &decided)?;
    Ok(decided.strip_prefix(folder.root()).unwrap_or(&decided).to_owned())
}

/// Steps 1 and 2.
fn prepare(folder: &RunFolder, next: &RunPlan, difference: &Difference) -> io::Result<PathBuf> {
    let number = number(folder)?;
    let place = Path::new("superseded").join(number.to_string());
    let fresh = folder.superseded().join(format!("{number}.{PREPARED}"));
    let coming = fresh.join(NEXT);
    fs::create_dir_all(coming.join("journal"))?;
    write_whole(&fresh.join("plan.json"), &files::read(&folder.plan(), MAX_DOCUMENT_BYTES)?)?;
    write_whole(&coming.join("plan.json"), &serde_json::to_vec_pretty(next)?)?;
    carry(folder, difference, &coming.join("journal"))?;
    write_whole(&fresh.join(MOVES), &serde_json::to_vec_pretty(&moves(folder, difference, &place)?)?)?;
    [&coming.join("journal"), &coming, &fresh].iter().try_for_each(|part| sync(part))?;
    let decided = folder.root().join(&place);
    fs::rename(fresh, &decided)?;
    sync(&folder.superseded())?;
    Ok(decided)
}

/// Writes the lines of the jobs that stay; a journal that would be empty is left out.
fn carry(folder: &RunFolder, difference: &Difference, to: &Path) -> io::Result<()> {
    let carry = Carry::new(difference);
    for path in journal::files(&folder.journals())? {
        let mut text = Vec::new();
        journal::each(&path, |line, stamp| {
            if let Some(line) = carry.line(&line) {
                let mut sealed = serde_json::to_vec(&line)?;
                stamp.seal(&mut sealed);
                text.extend(sealed);
                text.push(b'\n');
            }
            Ok(())
        })?;
        if let (Some(name), false) = (path.file_name(), text.is_empty()) {
            write_whole(&to.join(name), &text)?;
        }
    }
    Ok(())
}

/// What goes, then what comes. The plan is replaced in one go, so that there always is one.
fn moves(folder: &RunFolder, difference: &Difference, to: &Path) -> io::Result<Vec<Move>> {
    let leaving = difference.leaving().map(|job| PathBuf::from(&job.name));
    let reports = folder.reports().into_iter().filter_map(|path| path.file_name().map(PathBuf::from));
    let mut moves: Vec<_> = leaving.chain(reports).map(|name| Move::away(&name, to)).collect();
    moves.retain(|step| folder.root().join(&step.from).symlink_metadata().is_ok());
    moves.push(Move::away(Path::new("journal"), to));
    for (name, replaces) in [("journal", false), ("plan.json", true)] {
        moves.push(Move { from: to.join(NEXT).join(name), to: name.into(), replaces });
    }
    Ok(moves)
}

/// Step 3.
fn finish(folder: &RunFolder, decided: &Path) -> io::Result<()> {
    let place = decided.strip_prefix(folder.root()).unwrap_or(decided);
    let moves = read(&files::read(&decided.join(MOVES), MAX_DOCUMENT_BYTES)?, place)
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

/// The moves in the text of `.moves.json` in `place`, which is relative to the run folder.
fn read(text: &[u8], place: &Path) -> io::Result<Vec<Move>> {
    let moves: Vec<Move> = serde_json::from_slice(text)?;
    if let Some(other) = moves.iter().find(|step| !step.is_ours(place)) {
        let found = format!("`{}` to `{}`", other.from.display(), other.to.display());
        let why = format!("it moves {found}, which no run of ours does");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok(moves)
}

/// Whether a text in the place of `superseded/<n>/.moves.json` has only moves that a run of ours has written down: none
/// leads out of the run folder, and none replaces anything but the plan. `place` is `superseded/<n>`.
pub fn are_moves_of_ours(text: &[u8], place: &Path) -> bool {
    read(text, place).is_ok()
}

/// Refuses a link in the place of a folder, through which files would be moved out of the run folder.
fn real_folder(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(refused(path, "it is no folder, or a link to one")),
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
        Err(err) => Err(err),
    }
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("`{}` cannot be used: {why}", path.display()))
}

/// The next free number.
fn number(folder: &RunFolder) -> io::Result<u32> {
    real_folder(&folder.superseded())?;
    fs::create_dir_all(folder.superseded())?;
    let numbers = entries(folder).into_iter().filter_map(|path| number_of(&path));
    Ok(numbers.max().unwrap_or(0) + 1)
}

/// The folder whose moves are not all made; there is one at most.
fn decided(folder: &RunFolder) -> Option<PathBuf> {
    let is_number = |path: &PathBuf| number_of(path).is_some();
    entries(folder).into_iter().filter(is_number).find(|path| path.join(MOVES).exists())
}

/// Folders of ours that nothing depends on.
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

/// The folders in `superseded`; none where that is a link, which may lead anywhere.
fn entries(folder: &RunFolder) -> Vec<PathBuf> {
    let place = folder.superseded();
    if real_folder(&place).is_err() {
        return Vec::new();
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Names within a folder are on the disk.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
