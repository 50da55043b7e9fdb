//! Formats jobs and results as tables for the terminal.

use std::fmt::Write as _;

use jobs::format;
use jobs::job::{Job, Length};
use jobs::plan::RunPlan;
use jobs::table::Table;

use crate::stats::Solved;
use crate::{JobReport, Report};

mod conclusion;
mod variations;

pub use conclusion::{conclusion, decision};
pub use variations::variations;
pub(crate) use variations::{VariationRow, by_group, by_job};

/// Returns what is printed of a run at its end: the jobs, their metrics, jobs beside each other and
/// what variations changed, and the conclusion. A `note` comes before the conclusion.
pub fn summary(plan: &RunPlan, report: &Report, note: Option<String>) -> String {
    let rows = plan.jobs.iter().zip(&report.per_job);
    let mut parts = vec![
        jobs(rows.map(|(job, report)| (job, format::word(report.status)))),
        metrics_summary(report),
    ];
    let tables = [comparison(report), variations(report)];
    parts.extend(tables.into_iter().filter(|table| !table.is_empty()));
    parts.extend(note);
    parts.push(conclusion(report));
    parts.join("\n")
}

/// Returns Arena's job table: what is about to run, or how it went.
pub fn jobs<'a>(rows: impl ExactSizeIterator<Item = (&'a Job, String)>) -> String {
    let head = [
        "Job Name",
        "Status",
        "Policy Type",
        "Num Envs",
        "Num Steps",
        "Num Episodes",
        "Num Rebuilds",
    ];
    let row = |(job, status): (&Job, String)| {
        let (steps, episodes) = match job.length {
            Length::Episodes(count) => ("-".to_owned(), job.selected(count).to_string()),
            Length::Steps(count) => (count.to_string(), "-".to_owned()),
            Length::Policy => ("-".to_owned(), "policy".to_owned()),
        };
        [
            job.name.clone(),
            status,
            job.policy_type.clone(),
            job.num_envs.to_string(),
            steps,
            episodes,
            job.num_rebuilds.to_string(),
        ]
    };
    Table::first(head, rows.map(row), "job", "").grid()
}

/// Returns Arena's closing block: jobs by name, `  name(30 left)  value(10.4f)`.
pub(crate) fn metrics_summary(report: &Report) -> String {
    let rule = "=".repeat(70);
    let mut text = format!("{rule}\nMETRICS SUMMARY\n{rule}\n");
    let mut jobs: Vec<_> = report
        .per_job
        .iter()
        .filter(|job| job.rates.episodes > 0 || job.attempts > 0)
        .collect();
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    for job in &jobs {
        let _ = write!(text, "\n{}:\n", job.name);
        for (name, value) in job.rates.metrics() {
            let _ = writeln!(text, "  {name:<30}  {value:>10.4}");
        }
        if job.rates.episodes == 0 {
            let _ = writeln!(text, "  {}", conclusion::no_episode(job));
        }
    }
    if jobs.is_empty() {
        text.push_str("\nno job has been run\n");
    }
    let _ = writeln!(text, "{rule}");
    text
}

/// Returns a table with one row per job, ordered by task and policy. It is empty if it would add
/// nothing to the [conclusion](crate::tables::conclusion): with a single job, or without an
/// episode.
fn comparison(report: &Report) -> String {
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
    use crate::tests::lines;
    use serde_json::json;

    pub(super) fn plan(count: usize) -> RunPlan {
        let args = json!({"environment": "e", "num_envs": 4});
        let job = |number| json!({"name": format!("j{number}"), "num_episodes": 2, "arena_env_args": args});
        lines::plan((0..count).map(job))
    }

    fn table(plan: &RunPlan) -> String {
        jobs(plan.jobs.iter().map(|job| (job, format::word(job.status))))
    }

    #[test]
    fn the_job_table_has_arenas_columns() {
        let plan = plan(1);
        let expected = "\
+----------+---------+-------------+----------+-----------+--------------+--------------+
| Job Name | Status  | Policy Type | Num Envs | Num Steps | Num Episodes | Num Rebuilds |
+----------+---------+-------------+----------+-----------+--------------+--------------+
| j0       | pending | scripted    | 4        | -         | 2            | 1            |
+----------+---------+-------------+----------+-----------+--------------+--------------+
";
        assert_eq!(table(&plan), expected);
    }

    #[test]
    fn hundreds_of_jobs_stay_readable() {
        let plan = plan(400);
        let text = table(&plan);
        assert!(text.lines().count() < 70 && text.ends_with("… and 340 more jobs\n"));
    }

    #[test]
    fn the_summary_is_written_as_arena_writes_it() {
        let plan = plan(1);
        let mut report = Report::new(&plan, &[], Context::default());
        report.per_job[0].attempts = 1;
        report.per_job[0].rates.success_rate = Some(0.5);
        report.per_job[0].rates.episodes = 2;
        let rule = "=".repeat(70);
        let expected = format!(
            "{rule}\nMETRICS SUMMARY\n{rule}\n\nj0:\n  success_rate                        0.5000\n  num_episodes                        2.0000\n{rule}\n"
        );
        assert_eq!(metrics_summary(&report), expected);
    }

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
        report.per_job.truncate(1);
        assert_eq!(comparison(&report), "", "one job needs no table");
    }
}
