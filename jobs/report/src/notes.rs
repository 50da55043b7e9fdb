//! Says why a result is not whole.

use jobs::count::{counted, listed};
use jobs::job::Status;

use crate::{JobReport, Report};

/// Number of names that a sentence lists; the rest is counted.
const MOST_NAMES: usize = 5;

/// Returns one sentence for each reason why the result is not whole, without capital letter and
/// full stop. The terminal prints them, and the page lists them.
pub(crate) fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(stopped) = &report.run.stopped {
        notes.push(format!("the run ended early: {stopped}"));
    }
    let ranks = report.run.missing_ranks.iter().map(usize::to_string);
    let ranks: Vec<_> = ranks.collect();
    if !ranks.is_empty() {
        let (rank, whose) = match ranks.len() {
            1 => ("rank", "its"),
            _ => ("ranks", "their"),
        };
        let ranks = listed(&ranks, MOST_NAMES);
        notes.push(format!("{rank} {ranks} did not deliver {whose} results"));
    }
    let skipped: u64 = report.skipped_jobs().map(JobReport::skipped).sum();
    let missing = report.missing_count.saturating_sub(skipped);
    if missing > 0 {
        let jobs = report.per_job.iter();
        let jobs = jobs.filter(|job| job.status != Status::Skipped && job.rates.missing() > 0);
        let jobs: Vec<_> = jobs
            .map(|job| (missing_of(report, job), &job.name))
            .filter(|(missing, _)| *missing > 0)
            .map(|(missing, name)| format!("{missing} of {name}"))
            .collect();
        let verb = if missing == 1 { "is" } else { "are" };
        let (episodes, jobs) = (counted(missing, "episode"), listed(&jobs, MOST_NAMES));
        notes.push(format!("{episodes} {verb} missing: {jobs}"));
    }
    let is = |status: Status| move |job: &JobReport| job.status == status;
    let mut jobs = |is_named: &dyn Fn(&JobReport) -> bool, one: &str, more: &str| {
        let named = report.per_job.iter().filter(|job| is_named(job));
        let names: Vec<_> = named.map(|job| job.name.clone()).collect();
        if !names.is_empty() {
            let what = if names.len() == 1 { one } else { more };
            let (jobs, names) = (counted(names.len(), "job"), listed(&names, MOST_NAMES));
            notes.push(format!("{jobs} {what}: {names}"));
        }
    };
    jobs(&is(Status::Failed), "failed", "failed");
    let left_out = format!(
        "skipped on request, {} did not run",
        counted(skipped, "episode")
    );
    let [one, more] = ["was", "were"].map(|verb| format!("{verb} {left_out}"));
    jobs(&is(Status::Skipped), &one, &more);
    jobs(
        &|job| matches!(job.status, Status::Running | Status::Interrupted),
        "has not come to an end",
        "have not come to an end",
    );
    jobs(
        &JobReport::ended_before_an_episode,
        "ended before its first episode did; num_episodes counts whole episodes",
        "ended before their first episode did; num_episodes counts whole episodes",
    );
    notes
}

/// Returns the number of episodes that a job lacks. The list of a report has the first missing
/// episodes only, but knows which ones a test that has decided did not need.
fn missing_of(report: &Report, job: &JobReport) -> u64 {
    if report.missing_count > report.missing.len() as u64 {
        return job.rates.missing();
    }
    let of_job = report.missing.iter().filter(|id| id.job == job.name);
    of_job.count() as u64
}

impl JobReport {
    /// Returns whether a job in steps ended within its first episodes, so that there is nothing to
    /// rate.
    pub(crate) fn ended_before_an_episode(&self) -> bool {
        self.status == Status::Completed && self.rates.episodes == 0 && self.costs.env_steps > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::LISTED;
    use crate::tests::lines;
    use crate::{Context, EpisodeId};

    /// Returns a report of jobs `a`, `b`, … with these states, and found and expected episodes.
    fn report(jobs: &[(Status, u64, u64)]) -> Report {
        let names = (b'a'..).take(jobs.len()).map(char::from);
        let plan = lines::plan(names.map(|name| lines::job(&name.to_string(), 1)));
        let mut report = Report::new(&plan, &[], Context::default());
        let mut missing = Vec::new();
        for (job, (status, found, expected)) in report.per_job.iter_mut().zip(jobs) {
            job.status = *status;
            (job.rates.episodes, job.rates.expected) = (*found, Some(*expected));
            let name = &job.name;
            missing.extend((*found..*expected).map(|episode| EpisodeId {
                job: name.clone(),
                episode,
            }));
        }
        report.missing_count = missing.len() as u64;
        missing.truncate(LISTED);
        report.missing = missing;
        report
    }

    #[test]
    fn each_reason_is_one_sentence() {
        let mut report = report(&[
            (Status::Failed, 2, 4),
            (Status::Skipped, 3, 6),
            (Status::Interrupted, 0, 1),
            (Status::Completed, 0, 0),
        ]);
        report.run.stopped = Some("stopped by a signal".to_owned());
        report.run.missing_ranks = vec![1];
        report.per_job[3].costs.env_steps = 9;
        insta::assert_snapshot!(notes(&report).join("\n"));
    }

    #[test]
    fn every_job_with_missing_episodes_is_named_however_many_another_lacks() {
        let report = report(&[
            (Status::Completed, 0, 2000),
            (Status::Completed, 9, 9),
            (Status::Completed, 2, 12),
        ]);
        let told = "2010 episodes are missing: 2000 of a, 10 of c";
        assert_eq!(notes(&report), [told]);
    }

    #[test]
    fn names_are_listed_and_then_counted() {
        let jobs = vec![(Status::Failed, 1, 1); 7];
        let told = "7 jobs failed: a, b, c, d, e and 2 more";
        assert_eq!(notes(&report(&jobs)), [told]);
    }
}
