//! Writes `eval_info.json` in the format of `lerobot-eval` (src/lerobot/scripts/lerobot_eval.py,
//! 01f50c3d: `eval_policy_all`).
//!
//! A job is a task, and its environment is the task group. The file has scored episodes only:
//! LeRobot has no errored episodes, because an exception ends its evaluation. Episodes
//! without a step have no largest reward: `max_rewards` and `avg_max_reward` are left out if no
//! episode has one. Paths of predicted videos are always left out.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::merged::Merged;
use crate::merged::record::EpisodeRecord;
use crate::schema::{JobReport, Report};
use crate::stats::mean;

#[derive(Serialize)]
pub(crate) struct EvalInfo<'a> {
    per_task: Vec<TaskResult<'a>>,
    per_group: BTreeMap<&'a str, Value>,
    overall: Value,
}

#[derive(Serialize)]
struct TaskResult<'a> {
    task_group: &'a str,
    /// Number of the task within its group, from 0.
    task_id: usize,
    /// Name of the job; an addition to LeRobot's format.
    job: &'a str,
    metrics: TaskMetrics<'a>,
}

#[derive(Serialize)]
struct TaskMetrics<'a> {
    sum_rewards: Vec<f64>,
    /// One value for each episode, in the order of `sum_rewards`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_rewards: Option<Vec<Option<f64>>>,
    successes: Vec<bool>,
    video_paths: &'a [String],
}

fn scored(records: &[EpisodeRecord]) -> impl Iterator<Item = &EpisodeRecord> {
    records.iter().filter(|record| record.is_scored())
}

impl<'a> EvalInfo<'a> {
    /// Builds the file from a report and the lines that it was made of.
    pub(crate) fn new(merged: &'a Merged, report: &'a Report) -> Self {
        let mut groups: BTreeMap<&str, Vec<&JobReport>> = BTreeMap::new();
        let mut per_task = Vec::new();
        for job in report.per_job.iter().filter(|job| job.rates.scored > 0) {
            let group = groups.entry(&job.environment).or_default();
            let records = || scored(merged.episodes(job.index));
            let max_rewards = || records().map(|record| record.max_reward.map(f64::from));
            let metrics = TaskMetrics {
                sum_rewards: records().map(|record| record.return_).collect(),
                max_rewards: max_rewards()
                    .any(|most| most.is_some())
                    .then(|| max_rewards().collect()),
                successes: records().map(EpisodeRecord::is_solved).collect(),
                video_paths: &job.videos,
            };
            per_task.push(TaskResult {
                task_group: &job.environment,
                task_id: group.len(),
                job: &job.name,
                metrics,
            });
            group.push(job);
        }
        // A rate over variants depends on which of them somebody chose.
        let controls: Vec<_> = report.jobs_under_control().collect();
        let of_group = |group: &str| {
            let jobs = controls.iter().copied();
            let jobs: Vec<_> = jobs.filter(|job| job.environment == group).collect();
            aggregate(merged, &jobs)
        };
        let eval_s = report.run.wall_s;
        let scored = report.overall.scored.max(1);
        let mut overall = aggregate(merged, &controls);
        overall["eval_s"] = eval_s.into();
        overall["eval_ep_s"] = eval_s.map(|seconds| seconds / scored as f64).into();
        let groups = groups.into_keys();
        Self {
            per_task,
            per_group: groups.map(|group| (group, of_group(group))).collect(),
            overall,
        }
    }
}

fn aggregate(merged: &Merged, jobs: &[&JobReport]) -> Value {
    let n_episodes: u64 = jobs.iter().map(|job| job.rates.scored).sum();
    let successes: u64 = jobs.iter().map(|job| job.rates.successes).sum();
    let of_all = |total: f64| (n_episodes > 0).then(|| total / n_episodes as f64);
    let returns = jobs.iter().map(|job| &job.rates);
    let returns = returns.filter_map(|rates| Some(rates.mean_return? * rates.scored as f64));
    let videos: Vec<_> = jobs.iter().flat_map(|job| &job.videos).collect();
    let jobs = jobs.iter();
    let records = jobs.flat_map(|job| scored(merged.episodes(job.index)));
    let mut aggregate = json!({
        "avg_sum_reward": of_all(returns.sum()),
        "pc_success": of_all(successes as f64 * 100.0),
        "n_episodes": n_episodes,
        "video_paths": videos,
    });
    if let Some(most) = mean(records.filter_map(|record| record.max_reward.map(f64::from))) {
        aggregate["avg_max_reward"] = most.into();
    }
    aggregate
}
