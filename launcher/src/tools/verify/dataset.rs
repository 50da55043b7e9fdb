//! Checks a dataset file: whether it is readable HDF5, and every demonstration that the journal
//! names exists, is complete and belongs to the right episode.
//!
//! The decoder needs no C library. Values are decompressed, which verifies their checksums, but not
//! interpreted.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use hdf5_reader::attribute_api::Attribute;
use hdf5_reader::dataset::Dataset;
use hdf5_reader::error::Error;
use hdf5_reader::group::Group;
use hdf5_reader::storage::FileStorage;
use hdf5_reader::{Hdf5File, OpenOptions};
use jobs::files;
use report::verify::{ExpectedDemo, HeldDemo};

use crate::tools::verify::demos::Checked;

/// Largest chunk in bytes; an image of 4096 × 4096 has 48 MiB.
const MAX_CHUNK_BYTES: usize = 256 << 20;

/// Largest dataset without chunks, in bytes; a thousand steps with ten images of 512 × 512 have 7
/// GiB, but are chunked.
const MAX_READ_BYTES: usize = 4 << 30;

/// Deepest nesting of groups in one demonstration; robomimic and Isaac Lab have three levels.
const DEPTH: usize = 16;

/// Most bytes of values per byte in the file; deflate reaches 1032.
const MOST_COMPRESSED: u64 = 2000;

/// Bytes of values that are allowed for a file of any size.
const ROOM: u64 = 1 << 30;

/// Cost of opening a group or dataset, in bytes of values: reading its header takes about as long.
const OBJECT: u64 = 16 << 10;

/// Cost of a chunk besides its values, in bytes.
const CHUNK: u64 = 1 << 10;

/// The group with the demonstrations.
const DATA: &str = "/data";

/// Compares a file with what the journal says about it. With `values`, reads all of its values.
pub(super) fn check(path: &Path, demos: &[ExpectedDemo], values: bool) -> Checked {
    let mut checked = Checked::default();
    if let Err(err) = look(path, demos, values, &mut checked) {
        let wrong = &mut checked.findings.wrong;
        wrong.push(format!("cannot be read: {err}"));
    }
    checked
}

fn look(
    path: &Path,
    demos: &[ExpectedDemo],
    values: bool,
    checked: &mut Checked,
) -> Result<(), Error> {
    // Reads at positions: a memory map would end the process if the file were truncated meanwhile.
    let mut budget = DatasetBudget::of(&files::open(path)?.metadata()?, values);
    let options = OpenOptions::default()
        .with_max_chunk_bytes(MAX_CHUNK_BYTES)
        .with_max_read_bytes(MAX_READ_BYTES);
    let file = Hdf5File::from_storage_with_options(Arc::new(FileStorage::open(path)?), options)?;
    let (end, len) = (file.superblock().eof_address, file.storage().len());
    if end > len {
        let cut = format!("is cut off: it has {len} bytes of {end}");
        checked.findings.wrong.push(cut);
    }
    let groups = file.group(DATA)?.groups()?.into_iter();
    let there = groups.map(|group| (group.name().to_owned(), group));
    let reasons = |demo: &ExpectedDemo, group: Option<Group>| match group {
        None => vec!["missing".to_owned()],
        Some(group) => reasons(&group, demo, &mut budget),
    };
    checked.compare(demos, there.collect(), reasons, episode_of);
    Ok(())
}

/// Returns what is wrong with one demonstration.
fn reasons(group: &Group, demo: &ExpectedDemo, budget: &mut DatasetBudget) -> Vec<String> {
    let attributes = match group.attributes() {
        Ok(attributes) => attributes,
        Err(err) => return vec![format!("not whole: {err}")],
    };
    let mut reasons = Vec::new();
    let mut number = |name: &str| match number(&attributes, name) {
        Ok(number) => Some(number),
        Err(err) => {
            reasons.push(format!("there without a readable {name} ({err})"));
            None
        }
    };
    let held = HeldDemo {
        length: number("num_samples"),
        seed: number("seed"),
        // Other programs that write this format do not number episodes.
        episode: self::number(&attributes, "episode").ok(),
        return_: rewards(group, budget),
        success: flag(&attributes, "success"),
    };
    reasons.extend(demo.contradictions(&held));
    if let Err(err) = budget.read(group, DEPTH) {
        reasons.push(format!("not whole: {err}"));
    }
    reasons
}

fn episode_of(group: &Group) -> Option<u64> {
    let number = number(&group.attributes().ok()?, "episode").ok()?;
    Some(number as u64)
}

fn number(attributes: &[Attribute], name: &str) -> Result<f64, Error> {
    let found = attributes.iter().find(|attribute| attribute.name == name);
    found
        .ok_or_else(|| Error::AttributeNotFound(name.to_owned()))?
        .read_as_f64()
}

/// Returns an attribute that h5py writes for a `bool`: an enumeration, 0 for `FALSE`.
fn flag(attributes: &[Attribute], name: &str) -> Option<bool> {
    let found = attributes.iter().find(|attribute| attribute.name == name)?;
    let bytes = &found.raw_data;
    (!bytes.is_empty()).then(|| bytes.iter().any(|byte| *byte != 0))
}

/// Returns the sum of rewards; `None` if the demonstration has none that can be read, which
/// [`DatasetBudget::read`] tells.
fn rewards(group: &Group, budget: &mut DatasetBudget) -> Option<f64> {
    let rewards = group.dataset("rewards").ok()?;
    let steps = rewards.num_elements().ok()?;
    budget
        .take(steps.saturating_mul(size_of::<f32>() as u64))
        .ok()?;
    let rewards = rewards.read_array::<f32>().ok()?;
    Some(rewards.iter().copied().map(f64::from).sum())
}

/// Limits the bytes of a file that are read. A malicious file can have groups that contain
/// themselves, and huge dimensions that take no space in it.
struct DatasetBudget {
    values: bool,
    /// Remaining bytes, in the size that values have in memory.
    bytes: u64,
}

impl DatasetBudget {
    /// Returns a budget proportional to the space that the file takes on disk.
    fn of(file: &Metadata, values: bool) -> Self {
        // Some user-space file systems do not report blocks.
        let taken = if file.blocks() > 0 {
            file.blocks().saturating_mul(512)
        } else {
            file.len()
        };
        Self {
            values,
            bytes: taken.saturating_mul(MOST_COMPRESSED).saturating_add(ROOM),
        }
    }

    fn read(&mut self, group: &Group, depth: usize) -> Result<(), Error> {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| too_much("its groups lie too deep within each other"))?;
        self.take(OBJECT)?;
        let (groups, datasets) = group.members()?;
        for dataset in &datasets {
            self.take(OBJECT)?;
            if self.values {
                self.values(dataset)?;
            }
        }
        groups.iter().try_for_each(|group| self.read(group, depth))
    }

    fn values(&mut self, dataset: &Dataset) -> Result<(), Error> {
        let Some(chunk) = dataset.chunks() else {
            self.take(dataset.raw_byte_len()? as u64)?;
            return dataset.read_raw_bytes().map(drop);
        };
        let chunk: Vec<u64> = chunk
            .into_iter()
            .map(|size| u64::from(size.max(1)))
            .collect();
        let chunks = dataset
            .shape()
            .iter()
            .zip(&chunk)
            .map(|(size, chunk)| size.div_ceil(*chunk));
        let elements = chunk
            .iter()
            .take(dataset.ndim())
            .copied()
            .fold(1, u64::saturating_mul);
        let bytes = elements
            .saturating_mul(dataset.raw_element_size()? as u64)
            .saturating_add(CHUNK);
        self.take(chunks.fold(bytes, u64::saturating_mul))?;
        dataset.iter_chunks()?.try_for_each(|chunk| chunk.map(drop))
    }

    fn take(&mut self, bytes: u64) -> Result<(), Error> {
        self.bytes = self
            .bytes
            .checked_sub(bytes)
            .ok_or_else(|| too_much("it declares more than it can hold"))?;
        Ok(())
    }
}

fn too_much(what: &str) -> Error {
    Error::InvalidData(what.to_owned())
}
