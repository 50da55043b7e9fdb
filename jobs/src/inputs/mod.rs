//! Inputs of a job: the files that decide its outcomes beside its settings.
//!
//! ```text
//! settings ─► named: YAML, joints, mapping, weights, scripts ─► imports: local modules
//!                                │
//!             small: SHA-256 ◄───┴───► large: size and time, SHA-256 only if they differ
//! ```
//! Paths are found by the kinds of the settings in the row of a policy, and in all texts of the
//! arguments that policies and simulators in Python get.
//!
//! `plan.json` has the inputs of a run as they were when it was begun, each file once. A file that
//! appears later is no input, because a run may write files that its jobs name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::environments::is_python_environment;
use crate::files::{self, MAX_DOCUMENT_BYTES, modified};
use crate::hub;
use crate::inputs::imports::{SearchPath, files_below, folders};
use crate::job::Job;
use crate::layout::{RunFolder, write_whole};
use crate::policies::{self, PolicyType};
use crate::settings::PathTo;
use crate::settings::kinds::{OneOrMany, PyName};
use crate::sha256::{self, Sum};
use crate::time;
use crate::tree;

mod imports;
pub mod versions;

/// Largest file whose contents are read at every start: a millisecond.
const SMALL_BYTES: u64 = 1 << 20;

/// Ends of the names of files that only grow: logs and tables. A log may have none.
const LOGS: [&str; 5] = ["log", "out", "txt", "csv", "jsonl"];

/// Digits that are shown of a sum.
const DIGITS: usize = 12;

/// Most files of a folder. One with more is no checkpoint and no package, and does not count.
const MOST_FILES: usize = 10_000;

/// Longest text that may be a path.
const LONGEST_PATH: usize = 4096;

/// The setting of a Python process with its environment variables.
const VARIABLES: &str = "env";

/// Nanoseconds of a second.
const NANOSECONDS: i128 = 1_000_000_000;

/// An input as it was at a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Size in bytes.
    pub bytes: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified: i128,
    /// SHA-256 of the contents; `None` for a large file that has not been read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl InputFile {
    /// Looks at a file, and reads it if it is small. Returns `None` if there is no such file.
    pub fn at(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok().filter(|one| one.is_file())?;
        let is_small = metadata.len() <= SMALL_BYTES;
        let sum = || sha256::of_reader(files::open(path).ok()?).ok();
        Some(Self {
            bytes: metadata.len(),
            modified: modified(&metadata),
            sha256: if is_small { Some(sum()?.sha256) } else { None },
        })
    }

    /// Returns whether both have the same contents, as far as they are known.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.bytes, &self.sha256) == (other.bytes, &other.sha256)
    }
}

/// Formats an input by its contents, or by size and time if nobody has read it.
impl fmt::Display for InputFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(sum) = &self.sha256 {
            return write!(f, "SHA-256 {}…", sum.get(..DIGITS).unwrap_or(sum));
        }
        let seconds = u64::try_from(self.modified / NANOSECONDS).unwrap_or_default();
        write!(f, "{} bytes of {}", self.bytes, time::local(seconds))
    }
}

/// Who looks at the inputs of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The only launcher. It finds out whether a large file with another time is the same, and
    /// keeps the plan up to date.
    Alone,
    /// One of several launchers, or rank 0 of a launch without one. It does the same for a run that
    /// was begun before, and leaves the plan as it is, because others read it meanwhile.
    OneOfSeveral,
    /// A rank, whose node may have copies with other times.
    Rank,
}

/// Looks up an environment variable.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The inputs of jobs at a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Each file once, by its path as settings and imports name it.
    pub files: BTreeMap<String, InputFile>,
    of_jobs: BTreeMap<String, Arc<BTreeSet<String>>>,
    /// Files that only arguments of environments name.
    arguments: BTreeSet<String>,
}

impl Inputs {
    /// Looks at the inputs of `jobs`. What is in `output` is left out: the run itself writes it.
    pub fn of(jobs: &[Job], output: &Path, variable: Lookup<'_>) -> Self {
        let mut inputs = Self::read(jobs, output, variable);
        let programs = inputs.files.clone();
        for job in jobs {
            let found = in_arguments(job);
            if !found.is_empty() {
                inputs.add(job, found, output);
            }
        }
        let names = inputs
            .files
            .keys()
            .filter(|name| !programs.contains_key(*name));
        inputs.arguments = names.cloned().collect();
        inputs
    }

    /// Looks at the inputs that jobs only read: all but the files in arguments of environments.
    fn read(jobs: &[Job], output: &Path, variable: Lookup<'_>) -> Self {
        let mut inputs = Self::default();
        // Hundreds of jobs may have one policy.
        let mut known: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
        for job in jobs {
            let policy = json!([job.policy_type, job.policy_config]).to_string();
            let of_policy = || of_policy(job, variable);
            let mut paths = known.entry(policy).or_insert_with(of_policy).clone();
            let environment = json!([job.environment, job.env_args]).to_string();
            let of_environment = || of_environment(job, variable);
            let of_environment = known.entry(environment).or_insert_with(of_environment);
            paths.extend(of_environment.iter().cloned());
            inputs.add(job, paths, output);
        }
        inputs
    }

    fn add(&mut self, job: &Job, paths: BTreeSet<PathBuf>, output: &Path) {
        let output = output.canonicalize().ok();
        let names = Arc::make_mut(self.of_jobs.entry(job.name.clone()).or_default());
        for path in paths {
            let name = path.to_string_lossy().into_owned();
            if !self.files.contains_key(&name) && !is_within(&path, output.as_deref()) {
                let file = InputFile::at(&path);
                self.files.extend(file.map(|file| (name.clone(), file)));
            }
            names.insert(name);
        }
    }

    /// Returns the paths of the inputs of a job.
    pub fn of_job(&self, job: &str) -> impl Iterator<Item = &str> {
        let names = self.of_jobs.get(job);
        let names = names.into_iter().flat_map(|names| names.iter());
        names.map(String::as_str)
    }

    /// Returns the inputs of the jobs, with those in `before` for files that are the same, as far as
    /// that takes more than a comparison of sums. `sums` has the sums of the files that the run has
    /// used.
    pub fn since(
        &self,
        before: &BTreeMap<String, InputFile>,
        asker: Asker,
        sums: &SumCache,
    ) -> BTreeMap<String, InputFile> {
        let settled = |(name, now): (&String, &InputFile)| {
            let now = match before.get(name) {
                Some(then) if self.arguments.contains(name) && is_log(name, then, now) => {
                    then.clone()
                }
                Some(then) if now.sha256.is_none() => since(name, then, now, asker, sums),
                _ => now.clone(),
            };
            (name.clone(), now)
        };
        self.files.iter().map(settled).collect()
    }
}

fn is_within(path: &Path, output: Option<&Path>) -> bool {
    let Some(output) = output else { return false };
    path.canonicalize()
        .is_ok_and(|path| path.starts_with(output))
}

/// Returns the first file that a job reads, with both contents, that is not what it was when its run
/// was begun. A large file of another time is read, if its sum is known.
pub fn changed(
    job: &Job,
    before: &BTreeMap<String, InputFile>,
    folder: &RunFolder,
    variable: Lookup<'_>,
) -> Option<String> {
    let now = Inputs::read(std::slice::from_ref(job), folder.root(), variable);
    let sums = SumCache::open(&folder.policy_files());
    now.files.iter().find_map(|(name, now)| {
        let then = before.get(name)?;
        let is_same = match now.sha256 {
            Some(_) => then.is_same(now),
            // The copy of another node may have another time, and nobody has read the first one.
            None if known_sum(name, then, &sums).is_none() => then.bytes == now.bytes,
            None => then.is_same(&since(name, then, now, Asker::Alone, &sums)),
        };
        (!is_same).then(|| format!("`{name}`, {then} → {now}"))
    })
}

/// Returns whether a file has only grown, as a log does that a simulator goes on with.
fn is_log(name: &str, then: &InputFile, now: &InputFile) -> bool {
    let end = Path::new(name).extension();
    let end = end.map(|end| end.to_string_lossy().into_owned());
    if now.bytes <= then.bytes || end.is_some_and(|end| !LOGS.contains(&end.as_str())) {
        return false;
    }
    let beginning = || sha256::of_reader(files::open(Path::new(name)).ok()?.take(then.bytes)).ok();
    then.sha256
        .as_ref()
        .is_none_or(|sum| beginning().is_some_and(|found| found.sha256 == *sum))
}

fn known_sum<'a>(name: &str, then: &'a InputFile, sums: &'a SumCache) -> Option<&'a str> {
    let own = then.sha256.as_deref();
    own.or_else(|| sums.sum(Path::new(name), then))
}

/// Returns a large file as it is now, with its sum only if its contents are not what they were, or
/// nobody knows what they were.
fn since(
    name: &str,
    then: &InputFile,
    now: &InputFile,
    asker: Asker,
    sums: &SumCache,
) -> InputFile {
    if then.bytes != now.bytes {
        return now.clone();
    }
    if then.modified == now.modified || asker == Asker::Rank {
        return then.clone();
    }
    let path = Path::new(name);
    let known = known_sum(name, then, sums);
    let found = sums.sum(path, now).map(str::to_owned);
    let read = || Some(sha256::of_reader(files::open(path).ok()?).ok()?.sha256);
    let found = found.or_else(read);
    let is_same = known.is_some() && known == found.as_deref();
    InputFile {
        sha256: if is_same { then.sha256.clone() } else { found },
        ..now.clone()
    }
}

/// The sums of the files that the policies of a run are made of: valid as long as size and time stay
/// the same. Rank 0 computes them beside the evaluation.
#[derive(Clone, Debug, Default)]
pub struct SumCache {
    path: PathBuf,
    entries: BTreeMap<String, InputFile>,
}

impl SumCache {
    /// Opens a cache; a missing or unreadable file gives an empty one.
    pub fn open(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            entries: files::read_json(path, MAX_DOCUMENT_BYTES).unwrap_or_default(),
        }
    }

    /// Returns the sum of a file as it was when it had this size and time.
    pub fn sum(&self, path: &Path, file: &InputFile) -> Option<&str> {
        let entry = self.entries.get(&name(path).ok()?)?;
        let is_same = (entry.bytes, entry.modified) == (file.bytes, file.modified);
        entry.sha256.as_deref().filter(|_| is_same)
    }

    /// Returns the sum of a file. If it is not known, `hash` computes it, and it is remembered.
    ///
    /// # Errors
    /// Returns the errors of the file system and of `hash`.
    pub fn file(
        &mut self,
        path: &Path,
        hash: impl FnOnce(&Path) -> io::Result<Sum>,
    ) -> io::Result<Sum> {
        let found = fs::metadata(path)?;
        let mut entry = InputFile {
            bytes: found.len(),
            modified: modified(&found),
            sha256: None,
        };
        if let Some(sum) = self.sum(path, &entry) {
            return Ok(Sum {
                sha256: sum.to_owned(),
                bytes: entry.bytes,
            });
        }
        let sum = hash(path)?;
        entry.bytes = sum.bytes;
        entry.sha256 = Some(sum.sha256.clone());
        self.entries.insert(name(path)?, entry);
        // Without the file, what has been read is read again at the next start.
        let text = serde_json::to_vec(&self.entries).map_err(io::Error::from);
        let _ = text.and_then(|text| write_whole(&self.path, &text));
        Ok(sum)
    }
}

fn name(path: &Path) -> io::Result<String> {
    Ok(path.canonicalize()?.display().to_string())
}

/// Returns the files that decide what the policy of a job does.
fn of_policy(job: &Job, variable: Lookup<'_>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let Some(policy) = PolicyType::of(&job.policy_type) else {
        return found;
    };
    let given = policies::given(policy, &job.policy_config);
    let settings = policy.row().settings().iter();
    for setting in settings.filter(|setting| !setting.is_of_place && setting.name != VARIABLES) {
        match (given.get(&setting.name), setting.path) {
            (Some(Value::String(_)), Some(PathTo::Interpreter)) | (None, _) => {}
            (Some(Value::String(path)), Some(to)) => {
                let path = Path::new(path);
                let of_model = hub::checkpoint(path, |name| variable(name).map(Into::into));
                let of_model = of_model.ok().filter(|_| to == PathTo::Checkpoint);
                add(&mut found, of_model.as_deref().unwrap_or(path));
            }
            (Some(Value::String(name)), None) if setting.is_callable() => {
                let variables = job.policy_config.get(VARIABLES);
                found.extend(of_factory(name, &[], variables, variable));
            }
            (Some(map @ Value::Object(_)), _) if !setting.is_unused => in_texts(&mut found, map),
            _ => {}
        }
    }
    found
}

/// Returns the programs of the environment of a job, and its mapping.
fn of_environment(job: &Job, variable: Lookup<'_>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    if !is_python_environment(&job.environment) {
        return found;
    }
    let args = &job.env_args;
    let given = |field: &str| {
        args.get(field)
            .and_then(|it| OneOrMany::deserialize(it).ok())
    };
    let modules = ["import", "entry_point"].map(|field| given(field).unwrap_or_default().0);
    let variables = args.get(VARIABLES);
    found.extend(of_factory(
        &job.environment,
        &modules.concat(),
        variables,
        variable,
    ));
    if let Some(mapping) = args.get("mapping").and_then(Value::as_str) {
        add(&mut found, Path::new(mapping));
    }
    found
}

/// Returns the files that the arguments of the environment of a job name. It may write some of
/// them.
fn in_arguments(job: &Job) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    if !is_python_environment(&job.environment) {
        return found;
    }
    if let Some(kwargs) = job.env_args.get("env_kwargs") {
        in_texts(&mut found, kwargs);
    }
    in_texts(&mut found, &Value::Object(job.variations.clone()));
    found
}

/// Returns the files of a Python callable, `file.py:name`, `package.module:name`,
/// `package.module.name` or `gym:package.module:id`, and those of further modules.
fn of_factory(
    name: &str,
    modules: &[String],
    variables: Option<&Value>,
    variable: Lookup<'_>,
) -> BTreeSet<PathBuf> {
    let callable = PyName::of(name);
    let script = callable.as_ref().and_then(PyName::file);
    let path = SearchPath::new(folders(name, variables, variable));
    let mut found = script.map_or_else(BTreeSet::new, |script| path.script(script));
    let module = match (script, name.strip_prefix("gym:")) {
        (Some(_), _) => None,
        (None, Some(id)) => id.rsplit_once(':').map(|(module, _)| module),
        (None, None) => name
            .rsplit_once(':')
            .or_else(|| name.rsplit_once('.'))
            .map(|(module, _)| module),
    };
    let modules = modules.iter().map(String::as_str).chain(module);
    found.extend(modules.flat_map(|module| path.module(module)));
    found
}

/// Adds the files and folders that exist and that any text in a value names. A word that is also
/// the name of a folder is no path: that of a folder has a `/`.
fn in_texts(found: &mut BTreeSet<PathBuf>, value: &Value) {
    tree::each_text(value, &mut |text| {
        let may_be_path = text.len() <= LONGEST_PATH && !text.contains(['\n', '\0']);
        let path = Path::new(text);
        if may_be_path && (text.contains('/') || path.is_file()) {
            add(found, path);
        }
    });
}

/// Adds a file, or the files of a folder.
fn add(found: &mut BTreeSet<PathBuf>, path: &Path) {
    if path.is_dir() {
        let files = files_below(path, MOST_FILES, |_| true);
        if files.len() <= MOST_FILES {
            found.extend(files);
        }
    } else if path.is_file() {
        found.insert(path.to_owned());
    }
}

#[cfg(test)]
mod tests;
