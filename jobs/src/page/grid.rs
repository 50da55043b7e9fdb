//! Tasks by policies: what the matrix and the bars show.
//!
//! A task is an environment. Where jobs of one environment were given different instructions (LIBERO's tasks come from
//! one factory), each instruction is a task. A policy is a type, and each path where jobs of a type have several: two
//! checkpoints are never added up. Rows and columns beyond the limits are, in a last one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::link::name;
use crate::report::{JobReport, Rates, Report};
use crate::stats::wilson95;

/// Rows that are shown one by one.
const MOST_TASKS: usize = 60;

/// Columns that are shown one by one.
const MOST_POLICIES: usize = 8;

/// Episodes of a task under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Expected; `None` while a job has not said how many it has.
    pub(super) expected: Option<u64>,
    pub(super) episodes: u64,
    pub(super) scored: u64,
    pub(super) successes: u64,
    pub(super) errors: u64,
    /// Jobs that were added up.
    pub(super) jobs: u64,
}

/// What everything is added to.
const NOTHING: Tally = Tally { expected: Some(0), episodes: 0, scored: 0, successes: 0, errors: 0, jobs: 0 };

impl From<&Rates> for Tally {
    fn from(rates: &Rates) -> Self {
        let Rates { expected, episodes, scored, successes, errors, .. } = *rates;
        Self { expected, episodes, scored, successes, errors, jobs: 1 }
    }
}

impl Tally {
    /// Of all episodes that were found, the share that was solved.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.episodes > 0).then(|| self.successes as f64 / self.episodes as f64)
    }

    /// Of those without an error, the share that was solved; `None` where that is the same.
    pub(super) fn completion_only(&self) -> Option<f64> {
        (self.errors > 0 && self.scored > 0).then(|| self.successes as f64 / self.scored as f64)
    }

    /// Wilson interval of [`Self::rate`] at 95 %.
    pub(super) fn wilson(&self) -> Option<[f64; 2]> {
        wilson95(self.successes, self.episodes)
    }

    /// Wilson interval of [`Self::completion_only`] at 95 %.
    pub(super) fn completion_wilson(&self) -> Option<[f64; 2]> {
        wilson95(self.successes, self.scored).filter(|_| self.errors > 0)
    }

    /// Expected and not found.
    pub(super) fn missing(&self) -> u64 {
        self.expected.map_or(0, |expected| expected.saturating_sub(self.episodes))
    }

    fn and(self, other: Self) -> Self {
        Self {
            expected: self.expected.zip(other.expected).map(|(a, b)| a + b),
            episodes: self.episodes + other.episodes,
            scored: self.scored + other.scored,
            successes: self.successes + other.successes,
            errors: self.errors + other.errors,
            jobs: self.jobs + other.jobs,
        }
    }
}

/// What a row or a column is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Label {
    /// Environment or policy type, as short as it can be.
    pub(super) name: String,
    /// What tells those of one name apart: the instruction of a task, the path of a policy.
    pub(super) detail: Option<String>,
}

/// Tasks by policies.
#[derive(Debug, Default)]
pub(super) struct Grid {
    /// Rows, in the order of the jobs file.
    pub(super) tasks: Vec<Label>,
    /// Columns, in the order of the jobs file.
    pub(super) policies: Vec<Label>,
    /// By row and column, where there is a job.
    cells: BTreeMap<(usize, usize), Tally>,
    /// Rows that the last one adds up.
    pub(super) other_tasks: usize,
    /// Columns that the last one adds up.
    pub(super) other_policies: usize,
}

impl Grid {
    pub(super) fn new(report: &Report) -> Self {
        let (tasks, policies) = (Names::tasks(report), Names::new(report.per_job.iter().map(policy)));
        let mut cells: BTreeMap<(usize, usize), Tally> = BTreeMap::new();
        let (mut rows, mut columns) = (Places::default(), Places::default());
        for job in &report.per_job {
            let row = rows.place(tasks.key(task(job), UNTOLD)).min(MOST_TASKS);
            let column = columns.place(policies.key(policy(job), "not begun")).min(MOST_POLICIES);
            let cell = cells.entry((row, column)).or_insert(NOTHING);
            *cell = cell.and(Tally::from(&job.rates));
        }
        let (tasks, other_tasks) = rows.labels(MOST_TASKS, "tasks", &tasks);
        let (policies, other_policies) = columns.labels(MOST_POLICIES, "policies", &policies);
        Self { tasks, policies, cells, other_tasks, other_policies }
    }

    /// Where there is a job.
    pub(super) fn cell(&self, task: usize, policy: usize) -> Option<Tally> {
        self.cells.get(&(task, policy)).copied()
    }
}

fn task(job: &JobReport) -> (&str, Option<&str>) {
    (&job.environment, job.instruction.as_deref())
}

/// The path is the one that the rank has said; a job that has not begun has none.
fn policy(job: &JobReport) -> (&str, Option<&str>) {
    (&job.policy_type, job.settings.get("policy_path").and_then(Value::as_str))
}

/// Of a job whose instruction is not known, where it would tell tasks apart.
const UNTOLD: &str = "instruction not known";

/// How rows or columns are told apart and named.
pub(super) struct Names<'a> {
    /// Names with different details.
    several: BTreeSet<&'a str>,
    /// Short names that more than one name would have.
    ambiguous: BTreeSet<&'a str>,
}

/// Name, and detail where it tells those of one name apart.
type Key<'a> = (&'a str, Option<&'a str>);

impl<'a> Names<'a> {
    /// Of the tasks of all jobs.
    pub(super) fn tasks(report: &'a Report) -> Self {
        Self::new(report.per_job.iter().map(task))
    }

    /// The task of a job.
    pub(super) fn task(&self, job: &JobReport) -> Label {
        self.label(self.key(task(job), UNTOLD))
    }

    fn new(keys: impl Iterator<Item = Key<'a>>) -> Self {
        let mut details: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        keys.for_each(|(name, detail)| details.entry(name).or_default().extend(detail));
        let several = details.iter().filter(|(_, details)| details.len() > 1).map(|(name, _)| *name).collect();
        let mut seen = BTreeSet::new();
        let ambiguous = details.keys().map(|long| name(long)).filter(|short| !seen.insert(*short)).collect();
        Self { several, ambiguous }
    }

    fn key<'b>(&self, (name, detail): Key<'b>, unknown: &'static str) -> Key<'b> {
        (name, self.several.contains(name).then(|| detail.unwrap_or(unknown)))
    }

    fn label(&self, (long, detail): Key) -> Label {
        let short = name(long);
        let name = if self.ambiguous.contains(short) { long } else { short };
        Label { name: name.to_owned(), detail: detail.map(str::to_owned) }
    }
}

/// Rows or columns in the order in which they come.
#[derive(Default)]
struct Places<'a> {
    by_key: BTreeMap<Key<'a>, usize>,
    keys: Vec<Key<'a>>,
}

impl<'a> Places<'a> {
    fn place(&mut self, key: Key<'a>) -> usize {
        *self.by_key.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() - 1
        })
    }

    /// The first ones, then one for how many others there are.
    fn labels(&self, most: usize, what: &str, names: &Names) -> (Vec<Label>, usize) {
        let mut labels: Vec<_> = self.keys.iter().take(most).map(|key| names.label(*key)).collect();
        let others = self.keys.len() - labels.len();
        if others > 0 {
            labels.push(Label { name: format!("{others} other {what}"), detail: None });
        }
        (labels, others)
    }
}
