//! Gathers the journals of all runs in one folder, each under the name of its rank and run.
//!
//! A journal only grows: if one copy is a prefix of another, the longer one has everything. The
//! folders of datasets and videos do not matter for that, because a copied run has its own. Copies
//! that have diverged (a folder was copied and both were continued) are separate journals, named by
//! their content.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use jobs::journal;
use jobs::layout::{RunFolder, journal_rank};
use jobs::sha256;

use crate::Journals;
use crate::merge::Input;
use crate::merge::rewrite::{Rewrite, is_same_line};
use crate::sections::run::run_of;

/// Length of the part of a run's id in the names of its journals.
const LETTERS: usize = 12;

/// Owner of a journal: the rank, and the first characters of the run's id.
type Owner = (usize, String);

/// Returns whether a folder is a run, and not only the result of a merge: it has a plan without a
/// `merge.json`, or the merged run was continued.
pub(super) fn is_run(folder: &RunFolder) -> io::Result<bool> {
    if !folder.merge().is_file() {
        return Ok(folder.plan().is_file());
    }
    Ok(journal::files(&folder.journals())?
        .iter()
        .any(|path| run_in_name(path).is_none()))
}

/// Returns the runs whose journals the inputs have.
pub(super) fn runs(inputs: &[Input]) -> io::Result<BTreeSet<String>> {
    let mut runs = BTreeSet::new();
    for input in inputs {
        for path in journal::files(&input.folder.journals())? {
            runs.insert(owner(input, &path).1);
        }
    }
    Ok(runs)
}

/// Returns the run's part of a journal's name, without what tells diverged copies apart.
fn run_in_name(path: &Path) -> Option<String> {
    let run = run_of(path.file_name()?.to_str()?)?.split('_').next()?;
    Some(run.to_owned())
}

fn owner(input: &Input, path: &Path) -> Owner {
    let of_input = || {
        let letters = input.plan.id.chars().filter(char::is_ascii_alphanumeric);
        letters.take(LETTERS).collect()
    };
    (
        journal_rank(path).unwrap_or(0),
        run_in_name(path).unwrap_or_else(of_input),
    )
}

/// Writes the journals of all inputs to a folder beside the journals of the output, and returns it.
pub(super) fn gather(inputs: &[Input], output: &RunFolder) -> io::Result<PathBuf> {
    let folder = output.root().join("journal.new");
    remove(&folder)?;
    fs::create_dir_all(&folder)?;
    let mut owners: BTreeMap<Owner, Vec<PathBuf>> = BTreeMap::new();
    let mut count = 0;
    for input in inputs {
        let rewrite = Rewrite::new(input, output.root());
        let journals = Journals::of(&input.folder)?;
        for (index, path) in journals.paths().enumerate() {
            let part = folder.join(format!("{count}.part"));
            count += 1;
            let mut file = BufWriter::with_capacity(1 << 20, File::create(&part)?);
            let change = |line: &[u8], to: &mut Vec<u8>| rewrite.line(line, to);
            journals.copy(index, change, &mut file)?;
            file.flush()?;
            keep(owners.entry(owner(input, path)).or_default(), part)?;
        }
    }
    for ((rank, run), parts) in owners {
        for part in &parts {
            let content = if parts.len() > 1 {
                format!("_{}", &sha256::of_reader(File::open(part)?)?.sha256[..8])
            } else {
                String::new()
            };
            fs::rename(
                part,
                folder.join(format!("journal_rank{rank}_{run}{content}.jsonl")),
            )?;
        }
    }
    Ok(folder)
}

/// Replaces the journals of the output by those in a folder.
pub(super) fn replace(output: &RunFolder, folder: &Path) -> io::Result<()> {
    remove(&output.journals())?;
    fs::rename(folder, output.journals())
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Adds a journal to those of its owner, unless one of them replaces it; removes those that it
/// replaces.
fn keep(parts: &mut Vec<PathBuf>, part: PathBuf) -> io::Result<()> {
    for other in parts.iter() {
        if replaces(other, &part)? {
            return fs::remove_file(&part);
        }
    }
    for other in std::mem::take(parts) {
        match replaces(&part, &other)? {
            true => fs::remove_file(&other)?,
            false => parts.push(other),
        }
    }
    parts.push(part);
    Ok(())
}

/// Returns whether a journal has all lines of another one of the same rank and run. Of journals
/// with the same lines, with paths in other folders, the smaller text replaces the larger one, so
/// that the result does not depend on the order.
fn replaces(a: &Path, b: &Path) -> io::Result<bool> {
    let [mut a_lines, mut b_lines] = [
        BufReader::new(File::open(a)?),
        BufReader::new(File::open(b)?),
    ];
    let [mut a_line, mut b_line] = [Vec::new(), Vec::new()];
    let mut order = Ordering::Equal;
    loop {
        a_line.clear();
        b_line.clear();
        a_lines.read_until(b'\n', &mut a_line)?;
        b_lines.read_until(b'\n', &mut b_line)?;
        match [a_line.is_empty(), b_line.is_empty()] {
            [true, true] => return Ok(order.is_le()),
            [false, true] => return Ok(true),
            [false, false] if is_same_line(&a_line, &b_line) => {}
            [_, false] => return Ok(false),
        }
        order = order.then_with(|| a_line.cmp(&b_line));
    }
}
