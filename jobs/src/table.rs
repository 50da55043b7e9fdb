//! What the terminal shows of jobs and results.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::job::{Job, Length};
use crate::report::{JobReport, Rates, Report};
use crate::stats::wilson95;

/// Rows that a terminal shows of a long table; the rest is counted.
pub const MAX_ROWS: usize = 60;

/// Arena's job table: what is about to run, or how it went.
pub fn jobs<'a>(rows: impl IntoIterator<Item = (&'a Job, &'a str)>) -> String {
    let head = ["Job Name", "Status", "Policy Type", "Num Envs", "Num Steps", "Num Episodes", "Num Rebuilds"];
    let row = |(job, status): (&Job, &str)| {
        let (steps, episodes) = match job.length {
            Length::Episodes(count) => ("-".to_owned(), job.selected(count).to_string()),
            Length::Steps(count) => (count.to_string(), "-".to_owned()),
            Length::Policy => ("-".to_owned(), "policy".to_owned()),
        };
        let [envs, rebuilds] = [job.num_envs.to_string(), job.num_rebuilds.to_string()];
        [job.name.clone(), status.to_owned(), job.policy_type.clone(), envs, steps, episodes, rebuilds]
    };
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    let mut text = grid(head, &rows[..rows.len().min(MAX_ROWS)]);
    if rows.len() > MAX_ROWS {
        let _ = writeln!(text, "… and {} more jobs", rows.len() - MAX_ROWS);
    }
    text
}

/// Rows below a head, each column as wide as its widest cell.
pub fn grid<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let rule = widths.iter().fold(String::from("+"), |line, width| line + &"-".repeat(width + 2) + "+");
    let line = |cells: [&str; N]| {
        cells.iter().zip(widths).fold(String::from("|"), |line, (cell, width)| format!("{line} {cell:<width$} |"))
    };
    let body = rows.iter().map(|row| line(std::array::from_fn(|column| row[column].as_str())));
    let lines = [rule.clone(), line(head), rule.clone()].into_iter().chain(body).chain([rule]);
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

/// Arena's closing block: jobs by name, `  name(30 left)  value(10.4f)`.
pub fn metrics_summary(report: &Report) -> String {
    let rule = "=".repeat(70);
    let mut text = format!("{rule}\nMETRICS SUMMARY\n{rule}\n");
    let mut jobs: Vec<_> = report.per_job.iter().filter(|job| job.rates.episodes > 0 || job.attempts > 0).collect();
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    for job in &jobs {
        let _ = write!(text, "\n{}:\n", job.name);
        for (name, value) in metrics(&job.rates) {
            let _ = writeln!(text, "  {name:<30}  {value:>10.4}");
        }
    }
    if jobs.is_empty() {
        text.push_str("\nno job has been run\n");
    }
    let _ = writeln!(text, "{rule}");
    text
}

/// The metrics of a job by Arena's names; those of errors only where there are any.
pub fn metrics(rates: &Rates) -> Vec<(&'static str, f64)> {
    let mut metrics =
        vec![("success_rate", rates.success_rate.unwrap_or(0.0)), ("num_episodes", rates.episodes as f64)];
    if rates.errors > 0 {
        metrics.push(("num_errors", rates.errors as f64));
        metrics.push(("completion_only_rate", rates.completion_only_rate.unwrap_or(0.0)));
    }
    metrics
}

/// Tasks that more than one policy was tried on: how often each solved them. Empty if there is none.
pub fn comparison(report: &Report) -> String {
    let mut counts: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for job in report.per_job.iter().filter(|job| job.rates.episodes > 0) {
        let (solved, episodes) = counts.entry((&job.environment, &job.policy_type)).or_default();
        *solved += job.rates.successes;
        *episodes += job.rates.episodes;
    }
    let policies = |task: &str| counts.keys().filter(|(other, _)| *other == task).count();
    let rows: Vec<_> = counts
        .iter()
        .filter(|((task, _), _)| policies(task) > 1)
        .map(|((task, policy), (solved, episodes))| {
            let interval = wilson95(*solved, *episodes)
                .map_or_else(String::new, |[low, high]| format!("{:.1} to {:.1} %", low * 100.0, high * 100.0));
            [(*task).to_owned(), (*policy).to_owned(), format!("{solved} of {episodes}"), interval]
        })
        .collect();
    if rows.is_empty() { String::new() } else { grid(["Task", "Policy Type", "Solved", "95 % Interval"], &rows) }
}

/// One line that says how much there is and how good it is, and one for each thing that is missing.
pub fn conclusion(report: &Report) -> String {
    let rates = &report.overall;
    let expected = rates.expected.map_or_else(|| "?".to_owned(), |expected| expected.to_string());
    let mut text = format!("{} of {expected} episodes", rates.episodes);
    if let (Some(rate), Some([low, high])) = (rates.success_rate, rates.wilson95) {
        let _ = write!(text, ", {:.1} % solved (95 %: {:.1} to {:.1})", rate * 100.0, low * 100.0, high * 100.0);
    }
    if rates.errors > 0 {
        let _ = write!(text, ", {} errors", rates.errors);
    }
    for rank in &report.run.missing_ranks {
        let _ = write!(text, "\nrank {rank} did not deliver its results");
    }
    if report.missing_count > 0 {
        let _ = write!(text, "\n{} episodes are missing{}", report.missing_count, first_missing(report));
    }
    if report.duplicates_count > 0 {
        let _ = write!(text, "\n{} episodes ran more than once; the first of each counts", report.duplicates_count);
    }
    for job in report.per_job.iter().filter(|job| job.out_of_memory > 0) {
        let _ = write!(text, "\n{}: {}", job.name, shortage(job));
    }
    for failure in report.failures.iter().take(10) {
        let episode = failure.episode.map_or_else(String::new, |episode| format!(" episode {episode}"));
        let _ = write!(text, "\n{}{episode}: {}", failure.job, failure.reason);
    }
    if report.failures_count > 10 {
        let _ = write!(text, "\n… and {} more errors, see report.json", report.failures_count - 10);
    }
    text
}

/// How often memory was short, and what helps.
fn shortage(job: &JobReport) -> String {
    let times = if job.out_of_memory == 1 { "once".to_owned() } else { format!("{} times", job.out_of_memory) };
    let knob = match job.out_of_memory_batch {
        Some(0) => "not even one row fitted into an inference; fewer num_envs leave the policy more".to_owned(),
        Some(batch) => {
            let rows = if batch == 1 { "1 row was".to_owned() } else { format!("{batch} rows were") };
            format!(
                "at most {rows} inferred at a time from then on; --max-batch {batch} does so from the start, fewer num_envs \
                 leave the policy more"
            )
        }
        None => "it passed; fewer num_envs leave the policy more".to_owned(),
    };
    format!("out of memory {times}: {knob}")
}

fn first_missing(report: &Report) -> String {
    let named: Vec<_> = report.missing.iter().take(5).map(|id| format!("{} {}", id.job, id.episode)).collect();
    let more = if report.missing_count > named.len() as u64 { ", …" } else { "" };
    format!(": {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RunPlan;
    use crate::report::Context;
    use serde_json::json;

    fn plan(count: usize) -> RunPlan {
        let entries: Vec<_> = (0..count)
            .map(|i| {
                json!({"name": format!("j{i}"), "arena_env_args": {"environment": "e", "num_envs": 4},
                            "policy_type": "scripted", "num_episodes": 2})
            })
            .collect();
        RunPlan {
            schema: String::new(),
            jobs_file: String::new(),
            jobs_sha256: String::new(),
            seed: 0,
            only: None,
            world_size: 1,
            jobs: crate::file::parse(&json!({"jobs": entries})).unwrap(),
            rrun: String::new(),
            created: String::new(),
            ..RunPlan::default()
        }
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
        assert_eq!(jobs(plan.jobs.iter().map(|job| (job, "pending"))), expected);
    }

    #[test]
    fn hundreds_of_jobs_stay_readable() {
        let plan = plan(400);
        let text = jobs(plan.jobs.iter().map(|job| (job, "pending")));
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
    fn a_shortage_of_memory_is_said_with_its_knob() {
        let mut report = Report::new(&plan(1), &[], Context::default());
        (report.per_job[0].out_of_memory, report.per_job[0].out_of_memory_batch) = (3, Some(4));
        let text = conclusion(&report);
        assert!(
            text.contains("\nj0: out of memory 3 times: at most 4 rows") && text.contains("--max-batch 4"),
            "{text}"
        );
        report.per_job[0].out_of_memory_batch = Some(1);
        assert!(conclusion(&report).contains("at most 1 row was inferred at a time"));
        report.per_job[0].out_of_memory_batch = Some(0);
        let text = conclusion(&report);
        assert!(
            text.contains("3 times: not even one row fitted into an inference;") && !text.contains("at most"),
            "{text}"
        );
        (report.per_job[0].out_of_memory, report.per_job[0].out_of_memory_batch) = (1, None);
        assert!(conclusion(&report).contains("\nj0: out of memory once: it passed;"));
    }

    #[test]
    fn what_is_missing_is_said() {
        let text = conclusion(&Report::new(&plan(1), &[], Context { missing_ranks: vec![1], ..Context::default() }));
        assert_eq!(text, "0 of 2 episodes\nrank 1 did not deliver its results\n2 episodes are missing: j0 0, j0 1");
    }

    #[test]
    fn policies_on_one_task_are_compared() {
        let mut plan = plan(3);
        plan.jobs[1].policy_type = "random_action".to_owned();
        plan.jobs[2].environment = "other".to_owned();
        let mut report = Report::new(&plan, &[], Context::default());
        assert_eq!(comparison(&report), "");
        for (job, successes) in report.per_job.iter_mut().zip([3, 1, 2]) {
            (job.rates.episodes, job.rates.successes) = (4, successes);
        }
        let expected = "\
+------+---------------+--------+----------------+
| Task | Policy Type   | Solved | 95 % Interval  |
+------+---------------+--------+----------------+
| e    | random_action | 1 of 4 | 4.6 to 69.9 %  |
| e    | scripted      | 3 of 4 | 30.1 to 95.4 % |
+------+---------------+--------+----------------+
";
        assert_eq!(comparison(&report), expected);
    }
}
