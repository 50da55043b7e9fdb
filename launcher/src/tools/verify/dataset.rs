//! A dataset file: whether HDF5 can be read from it, and every demonstration that the journal names is there, whole, of
//! the right episode.
//!
//! Read by a decoder that needs no C library. Values are decompressed, which checks their checksums, and not looked at.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hdf5_reader::Hdf5File;
use hdf5_reader::error::Error;
use hdf5_reader::group::Group;
use hdf5_reader::storage::FileStorage;
use jobs::verify::{Demo, Findings, episodes};

/// Group of the demonstrations.
const DATA: &str = "/data";

/// Demonstrations of a file that nobody asked for, named at most.
const NAMED: usize = 5;

/// Holds a file against what the journal says of it; `values`: reads them all.
pub(super) fn check(path: &Path, demos: &[Demo], values: bool) -> Findings {
    let mut findings = Findings::default();
    if let Err(err) = look(path, demos, values, &mut findings) {
        findings.wrong.push(format!("cannot be read: {err}"));
    }
    findings
}

fn look(path: &Path, demos: &[Demo], values: bool, findings: &mut Findings) -> Result<(), Error> {
    // By reads at positions: of a file that becomes shorter meanwhile a map would end the process.
    let file = Hdf5File::from_storage(Arc::new(FileStorage::open(path)?))?;
    let (end, len) = (file.superblock().eof_address, file.storage().len());
    if end > len {
        findings.wrong.push(format!("is cut off: it has {len} bytes of {end}"));
    }
    let data = file.group(DATA)?;
    let mut there: BTreeMap<String, Group> = BTreeMap::new();
    for group in data.groups()? {
        there.insert(group.name().to_owned(), group);
    }
    // Of what is wrong with several demonstrations one line.
    let mut wrong: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for demo in demos {
        let reasons = match there.remove(&demo.name) {
            None => vec!["not there".to_owned()],
            Some(group) => reasons(&group, demo, values),
        };
        reasons.into_iter().for_each(|reason| wrong.entry(reason).or_default().push(demo.episode));
    }
    for (reason, mut numbers) in wrong {
        numbers.sort_unstable();
        findings.wrong.push(format!("{} {reason}", episodes(&numbers)));
    }
    if !there.is_empty() {
        let named: Vec<_> = there.keys().take(NAMED).map(String::as_str).collect();
        let more = if there.len() > NAMED { ", …" } else { "" };
        findings.notes.push(format!("also has {}{more}, which no episode that counts names", named.join(", ")));
    }
    Ok(())
}

/// What is wrong with one demonstration.
fn reasons(group: &Group, demo: &Demo, values: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    for (name, wanted) in [("num_samples", demo.length), ("seed", demo.seed)] {
        match group.attribute(name).and_then(|attribute| attribute.read_as_f64()) {
            // Steps and seeds have 53 bits at most.
            Ok(found) if found == wanted as f64 => {}
            Ok(_) => reasons.push(format!("there with another {name} than in the journal")),
            Err(err) => reasons.push(format!("there without a readable {name} ({err})")),
        }
    }
    let read = if values { all_values(group) } else { members(group) };
    if let Err(err) = read {
        reasons.push(format!("not whole: {err}"));
    }
    reasons
}

fn members(group: &Group) -> Result<(), Error> {
    let (groups, _) = group.members()?;
    groups.iter().try_for_each(members)
}

fn all_values(group: &Group) -> Result<(), Error> {
    let (groups, datasets) = group.members()?;
    for dataset in datasets {
        if dataset.chunks().is_some() {
            for chunk in dataset.iter_chunks()? {
                chunk?;
            }
        } else {
            dataset.read_raw_bytes()?;
        }
    }
    groups.iter().try_for_each(all_values)
}
