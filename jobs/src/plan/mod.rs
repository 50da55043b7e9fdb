//! The plan of a run, `plan.json`: what the run was asked to do. It decides whether a start may
//! continue the run in a folder or is refused.
//!
//! ```text
//! command line ─ words ─► EvalArgs ─► Setup ─► RunPlan
//!                   ▲ --resume                   │ settle
//!        plan.json ─┴─────────────── difference ─┤ none: the run continues with the new settings
//!                                    (identity)  │ one: refused with its lines
//!                                                └ one, accepted or nothing lost:
//!                                                  supersede ─► superseded/<n>
//! ```
//! A run is defined by what its results depend on: its jobs by name, each with its environment,
//! policy, seed, length and rules, and the contents of the files that these name. The number of
//! ranks and environments, where they run, and what is filmed may change with every start.
//!
//! Another user may have written a plan: jobs and model server must be those of a jobs file before a
//! name becomes a path or a number the bound of a loop, and `--resume` takes over no option but those
//! of `eval`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::assign::Only;
use crate::eval_args::{self, EvalArgs};
use crate::file::{self, JobFile};
use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::inputs::InputFile;
use crate::job::{Job, Length};
use crate::journal::Provenance;
use crate::layout::RunFolder;
use crate::model_server::{self, ModelServer};
use crate::refusal::{Refusal, Refused};
use crate::{policies, secrets, trust};

mod difference;
mod identity;
mod quick;
mod resumed;
mod settle;
mod supersede;

pub use difference::{ComparedJob, Difference, InputsNow};
pub use identity::{FieldChange, Identity, fingerprint, joined as joined_provenance};
pub(crate) use quick::{quick_folder, shortened};
pub use resumed::{Git, Resumed};
pub use supersede::Moving;

/// The `schema` field of every `plan.json` that this version writes.
const SCHEMA: &str = "rrun/plan/4";

fn is_nothing(provenance: &Provenance) -> bool {
    *provenance == Provenance::default()
}

/// The plan of a run: its jobs, its seed and the command line that began it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Schema of the file: `rrun/plan/4`.
    pub schema: String,
    /// Unique id of the run: 128 random bits as hex digits; empty before the plan is written.
    pub id: String,
    /// The jobs file, as the command line named it.
    pub jobs_file: String,
    /// SHA-256 of the contents of the jobs file.
    pub jobs_sha256: String,
    /// Base seed (`--seed`).
    pub seed: u64,
    /// The chosen jobs and episodes of the jobs file (`--only`); `None` means all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Only>,
    /// Whether it is a quick run (`--quick`), whose folder the next one replaces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quick: bool,
    /// Number of ranks when the run was begun. A run can be continued with another number.
    pub world_size: usize,
    /// All jobs that may run, in the order of the file and in its form.
    #[serde(skip_deserializing)]
    pub jobs: Vec<Job>,
    /// What decides the outcomes of the jobs beside their settings: the files that they name and
    /// import, by path, as they were when the run was begun.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, InputFile>,
    /// The inputs of each job at this start; `None` in a process that does not compare them.
    #[serde(skip)]
    pub now: Option<InputsNow>,
    /// The model server that `rrun` keeps running beside the ranks, as the first start had it.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub model_server: Option<ModelServer>,
    /// Options of the command line that began the run, by their long names; the value of a flag is
    /// empty. `--resume` takes them over, except for those that name a place.
    pub options: BTreeMap<String, String>,
    /// Version of `rrun` that began the run.
    pub rrun: String,
    /// State of the folder that the run was begun in, if that folder is under git.
    pub git: Option<Git>,
    /// When the run was begun, RFC 3339 in UTC.
    pub created: String,
    /// Id of the launch that began the run: no journal has older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_by: Option<String>,
    /// Every start after the first one, in order.
    pub resumed_from: Vec<Resumed>,
    /// The runs and jobs whose journal lines count as results of this run.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub provenance: Provenance,
    /// The launch that this start belongs to, which already holds the folder or is about to take
    /// it.
    #[serde(skip)]
    pub launch: Option<String>,
    /// What has changed since the last start, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// What a start that replaced the jobs has still to move; `None` unless it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
}

impl RunPlan {
    /// Builds the plan of a start from its command line and jobs file. `--num-steps` is the length
    /// of the jobs that have no length of their own.
    pub fn new(args: &EvalArgs, file: JobFile, world_size: usize, created: String) -> Self {
        let mut jobs = file.jobs;
        for job in &mut jobs {
            if let (Length::Policy, Some(steps), false) = (
                job.length,
                args.num_steps,
                policies::has_length(&job.policy_type),
            ) {
                job.length = Length::Steps(steps);
            }
        }
        Self {
            schema: SCHEMA.to_owned(),
            jobs_file: file.path.display().to_string(),
            jobs_sha256: file.sha256,
            seed: args.seed,
            only: args.only.clone(),
            quick: args.quick,
            world_size,
            jobs,
            model_server: file.model_server,
            options: args.given.clone(),
            rrun: env!("CARGO_PKG_VERSION").to_owned(),
            created,
            ..Self::default()
        }
    }

    /// Prepares the folder of a run that this command line may begin, before [`RunPlan::settle`].
    /// If the jobs refer to a secret, the folder is created so that no other user can read it. It
    /// also records that this user has begun a run with the programs and files that the jobs name.
    ///
    /// # Errors
    /// Returns the file system's errors for the folder.
    pub fn prepare(&self, folder: &RunFolder) -> Result<(), Refusal> {
        if secrets::is_referred_to(&self.jobs, self.model_server.as_ref()) {
            folder.make_private().map_err(unusable(folder))?;
        }
        let uses = trust::uses(&self.jobs, self.model_server.as_ref());
        // Without a writable home directory nothing can be recorded; `--resume` then asks the user.
        let _ = trust::remember(&uses, &|name| std::env::var(name).ok());
        Ok(())
    }

    /// Reads the plan of a run folder.
    ///
    /// # Errors
    /// Refuses a folder without a plan, and a plan that is damaged, of another version, or has values
    /// that no jobs file may have.
    pub fn read(folder: &RunFolder) -> Result<Self, Refusal> {
        let path = folder.plan();
        let unreadable = |err| Refusal::at(format_args!("cannot read `{}`", path.display()), err);
        let text = files::read(&path, MAX_DOCUMENT_BYTES).map_err(unreadable)?;
        Self::parse(folder, &text)
    }

    /// Parses the text of a run folder's plan, and checks it against the rules of a jobs file.
    ///
    /// # Errors
    /// Returns the errors of [`RunPlan::read`], without those of the file system.
    pub fn parse(folder: &RunFolder, text: &[u8]) -> Result<Self, Refusal> {
        let path = folder.plan();
        let path = path.display();
        let damaged = |err| Refusal::at(format_args!("`{path}` is not a plan of rrun"), err);
        let written: Value = serde_json::from_slice(text).map_err(damaged)?;
        // Only the text has the line of a damage.
        let mut plan = Self::deserialize(&written)
            .or_else(|_| serde_json::from_slice(text))
            .map_err(damaged)?;
        if plan.schema != SCHEMA {
            return Err(Refusal::new(format_args!(
                "run folder `{}` has a plan of schema `{}`, expected `{SCHEMA}`; choose another \
                 --output",
                folder.root().display(),
                plan.schema
            )));
        }
        complete(&mut plan, &written)
            .map_err(|err| Refusal::at(format_args!("`{path}` cannot be used"), err))?;
        Ok(plan)
    }
}

/// Returns a function that adds the folder to an error of the file system.
fn unusable(folder: &RunFolder) -> impl Fn(io::Error) -> Refusal + '_ {
    |err| {
        let folder = folder.root().display();
        Refusal::at(format_args!("cannot use run folder `{folder}`"), err)
    }
}

/// Upper limit for the episodes of all jobs together. Ten thousand jobs of ten thousand episodes
/// each fit; counts that take more than a minute to iterate over do not.
const MAX_EPISODES_OF_ALL: u64 = 1 << 30;

/// Upper limit for the ranks of a run, far beyond any machine.
const MAX_WORLD_SIZE: u64 = 1 << 20;

/// Completes a plan by its jobs and its model server, which are those of a jobs file; a job may also
/// have the episodes of `--only`. `written` is the JSON of the plan.
///
/// # Errors
/// Refuses the first field whose value `rrun` would never have written.
fn complete(plan: &mut RunPlan, written: &Value) -> Result<(), Refusal> {
    at_most("world_size", plan.world_size as u64, MAX_WORLD_SIZE)?;
    let jobs = &written["jobs"];
    let no_list = || Refusal::found("field jobs", jobs, "expected a list of jobs");
    let entries = jobs.as_array().ok_or_else(no_list)?;
    plan.jobs = file::jobs(entries)?;
    if plan.jobs.len() != entries.len() {
        return Err(Refusal::at(
            "field jobs",
            "variants are not written as jobs",
        ));
    }
    let episodes = plan.jobs.iter().filter_map(Job::episodes);
    at_most("jobs: episodes in all", episodes.sum(), MAX_EPISODES_OF_ALL)?;
    plan.model_server = model_server::read(&written[model_server::FIELD])?;
    for name in plan.moving.iter().flat_map(|moving| &moving.jobs) {
        file::check_name(name).map_err(|err| Refusal::at("field moving.jobs", err))?;
    }
    Ok(())
}

/// Checks the command-line options that `--resume` is to take over.
///
/// # Errors
/// Refuses the first option that no command line can have left in a plan.
fn check_options(plan: &RunPlan) -> Result<(), Refusal> {
    let other = plan
        .options
        .keys()
        .find(|name| !eval_args::is_taken_over(name));
    other.map_or(Ok(()), |name| {
        let place = format!("options field {}", name.escape_debug());
        Err(Refusal::at(
            place,
            "it is not an option that --resume takes over",
        ))
    })
}

fn at_most(field: &str, found: u64, limit: u64) -> Result<(), Refusal> {
    if found <= limit {
        return Ok(());
    }
    let reason = format!("found {found}, expected a whole number up to {limit}");
    Err(Refusal::at(format_args!("field {field}"), reason))
}

impl EvalArgs {
    /// Parses the arguments after `eval`; `--resume` adds the options of its run.
    ///
    /// # Errors
    /// Refuses a folder without a run, and arguments that cannot be parsed.
    pub fn read_words(words: &[OsString]) -> Result<Self, Refused> {
        let args = Self::parse_words(words)?;
        let Some(dir) = &args.resume else {
            return Ok(args);
        };
        let folder = RunFolder::new(dir);
        if !folder.plan().exists() {
            return Err(Refused::Input(Refusal::new(format_args!(
                "`{}` has no plan.json, so there is no run to resume; start one with --jobs and \
                 --output",
                dir.display()
            ))));
        }
        let run = RunPlan::read(&folder)?;
        check_options(&run).map_err(|err| {
            let path = folder.plan();
            Refusal::at(format_args!("`{}` cannot be used", path.display()), err)
        })?;
        let mut options = run.options;
        options.insert("seed".to_owned(), run.seed.to_string());
        let taken_over = options
            .iter()
            .filter(|(name, _)| !args.given.contains_key(*name));
        let word = |(name, value): (&String, &String)| eval_args::word(name, value).into();
        let all: Vec<_> = words.iter().cloned().chain(taken_over.map(word)).collect();
        Ok(Self::parse_words(&all)?)
    }
}

#[cfg(test)]
mod tests;
