//! Groups jobs by a common property: task, policy, set of tasks, or variation.

use std::collections::BTreeMap;

use jobs::job::Job;
use jobs::tree;
use serde_json::Value;

use crate::schema::GroupReport;
use crate::sections::rates::EpisodeTally;
use crate::stats::mean;

/// Returns one entry for each value of each property; `tallies` are those of the jobs, in order.
pub(crate) fn groups(jobs: &[Job], tallies: &[EpisodeTally]) -> Vec<GroupReport> {
    let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (index, job) in jobs.iter().enumerate() {
        properties(job)
            .into_iter()
            .for_each(|property| groups.entry(property).or_default().push(index));
    }
    let report = |((by, value), members): ((String, String), Vec<usize>)| {
        let tallies = || members.iter().map(|index| &tallies[*index]);
        GroupReport {
            by,
            value,
            jobs: members.len() as u64,
            mean_task_success_rate: mean(tallies().filter_map(EpisodeTally::rate)),
            rates: EpisodeTally::sum(tallies()),
        }
    };
    groups.into_iter().map(report).collect()
}

/// Returns the properties of a job as pairs of name and value.
pub(crate) fn properties(job: &Job) -> Vec<(String, String)> {
    let mut properties = vec![
        ("policy".to_owned(), job.policy_type.clone()),
        ("task".to_owned(), job.environment.clone()),
    ];
    // `eval_set` is EmbodiedBench's name for a set of tasks.
    properties.extend(
        job.env_args
            .get("eval_set")
            .map(|set| ("eval_set".to_owned(), text(set))),
    );
    let variations = tree::flat(&job.variations).into_iter();
    properties.extend(variations.map(|(path, value)| (format!("variations.{path}"), text(&value))));
    properties
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
