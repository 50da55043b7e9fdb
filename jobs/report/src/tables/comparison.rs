//! Shows each job's result beside those of other policies on its task.

use jobs::format;
use jobs::table::Table;

use crate::stats::Solved;
use crate::{JobReport, Report};

/// Returns a table with one row per job, ordered by task and policy. It is empty if it would add
/// nothing to the [conclusion](crate::tables::conclusion): with a single job, or without an episode.
pub fn comparison(report: &Report) -> String {
    // Jobs that the file excludes from running are left out.
    let is_asked = |job: &&JobReport| {
        job.rates.episodes > 0 || job.attempts > 0 || job.rates.expected != Some(0)
    };
    let mut jobs: Vec<_> = report.per_job.iter().filter(is_asked).collect();
    if jobs.len() < 2 || jobs.iter().all(|job| job.rates.episodes == 0) {
        return String::new();
    }
    // Jobs of one task and policy stay in file order.
    jobs.sort_by_key(|job| (&job.environment, &job.policy_type));
    let head = ["Task", "Policy Type", "Job Name", "Solved", "95 % Interval"];
    Table::first(head, jobs.into_iter().map(row), "job", "").grid()
}

fn row(job: &JobReport) -> [String; 5] {
    let solved = Solved::from(&job.rates);
    let text = match solved.episodes {
        0 => "no episode".to_owned(),
        _ => solved.to_string(),
    };
    [
        job.environment.clone(),
        job.policy_type.clone(),
        job.name.clone(),
        text,
        solved.wilson95().map(format::interval).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::tables::tests::plan;

    #[test]
    fn every_job_is_listed_by_task_and_policy_those_without_an_episode_too() {
        let mut plan = plan(4);
        plan.jobs[1].policy_type = "random_action".to_owned();
        plan.jobs[2].environment = "other".to_owned();
        let mut report = Report::new(&plan, &[], Context::default());
        assert_eq!(comparison(&report), "");
        for (job, successes) in report.per_job.iter_mut().zip([3, 1, 2]) {
            (job.rates.episodes, job.rates.successes) = (4, successes);
        }
        insta::assert_snapshot!(comparison(&report));
    }

    #[test]
    fn one_job_needs_no_table() {
        let mut report = Report::new(&plan(1), &[], Context::default());
        (
            report.per_job[0].rates.episodes,
            report.per_job[0].rates.successes,
        ) = (4, 3);
        assert_eq!(comparison(&report), "");
    }
}
