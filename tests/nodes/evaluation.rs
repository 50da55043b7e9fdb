//! An evaluation on several nodes.

use std::fs;

use rig::run::{Given, Signal};
use serde_json::{Value, json};

use crate::nodes::cluster::Cluster;

/// The command line of the evaluation.
pub const EVAL: &str = "eval --jobs jobs.json --output run";

/// Writes jobs of so many episodes into the folder.
pub fn write_jobs(cluster: &Cluster, episodes: usize) {
    let jobs = json!({"jobs": [{
        "name": "push", "num_episodes": episodes, "policy_type": "scripted",
        "arena_env_args": {"environment": "push", "num_envs": 1, "enable_cameras": false},
    }]});
    cluster.folder().write("jobs.json", jobs.to_string());
}

/// Returns the number of finished episodes in all journals, on whatever lines.
fn finished(cluster: &Cluster) -> usize {
    let Ok(files) = fs::read_dir(cluster.folder().path("run/journal")) else {
        return 0;
    };
    let text: String = files
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default())
        .collect();
    text.matches("\"type\":\"episode\",").count()
}

/// Waits until some episodes have ended.
#[track_caller]
pub fn begin(cluster: &mut Cluster) {
    cluster.until("some episodes", |cluster| finished(cluster) >= 4);
}

/// Kills a launcher while episodes are left.
#[track_caller]
pub fn kill(cluster: &Cluster, node: usize, episodes: usize) {
    cluster.signal(node, Signal::KILL);
    assert!(finished(cluster) < episodes, "nothing is left to do");
}

/// Returns the report.
pub fn report(cluster: &Cluster) -> Value {
    serde_json::from_str(&cluster.folder().text("run/report.json")).unwrap()
}

/// Checks that each episode has run once.
#[track_caller]
pub fn is_whole(cluster: &Cluster, episodes: usize) {
    let report = report(cluster);
    let counts = (&report["overall"]["scored"], &report["missing_count"]);
    assert_eq!(counts, (&episodes.into(), &0.into()));
    assert_eq!(finished(cluster), episodes, "no episode ran a second time");
    let verify = Given::rrun().beside(cluster.folder()).words("verify run");
    verify.succeeds();
}
