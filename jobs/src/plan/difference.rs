//! Compares the jobs of two plans by name: which stay, start over, are new, or are removed. The
//! inputs of a job may have changed, too: they are compared as they are at this start.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::json;

use crate::inputs::versions::{self, OtherVersion};
use crate::inputs::{Asker, InputFile, Inputs, SumCache};
use crate::job::{Job, JobIndex, Status};
use crate::layout::RunFolder;
use crate::plan::RunPlan;
use crate::plan::identity::{FieldChange, Identity};

/// Number of lines of a difference that are shown; the rest is only counted.
const SHOWN: usize = 20;

/// Number of job names that are shown of a group of jobs.
const NAMED: usize = 3;

/// Number of characters that are shown of a value.
const LETTERS: usize = 60;

/// A job of the run, and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedJob {
    /// Name of the job.
    pub name: String,
    /// Its position in the new plan; `None` if it was removed.
    pub after: Option<JobIndex>,
    /// Number of episodes in the new plan; `None` if the job was removed or is not counted in
    /// episodes.
    pub episodes: Option<u64>,
    /// What of it has changed; if anything but the number of its episodes has, it starts over.
    pub changes: Vec<FieldChange>,
}

impl ComparedJob {
    /// Returns whether its files and journal lines stay in the run.
    pub fn stays(&self) -> bool {
        self.after.is_some() && self.changes.iter().all(FieldChange::is_coverage)
    }

    fn is_same(&self) -> bool {
        self.after.is_some() && self.changes.is_empty()
    }
}

/// How the jobs that are asked for differ from those that the run was begun with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Every job of the run, in the order of the run.
    pub jobs: Vec<ComparedJob>,
    /// Names of the jobs that are new.
    pub added: Vec<String>,
}

impl Difference {
    /// Compares the jobs of the plan in the folder (`run`) with those that are asked for (`now`).
    pub fn between(run: &RunPlan, now: &RunPlan) -> Self {
        let jobs = now.jobs.iter();
        let by_name: HashMap<&str, &Job> = jobs.map(|job| (job.name.as_str(), job)).collect();
        let before: HashSet<&str> = run.jobs.iter().map(|job| job.name.as_str()).collect();
        let compare = |job: &Job| {
            let other = by_name.get(job.name.as_str());
            let changes = other.map(|other| {
                let then = Identity::of(job, run.seed);
                let mut changes = then.differences(&Identity::of(other, now.seed));
                changes.extend(now.input_changes(run, other));
                changes
            });
            ComparedJob {
                name: job.name.clone(),
                after: other.map(|job| job.index),
                episodes: other.and_then(|job| job.episodes()),
                changes: changes.unwrap_or_default(),
            }
        };
        let added = now
            .jobs
            .iter()
            .filter(|job| !before.contains(job.name.as_str()));
        Self {
            jobs: run.jobs.iter().map(compare).collect(),
            added: added.map(|job| job.name.clone()).collect(),
        }
    }

    /// Returns whether both plans have the same jobs; their order does not matter.
    pub fn is_none(&self) -> bool {
        self.added.is_empty() && self.jobs.iter().all(ComparedJob::is_same)
    }

    /// Returns whether the jobs that both plans have come in another order.
    pub fn is_reordered(&self) -> bool {
        let positions: Vec<_> = self.jobs.iter().filter_map(|job| job.after).collect();
        !positions.is_sorted()
    }

    /// Describes the difference, one line for each change; the same change in several jobs is one
    /// line.
    pub fn lines(&self) -> Vec<String> {
        let mut groups: BTreeMap<&FieldChange, Vec<&str>> = BTreeMap::new();
        let mut order: Vec<&FieldChange> = Vec::new();
        for job in &self.jobs {
            for field in &job.changes {
                let group = groups.entry(field).or_default();
                if group.is_empty() {
                    order.push(field);
                }
                group.push(&job.name);
            }
        }
        let removed = self.jobs.iter().filter(|job| job.after.is_none());
        let removed: Vec<_> = removed.map(|job| job.name.as_str()).collect();
        let added: Vec<_> = self.added.iter().map(String::as_str).collect();
        let changed = order.into_iter();
        let changed = changed.map(|field| format!("{}: {}", names(&groups[field]), shown(field)));
        let mut lines: Vec<_> = changed.collect();
        for (group, what) in [(added, "new"), (removed, "removed")] {
            lines.extend((!group.is_empty()).then(|| format!("{}: {what}", names(&group))));
        }
        let more = lines.len().saturating_sub(SHOWN);
        if more > 0 {
            lines.truncate(SHOWN);
            lines.push(format!("and {more} more"));
        }
        lines
    }
}

/// Formats names as `a`, `3 jobs (a, b, c)` or `700 jobs (a, b, c, …)`.
pub(super) fn names(of: &[&str]) -> String {
    if let [name] = of {
        return (*name).to_owned();
    }
    let more = if of.len() > NAMED { ", …" } else { "" };
    let first = of[..NAMED.min(of.len())].join(", ");
    format!("{} jobs ({first}{more})", of.len())
}

/// Formats a change as `field before → after`; long values are cut to the part that differs.
fn shown(change: &FieldChange) -> String {
    let [before, after] =
        [&change.before, &change.after].map(|text| text.as_deref().unwrap_or("not set"));
    let pairs = before.chars().zip(after.chars());
    let same = pairs.take_while(|(a, b)| a == b).count();
    let [before, after] = [before, after].map(|text| excerpt(text, same));
    format!("{} {before} → {after}", change.field)
}

/// Returns at most [`LETTERS`] characters of a text, including those from position `same` on.
fn excerpt(text: &str, same: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= LETTERS {
        return text.to_owned();
    }
    let last = letters.len() - LETTERS;
    let start = same.saturating_sub(LETTERS / 4).min(last);
    let part: String = letters[start..start + LETTERS].iter().collect();
    let [before, after] = [start > 0, start < last].map(|is_cut| if is_cut { "…" } else { "" });
    format!("{before}{part}{after}")
}

/// The inputs at this start, and who found them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputsNow {
    inputs: Inputs,
    asker: Asker,
    /// Packages of each job with another version than the journals have.
    versions: BTreeMap<String, Vec<OtherVersion>>,
    /// Whether both have been settled against those of the run.
    is_settled: bool,
}

impl RunPlan {
    /// Looks at the inputs of the jobs, so that a start with others is another run. `variable`
    /// looks up an environment variable.
    #[must_use]
    pub fn with_inputs(
        self,
        folder: &RunFolder,
        asker: Asker,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let inputs = Inputs::of(&self.jobs, folder.root(), variable);
        Self {
            inputs: inputs.files.clone(),
            now: Some(InputsNow {
                inputs,
                asker,
                versions: BTreeMap::new(),
                is_settled: false,
            }),
            ..self
        }
    }

    /// Finds out which large inputs are those of the run in the folder.
    pub(super) fn settle_inputs(&mut self, found: &Self, folder: &RunFolder, is_begun: bool) {
        let Some(now) = self.now.as_mut().filter(|now| !now.is_settled) else {
            return;
        };
        let asker = match (now.asker, is_begun) {
            // Nothing has been done with the inputs of the plan; they are written again.
            (Asker::Alone, false) => return,
            (Asker::OneOfSeveral, false) => Asker::Rank,
            (asker, _) => asker,
        };
        let sums = SumCache::open(&folder.policy_files());
        self.inputs = now.inputs.since(&found.inputs, asker, &sums);
        if asker != Asker::Rank {
            now.versions = other_versions(found, folder);
        }
        now.is_settled = is_begun;
    }

    /// Returns the inputs of the run with what may have changed about them: the time of a file.
    /// Only the launcher does that, because nobody writes a journal yet.
    pub(super) fn renewed_inputs(&self, found: &Self) -> BTreeMap<String, InputFile> {
        let Some(now) = self.now.as_ref().filter(|now| now.asker == Asker::Alone) else {
            return found.inputs.clone();
        };
        if !now.is_settled {
            return self.inputs.clone();
        }
        let renewed = |(name, then): (&String, &InputFile)| {
            let now = self.inputs.get(name).unwrap_or(then);
            (name.clone(), now.clone())
        };
        found.inputs.iter().map(renewed).collect()
    }

    /// Returns which inputs of a job have other contents than in `run`. A file that was not there
    /// then, or is not there now, is no change: it may be an output, and what is needed and missing
    /// is refused elsewhere.
    pub(super) fn input_changes(&self, run: &Self, job: &Job) -> Vec<FieldChange> {
        let Some(now) = self.now.as_ref().filter(|_| job.status == Status::Pending) else {
            return Vec::new();
        };
        let of_file = |name: &str| {
            let (then, now) = (run.inputs.get(name)?, self.inputs.get(name)?);
            (!then.is_same(now)).then(|| FieldChange {
                field: format!("`{name}`"),
                before: Some(then.to_string()),
                after: Some(now.to_string()),
            })
        };
        let versions = now.versions.get(&job.name).into_iter().flatten();
        let of_package = |other: &OtherVersion| FieldChange {
            field: other.package.clone(),
            before: Some(other.before.clone()),
            after: Some(other.now.clone()),
        };
        let files = now.inputs.of_job(&job.name).filter_map(of_file);
        files.chain(versions.map(of_package)).collect()
    }
}

/// Returns the packages that are installed in another version than a run has had, by job.
fn other_versions(run: &RunPlan, folder: &RunFolder) -> BTreeMap<String, Vec<OtherVersion>> {
    let variable = |name: &str| std::env::var(name).ok();
    let recorded = versions::recorded(&folder.journals());
    // Hundreds of jobs may have one simulator.
    let mut known: BTreeMap<String, Vec<OtherVersion>> = BTreeMap::new();
    let of_job = |job: &Job| {
        let recorded = recorded.get(&job.name)?;
        let arguments = ["python", "env"].map(|name| job.env_args.get(name));
        let versions = recorded.get(versions::OF_SIMULATOR);
        let key = json!([job.environment, arguments, versions]).to_string();
        let others = known
            .entry(key)
            .or_insert_with(|| versions::changed(job, recorded, &variable));
        (!others.is_empty()).then(|| (job.name.clone(), others.clone()))
    };
    run.jobs.iter().filter_map(of_job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use serde_json::{Value, json};

    /// Returns a plan of jobs with these names and fields.
    fn plan<'a>(seed: u64, jobs: impl IntoIterator<Item = (&'a str, Value)>) -> RunPlan {
        let named = |(name, mut fields): (&str, Value)| {
            fields["name"] = name.into();
            fields
        };
        RunPlan {
            seed,
            jobs: samples::jobs(jobs.into_iter().map(named)),
            ..RunPlan::default()
        }
    }

    fn lines(before: &RunPlan, after: &RunPlan) -> Vec<String> {
        Difference::between(before, after).lines()
    }

    #[test]
    fn a_difference_reads_as_what_was_done_to_the_file() {
        let none = || json!({});
        let jobs = [
            ("a", none()),
            ("b", none()),
            ("c", json!({"seed": 3})),
            ("d", none()),
        ];
        let before = plan(1, jobs);
        let longer = json!({"num_episodes": 9});
        let jobs = [
            ("d", longer),
            ("e", none()),
            ("b", none()),
            ("c", json!({"seed": 4})),
        ];
        let difference = Difference::between(&before, &plan(1, jobs));
        let told = [
            "c: seed 3 → 4",
            "d: num_episodes 3 → 9",
            "e: new",
            "a: removed",
        ];
        assert_eq!(difference.lines(), told);
        let fate = |job: &ComparedJob| (job.name.clone(), job.stays(), job.after.map(|at| at.0));
        let fates: Vec<_> = difference.jobs.iter().map(fate).collect();
        let wanted = [
            ("a", false, None),
            ("b", true, Some(2)),
            ("c", false, Some(3)),
            ("d", true, Some(0)),
        ];
        let expected = wanted.map(|(name, stays, after)| (name.to_owned(), stays, after));
        assert_eq!(fates, expected);
        assert!(difference.is_reordered() && !difference.is_none());
    }

    #[test]
    fn another_base_seed_is_one_line_about_the_jobs_that_have_none_of_their_own() {
        let jobs = || {
            let without = ["a", "b", "c", "d"].map(|name| (name, json!({})));
            without.into_iter().chain([("own", json!({"seed": 7}))])
        };
        let told = ["4 jobs (a, b, c, …): seed --seed 1 → --seed 2"];
        assert_eq!(lines(&plan(1, jobs()), &plan(2, jobs())), told);
    }

    #[test]
    fn a_list_in_another_order_is_no_difference() {
        let of = |names: [&'static str; 2]| plan(1, names.map(|name| (name, json!({}))));
        let difference = Difference::between(&of(["a", "b"]), &of(["b", "a"]));
        assert!(difference.is_none() && difference.is_reordered());
    }

    #[test]
    fn of_long_values_what_differs_is_shown() {
        let of = |end: &str| {
            let words = format!("{}{end}", "x".repeat(200));
            plan(1, [("a", json!({"language_instruction": words}))])
        };
        let line = lines(&of("left"), &of("right")).remove(0);
        assert!(line.contains("xleft\" →"), "{line}");
        assert!(line.ends_with("xright\""), "{line}");
        assert!(line.chars().count() < 180, "{line}");
    }

    #[test]
    fn hundreds_of_differences_are_counted() {
        let names: Vec<_> = (0..100).map(|number| format!("j{number}")).collect();
        let of = |seed: usize| {
            let jobs = names.iter().enumerate();
            plan(
                1,
                jobs.map(|(number, name)| (&**name, json!({"seed": seed + number}))),
            )
        };
        let lines = lines(&of(0), &of(1000));
        assert_eq!(lines.len(), SHOWN + 1);
        assert_eq!(lines[SHOWN], "and 80 more");
    }
}
