//! Checks a dataset file: whether it is readable HDF5, and every demonstration that the journal
//! names exists, is complete and belongs to the right episode. Of datasets in either format, finds
//! what no episode names, because a rank wrote it before it died and did not write its line.
//!
//! The decoder needs no C library. Values are decompressed, which verifies their checksums, but not
//! interpreted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hdf5_reader::attribute_api::Attribute;
use hdf5_reader::dataset::Dataset;
use hdf5_reader::error::Error;
use hdf5_reader::group::Group;
use hdf5_reader::storage::FileStorage;
use hdf5_reader::{Hdf5File, OpenOptions};
use jobs::episode::DemoRef;
use jobs::layout::RunFolder;
use jobs::{count, files, journal};
use report::verify::{ExpectedDemo, Findings, HeldDemo, episodes};

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

/// Number of demonstrations of a dataset that are named.
const NAMED: usize = 5;

/// What was found in a dataset.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Checked {
    pub(super) findings: Findings,
    /// What it holds beside the expected demonstrations.
    pub(super) extra: Vec<ExtraDemo>,
}

impl Checked {
    /// Compares the demonstrations that are `there`, by name, with those that the journal names.
    /// `reasons` says what is wrong with one, and `episode` of which episode one is.
    pub(super) fn compare<T>(
        &mut self,
        demos: &[ExpectedDemo],
        mut there: BTreeMap<String, T>,
        mut reasons: impl FnMut(&ExpectedDemo, Option<T>) -> Vec<String>,
        episode: impl Fn(&T) -> Option<u64>,
    ) {
        // The same problem of several demonstrations is reported in one line.
        let mut wrong: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for demo in demos {
            for reason in reasons(demo, there.remove(&demo.name)) {
                wrong.entry(reason).or_default().push(demo.outcome.episode);
            }
        }
        let told = wrong
            .into_iter()
            .map(|(reason, numbers)| format!("{} {reason}", episodes(numbers)));
        self.findings.wrong.extend(told);
        self.extra
            .extend(there.into_iter().map(|(name, demo)| ExtraDemo {
                episode: episode(&demo),
                name,
            }));
    }
}

/// A demonstration that no episode that counts names.
#[derive(Debug, PartialEq)]
pub(super) struct ExtraDemo {
    /// Its name in the dataset.
    pub(super) name: String,
    /// The episode that it is of, if the dataset says so.
    pub(super) episode: Option<u64>,
}

/// The demonstrations that lines of the journals name, whether they count or not. They are only
/// read if a dataset holds more than it should.
pub(super) struct NamedDemos<'a> {
    folder: &'a RunFolder,
    named: OnceLock<BTreeSet<DemoRef>>,
}

impl<'a> NamedDemos<'a> {
    pub(super) fn of(folder: &'a RunFolder) -> Self {
        let named = OnceLock::new();
        Self { folder, named }
    }

    /// Adds what the dataset `file` holds too much to its findings. A line that does not count may
    /// name it: of an episode that two ranks have run, or that is not in the plan any more.
    pub(super) fn judge(&self, file: &str, checked: Checked) -> io::Result<Findings> {
        let Checked {
            mut findings,
            extra,
        } = checked;
        if extra.is_empty() {
            return Ok(findings);
        }
        let named = self.named()?;
        let is_named = |extra: &ExtraDemo| {
            named.contains(&DemoRef {
                file: file.to_owned(),
                demo: extra.name.clone(),
            })
        };
        let (uncounted, unnamed): (Vec<_>, Vec<_>) = extra.into_iter().partition(is_named);
        for (extra, list, who) in [
            (
                uncounted,
                &mut findings.notes,
                "no episode that counts names",
            ),
            (
                unnamed,
                &mut findings.wrong,
                "no line of the journals names",
            ),
        ] {
            if !extra.is_empty() {
                list.push(format!("also has {}, which {who}", listed(&extra)));
            }
        }
        Ok(findings)
    }

    fn named(&self) -> io::Result<&BTreeSet<DemoRef>> {
        if let Some(named) = self.named.get() {
            return Ok(named);
        }
        let named = journal::demos(&self.folder.journals())?;
        Ok(self.named.get_or_init(|| named))
    }
}

fn listed(extra: &[ExtraDemo]) -> String {
    let text = |extra: &ExtraDemo| match extra.episode {
        Some(episode) => format!("{} (episode {episode})", extra.name),
        None => extra.name.clone(),
    };
    let names: Vec<_> = extra.iter().map(text).collect();
    count::listed(&names, NAMED)
}
