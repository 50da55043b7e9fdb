//! Jobs that have something in common: a task, a policy, a set of tasks, a variation.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::merged::Merged;
use super::rates;
use super::schema::{GroupReport, JobReport};
use crate::job::Job;
use crate::stats::mean;

/// One entry for each value of each property; `reports` are those of the plan's jobs, in order.
pub(super) fn groups(merged: &Merged, reports: &[JobReport]) -> Vec<GroupReport> {
    let mut groups: BTreeMap<(String, String), Vec<(&Job, &JobReport)>> = BTreeMap::new();
    for pair in merged.plan.jobs.iter().zip(reports) {
        properties(pair.0).into_iter().for_each(|property| groups.entry(property).or_default().push(pair));
    }
    let report = |((by, value), jobs): ((String, String), Vec<(&Job, &JobReport)>)| GroupReport {
        by,
        value,
        jobs: jobs.len() as u64,
        mean_task_success_rate: mean(jobs.iter().filter_map(|(_, report)| report.rates.success_rate)),
        rates: rates::of_jobs(merged, jobs.iter().map(|(job, _)| *job)),
    };
    groups.into_iter().map(report).collect()
}

/// What a job may have in common with others: pairs of property and value.
pub(crate) fn properties(job: &Job) -> Vec<(String, String)> {
    let mut properties =
        vec![("policy".to_owned(), job.policy_type.clone()), ("task".to_owned(), job.environment.clone())];
    // EmbodiedBench's word, where a job names the set that its task is of.
    properties.extend(job.env_args.get("eval_set").map(|set| ("eval_set".to_owned(), text(set))));
    flatten("variations", &job.variations, &mut properties);
    properties
}

/// Arena's form of a variation: `a.b.c`, and the value as JSON.
fn flatten(path: &str, map: &Map<String, Value>, to: &mut Vec<(String, String)>) {
    for (key, value) in map {
        let path = format!("{path}.{key}");
        match value {
            Value::Object(map) => flatten(&path, map, to),
            value => to.push((path, text(value))),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
