//! Adds up jobs as a table of tasks by policies.
//!
//! A task is an environment. If jobs of one environment have different instructions (LIBERO's tasks
//! come from one factory), each instruction is a task. A policy is a type, and a path if jobs of
//! that type have several, so two checkpoints are never added up. Variants of a job are left out
//! beside it: they are other tasks. Rows and columns beyond the limits are added up in a
//! last one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::page::parts::name;
use crate::{JobReport, Rates, Report};

/// Maximum number of rows shown one by one.
const MOST_TASKS: usize = 60;

/// Maximum number of columns shown one by one.
const MOST_POLICIES: usize = 8;

/// The episodes of a task under a policy.
#[derive(Clone, Debug, Default)]
pub(super) struct GridCell {
    /// The counts; rates and means are those of no job.
    pub(super) rates: Rates,
    /// Number of jobs that were added up.
    pub(super) jobs: u64,
}

impl GridCell {
    fn add(&mut self, rates: &Rates) {
        let sum = &self.rates;
        let expected = match self.jobs {
            0 => rates.expected,
            _ => sum.expected.zip(rates.expected).map(|(a, b)| a + b),
        };
        self.rates = Rates {
            expected,
            episodes: sum.episodes + rates.episodes,
            scored: sum.scored + rates.scored,
            successes: sum.successes + rates.successes,
            errors: sum.errors + rates.errors,
            ..Rates::default()
        };
        self.jobs += 1;
    }
}

/// The heading of a row or column.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GridLabel {
    /// Environment or policy type, as short as possible.
    pub(super) name: String,
    /// What distinguishes rows or columns of the same name: the instruction of a task, the path of
    /// a policy.
    pub(super) detail: Option<String>,
}

/// The table of tasks by policies.
#[derive(Debug, Default)]
pub(super) struct TaskGrid {
    /// Rows, in the order of the jobs file.
    pub(super) tasks: Vec<GridLabel>,
    /// Columns, in the order of the jobs file.
    pub(super) policies: Vec<GridLabel>,
    /// Cells with at least one job, by row and column.
    cells: BTreeMap<(usize, usize), GridCell>,
    /// Number of tasks added up in the last row.
    pub(super) other_tasks: usize,
    /// Number of policies added up in the last column.
    pub(super) other_policies: usize,
}

impl TaskGrid {
    pub(super) fn new(report: &Report) -> Self {
        let (tasks, policies) = (
            LabelNames::tasks(report),
            LabelNames::new(report.per_job.iter().map(policy)),
        );
        let mut cells: BTreeMap<(usize, usize), GridCell> = BTreeMap::new();
        let (mut rows, mut columns) = (Places::default(), Places::default());
        for job in report.jobs_under_control() {
            let row = rows.place(tasks.key(task(job), UNTOLD)).min(MOST_TASKS);
            let column = columns
                .place(policies.key(policy(job), "not started"))
                .min(MOST_POLICIES);
            cells.entry((row, column)).or_default().add(&job.rates);
        }
        let (tasks, other_tasks) = rows.labels(MOST_TASKS, "tasks", &tasks);
        let (policies, other_policies) = columns.labels(MOST_POLICIES, "policies", &policies);
        Self {
            tasks,
            policies,
            cells,
            other_tasks,
            other_policies,
        }
    }

    /// Returns the cells that have jobs.
    pub(super) fn cells(&self) -> impl Iterator<Item = &GridCell> {
        self.cells.values()
    }

    /// Returns a cell; `None` if it has no job.
    pub(super) fn cell(&self, task: usize, policy: usize) -> Option<&GridCell> {
        self.cells.get(&(task, policy))
    }
}

fn task(job: &JobReport) -> (&str, Option<&str>) {
    (&job.environment, job.instruction.as_deref())
}

/// Returns policy type and path. The path is the one that the rank reported; a job that has not
/// begun has none.
fn policy(job: &JobReport) -> (&str, Option<&str>) {
    (
        &job.policy_type,
        job.settings.get("policy_path").and_then(Value::as_str),
    )
}

/// Stands for the instruction of a job where it is unknown but distinguishes tasks.
const UNTOLD: &str = "unknown instruction";

/// How rows or columns are named and distinguished.
pub(super) struct LabelNames<'a> {
    /// Names with several details.
    several: BTreeSet<&'a str>,
    /// Short names that several full names share.
    ambiguous: BTreeSet<&'a str>,
}

/// Name, and detail if it distinguishes entries of the same name.
type LabelKey<'a> = (&'a str, Option<&'a str>);

impl<'a> LabelNames<'a> {
    /// Collects the names of the tasks of all jobs.
    pub(super) fn tasks(report: &'a Report) -> Self {
        Self::new(report.per_job.iter().map(task))
    }

    /// Returns the heading of a job's task.
    pub(super) fn task(&self, job: &JobReport) -> GridLabel {
        self.label(self.key(task(job), UNTOLD))
    }

    fn new(keys: impl Iterator<Item = LabelKey<'a>>) -> Self {
        let mut details: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        keys.for_each(|(name, detail)| details.entry(name).or_default().extend(detail));
        let several = details
            .iter()
            .filter(|(_, details)| details.len() > 1)
            .map(|(name, _)| *name)
            .collect();
        let mut seen = BTreeSet::new();
        let ambiguous = details
            .keys()
            .map(|long| name(long))
            .filter(|short| !seen.insert(*short))
            .collect();
        Self { several, ambiguous }
    }

    fn key<'b>(&self, (name, detail): LabelKey<'b>, unknown: &'static str) -> LabelKey<'b> {
        (
            name,
            self.several
                .contains(name)
                .then(|| detail.unwrap_or(unknown)),
        )
    }

    fn label(&self, (long, detail): LabelKey) -> GridLabel {
        let short = name(long);
        let name = if self.ambiguous.contains(short) {
            long
        } else {
            short
        };
        GridLabel {
            name: name.to_owned(),
            detail: detail.map(str::to_owned),
        }
    }
}

/// Rows or columns in order of first occurrence.
#[derive(Default)]
struct Places<'a> {
    by_key: BTreeMap<LabelKey<'a>, usize>,
    keys: Vec<LabelKey<'a>>,
}

impl<'a> Places<'a> {
    fn place(&mut self, key: LabelKey<'a>) -> usize {
        *self.by_key.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() - 1
        })
    }

    /// Returns the headings of the first entries, followed by one for the number of all others.
    fn labels(&self, most: usize, what: &str, names: &LabelNames) -> (Vec<GridLabel>, usize) {
        let mut labels: Vec<_> = self
            .keys
            .iter()
            .take(most)
            .map(|key| names.label(*key))
            .collect();
        let others = self.keys.len() - labels.len();
        if others > 0 {
            labels.push(GridLabel {
                name: format!("{others} other {what}"),
                detail: None,
            });
        }
        (labels, others)
    }
}
