//! Builds the report of a run by merging its plan and its journals. The result depends on nothing
//! else but a small [`Context`].
//!
//! ```text
//! journals (files, bytes) ─► merged ─► sections ─► schema ─► notes ─► output, page, tables
//!                              ├─► merge, verify                 └─► compare
//!                              ├─► certificate
//!                              └─► live ─► page of a run under way, `rrun top`
//! ```
//! A report begins with coverage: which episodes were expected, which were found, and which are
//! missing or duplicated. An error (a crash of the simulator) is distinct from a failure of the
//! policy, and both rates are given: `success_rate` counts an errored episode as not solved,
//! `completion_only_rate` leaves it out.
//!
//! Memory: 80 bytes for each episode, plus the report itself; journals are read in pieces.

#![forbid(unsafe_code)]

use std::hash::RandomState;
use std::io;
use std::time::SystemTime;

use indexmap::{IndexMap, IndexSet};
use jobs::files::{self, MAX_DOCUMENT_BYTES};
use jobs::job::{Job, Status};
use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::time::rfc3339;

use crate::sections::rates::{JobEpisodes, Policies, groups, mean_rate};
use crate::sections::{coverage, latency, left_out, per_job, run, variations};

pub mod certificate;
pub mod compare;
pub mod curve;
mod journals;
pub mod live;
pub mod merge;
mod merged;
mod notes;
mod output;
pub mod page;
mod schema;
mod sections;
pub mod stats;
pub mod tables;
pub mod verify;

pub use journals::Journals;
pub use merged::{Damage, Merged};
pub use output::{write, write_merged};
pub use schema::*;

/// A map in the order in which its keys were first put in.
type OrderedMap<K, V> = IndexMap<K, V, RandomState>;

/// A set in the order in which its values were first put in.
type OrderedSet<T> = IndexSet<T, RandomState>;

/// The `schema` field of every `report.json` that this version writes.
const SCHEMA: &str = "rrun/report/1";

/// What the report has that is neither in the plan nor in the journals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Command line of the run.
    pub argv: Vec<String>,
    /// How the ranks' lines were gathered: `single`, `store`, `nccl`, `journals` or `merge`.
    pub route: String,
    /// Ranks that did not deliver their lines.
    pub missing_ranks: Vec<usize>,
    /// Why the run ended early; `None` if it did not.
    pub stopped: Option<String>,
    /// The last commands of a user on the page of a run. They count if they are for its last launch.
    pub commands: Option<Commands>,
    /// Whether no launch goes on with the run.
    pub is_over: bool,
    /// When the report is made, RFC 3339 in UTC.
    pub created: String,
}

impl Context {
    /// Returns that of a report which this process makes now, of a run that is over.
    pub fn now() -> Self {
        Self {
            argv: std::env::args().collect(),
            route: "journals".to_owned(),
            is_over: true,
            created: rfc3339(SystemTime::now()),
            ..Self::default()
        }
    }
}

impl Report {
    /// Builds the report of merged journals.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the name of the journal.
    pub fn of(merged: &Merged, mut context: Context) -> io::Result<Self> {
        let plan = &merged.plan;
        let policies = Policies::of(merged);
        let jobs = JobEpisodes::of(merged, &policies);
        let per_job = jobs.iter().map(|job| per_job::job(merged, job));
        let mut per_job = per_job.collect::<io::Result<Vec<_>>>()?;
        left_out::name(merged, &mut context, &mut per_job);
        let controls = || jobs.iter().filter(|job| job.is_control);
        let mut report = Self {
            schema: SCHEMA.to_owned(),
            run: run::run(merged, context),
            config: run::config(merged, &per_job),
            decision: merged.decision().cloned(),
            per_policy: policies.rates(&jobs),
            overall: Rates::of(&jobs),
            controls: Rates::of(controls()),
            mean_task_success_rate: mean_rate(controls()),
            per_group: groups(&jobs),
            variations: variations::variations(merged, &policies),
            per_latency: latency::series(&plan.jobs, &per_job, plan.seed),
            per_rank: run::ranks(merged),
            per_job,
            ..Self::default()
        };
        coverage::fill(merged, &mut report)?;
        // A job whose status in the file says that it is not to run is not missing.
        let incomplete = |(job, report): (&Job, &JobReport)| {
            job.status == Status::Pending && report.status != Status::Completed
        };
        report.partial = report.missing_count > 0
            || !report.run.missing_ranks.is_empty()
            || plan.jobs.iter().zip(&report.per_job).any(incomplete);
        Ok(report)
    }

    /// Reads the report in a run folder; returns `None` if there is none, or if another program
    /// wrote it.
    pub fn read(folder: &RunFolder) -> Option<Self> {
        files::read_json(&folder.report(), MAX_DOCUMENT_BYTES).ok()
    }

    /// Returns whether every episode ran without an error.
    pub fn complete(&self) -> bool {
        !self.partial && self.failures.is_empty()
    }
}

#[cfg(test)]
mod tests;
