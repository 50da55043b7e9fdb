//! Tests of evaluations that SLURM interrupts, and that resume where they were.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rig::need::{Need, need};

use crate::slurm::job::Job;

/// Number of episodes of a job, without images: enough that it is interrupted in the middle of
/// them.
const EPISODES: usize = 400;

/// Number of episodes that cannot be finished before the time limit.
const ENDLESS: usize = 100_000;

fn write_jobs(folder: &Path, episodes: usize) {
    let job = |name: &str, environment: &str| {
        serde_json::json!({
            "name": name, "num_episodes": episodes, "policy_type": "scripted",
            "arena_env_args": {"environment": environment, "num_envs": 2, "enable_cameras": false},
        })
    };
    let jobs = serde_json::json!({"jobs": [job("push", "push"), job("place", "pick_and_place")]});
    fs::write(folder.join("jobs.json"), jobs.to_string()).expect("the jobs file is written");
}

/// Returns how often the journals contain each episode of a job.
fn finished(folder: &Path) -> BTreeMap<(String, u64), usize> {
    let mut counts = BTreeMap::new();
    let Ok(files) = fs::read_dir(folder.join("run/journal")) else {
        return counts;
    };
    for file in files {
        let text = fs::read_to_string(file.expect("an entry").path()).expect("a journal is text");
        // The last line may be torn while a rank writes it.
        for line in text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        {
            if let (Some(job), Some(episode)) = (line["job"].as_str(), line["episode"].as_u64()) {
                *counts.entry((job.to_owned(), episode)).or_insert(0) += 1;
            }
        }
    }
    counts
}

/// Submits the example of the guide with the two jobs.
fn submit(options: &[&str], episodes: usize) -> Job {
    let job = Job::example(
        "eval.sbatch",
        &[
            &["--export=ALL,JOBS=jobs.json,OUTPUT=run", "--hold"],
            options,
        ]
        .concat(),
    );
    write_jobs(job.folder(), episodes);
    job.control("release");
    job
}

/// Checks whether the report is one of a part.
#[track_caller]
fn has_report(job: &Job, is_partial: bool) {
    let report = fs::read_to_string(job.folder().join("run/report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("the report is JSON");
    assert_eq!(report["partial"], is_partial, "{}", job.output());
}

#[test]
#[ignore = "needs SLURM"]
fn an_evaluation_that_is_requeued_goes_on_with_the_episodes_that_are_missing() {
    if !need(Need::Slurm) {
        return;
    }
    let job = submit(&[], EPISODES);
    job.wait_until("episodes of the first run", || {
        finished(job.folder()).len() > EPISODES / 10
    });
    job.control("requeue");
    job.wait_until("the job to be back in the queue", || {
        job.state() == "PENDING"
    });
    let before = finished(job.folder()).len();
    assert!(before < 2 * EPISODES, "the job was through before");
    job.start_now();
    let output = job.ends("COMPLETED");
    let counts = finished(job.folder());
    let found = (counts.len(), counts.values().max());
    assert_eq!(found, (2 * EPISODES, Some(&1)), "{output}");
    has_report(&job, false);
}

#[test]
#[ignore = "needs SLURM"]
fn the_time_limit_leaves_a_report_of_what_was_done() {
    if !need(Need::Slurm) {
        return;
    }
    let job = submit(&["--time=1"], ENDLESS);
    let output = job.ends("TIMEOUT");
    let done = finished(job.folder());
    assert_eq!(done.values().max(), Some(&1), "{output}");
    has_report(&job, true);
}
