//! Tests of launches in pods: each pod is a machine of a network with the name and the variables
//! that it has in Kubernetes, from the manifests of `deploy/k8s`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::nodes::cluster::{Cluster, FAST, RECORD, Record, sh};
use crate::nodes::lab::Lab;
use crate::nodes::manifests::{Manifest, PodFacts};

/// Episodes of a job that are enough to be interrupted in the middle.
const EPISODES: usize = 60;

/// The pods of a Job.
struct Pods {
    lab: Lab,
    cluster: Cluster,
    facts: Vec<PodFacts>,
}

impl Pods {
    /// Creates the machines, if namespaces are available. No pod knows the name of another one yet.
    fn new(manifest: &Manifest) -> Option<Pods> {
        let facts = manifest.pods(0);
        let names: Vec<String> = facts.iter().map(|pod| pod.host.clone()).collect();
        Some(Pods {
            lab: Lab::of_pods(&names, &facts[0].domain)?,
            cluster: Cluster::at(29_500),
            facts,
        })
    }

    /// Makes the name of the first pod known to the others.
    fn publish(&self) {
        self.lab.publish(0, &self.first());
    }

    /// Returns the name of the first pod in the DNS.
    fn first(&self) -> String {
        format!("{}.{}", self.facts[0].host, self.facts[0].domain)
    }

    /// Starts the container of a pod, and returns the number of its launcher.
    fn start(&mut self, pod: usize, options: &[&str], program: &[&str]) -> usize {
        let folder = self.cluster.folder().display().to_string();
        let mut command: Command = self.lab.rrun(pod, &folder);
        for (name, value) in &self.facts[pod].variables {
            command.env(name, value);
        }
        let options = [&["--rdzv-conf", FAST], options].concat();
        self.cluster.start_as(command, &options, program)
    }

    /// Starts all pods, the first one last.
    fn start_all(&mut self, options: &[&str], program: &[&str]) -> Vec<usize> {
        let pods = 0..self.facts.len();
        pods.rev()
            .map(|pod| self.start(pod, options, program))
            .collect()
    }
}

fn ranks(records: &[Record]) -> Vec<usize> {
    let mut ranks: Vec<usize> = records.iter().map(|record| record.rank).collect();
    ranks.sort_unstable();
    ranks
}

/// Every pod has the rank that its place in the Jobs gives it, and the first pod is the master.
#[track_caller]
fn are_one_launch(manifest: &Manifest, note: &str) {
    let Some(mut pods) = Pods::new(manifest) else {
        return;
    };
    let launchers = pods.start_all(&[], &sh(RECORD));
    let last = *launchers.last().expect("pods");
    pods.cluster.wait_until("the first pod", |cluster| {
        cluster
            .stderr(last)
            .contains("waiting for nodes 1, 2, 3 of 4")
    });
    assert_eq!(pods.cluster.records(), [], "its name is not known yet");
    pods.publish();
    let records = pods.cluster.wait_for(4, 4, 0);
    let master = format!("{}:29500", pods.first());
    for record in &records {
        // The launchers were started in reverse order.
        assert_eq!((record.rank, &record.master), (3 - record.node, &master));
    }
    let said = pods.cluster.stderr(launchers[0]);
    assert!(said.contains(note), "{said}");
    pods.cluster.go();
    pods.cluster.all_succeed(&launchers);
}

#[test]
fn the_pods_of_an_indexed_job_meet_when_the_name_of_the_first_is_known() {
    are_one_launch(
        &Manifest::job(),
        "Kubernetes Job eval: node 3 of 4, 1 rank here (no GPU), meeting at \
         eval-0.eval.robots.svc.cluster.local:29500",
    );
}

#[test]
fn the_pods_of_a_jobset_meet_when_the_name_of_the_first_is_known() {
    are_one_launch(
        &Manifest::jobset().resized(2, 2),
        "Kubernetes JobSet eval-workers: node 3 of 4, 1 rank here (no GPU), meeting at \
         eval-workers-0-0.eval.robots.svc.cluster.local:29500",
    );
}

#[test]
fn a_pod_that_comes_back_waits_until_the_others_have_ended_and_come_back_too() {
    let Some(mut pods) = Pods::new(&Manifest::job()) else {
        return;
    };
    pods.publish();
    let launchers = pods.start_all(&[], &sh(RECORD));
    pods.cluster.wait_for(4, 4, 0);
    // The launcher of pod 2 is killed, and the Job starts a pod with the same index.
    pods.cluster.signal(launchers[1], "KILL");
    let again = pods.start(2, &[], &sh(RECORD));
    pods.cluster.wait_until("the new pod", |cluster| {
        let said = cluster.stderr(again);
        said.contains("waiting until the launch with an earlier node 2 (eval-2")
    });
    // Launcher 3 is that of the first pod.
    for (pod, launcher) in [(3, 0), (1, 2), (0, 3)] {
        assert_eq!(pods.cluster.end(launcher), 1, "pod {pod}");
    }
    let mut new = vec![again];
    for pod in [3, 1, 0] {
        new.push(pods.start(pod, &[], &sh(RECORD)));
    }
    let all = pods.cluster.wait_for(8, 4, 0);
    assert_eq!(ranks(&all), [0, 0, 1, 1, 2, 2, 3, 3]);
    pods.cluster.go();
    pods.cluster.all_succeed(&new);
}

#[test]
fn all_pods_fail_if_one_has_lost_a_rank_so_that_all_come_back() {
    let Some(mut pods) = Pods::new(&Manifest::job()) else {
        return;
    };
    pods.publish();
    let script = format!("[ $RANK = 1 ] && exit 4; {RECORD}");
    let launchers = pods.start_all(&["--failure-policy", "isolate"], &sh(&script));
    pods.cluster.wait_for(3, 4, 0);
    // Launcher 2 is that of pod 1.
    pods.cluster.wait_until("the loss", |cluster| {
        cluster.stderr(launchers[2]).contains("no restart is left")
    });
    assert!(
        launchers
            .iter()
            .all(|&launcher| pods.cluster.is_running(launcher)),
        "the other ranks continue"
    );
    pods.cluster.go();
    for launcher in &launchers {
        assert_eq!(pods.cluster.end(*launcher), 1);
    }
    let said = pods.cluster.stderr(launchers[0]);
    assert!(
        said.contains("the launch has failed on node eval-1 (10.77.0.2): rank 1 exited with code 4; no restart"),
        "{said}"
    );
    let said = pods.cluster.stderr(launchers[2]);
    assert!(
        said.contains("Root Cause") && !said.contains("the launch has failed on"),
        "{said}"
    );
}

/// Returns whether the rank program is beside the launcher; prints a message if not.
fn has_rank() -> bool {
    let found = Path::new(rig::rrun()).with_file_name("rrun-rank").exists();
    if !found {
        eprintln!("skipped: rrun-rank is not built");
    }
    found
}

#[test]
#[ignore = "an evaluation in four pods, twice: 10 s"]
fn an_evaluation_goes_on_after_a_pod_was_killed() {
    if !has_rank() {
        return;
    }
    let Some(mut pods) = Pods::new(&Manifest::job()) else {
        return;
    };
    pods.publish();
    let jobs = json!({"jobs": [{
        "name": "push", "num_episodes": EPISODES, "policy_type": "scripted",
        "arena_env_args": {"environment": "push", "num_envs": 1, "enable_cameras": false},
    }]});
    fs::write(pods.cluster.path("jobs.json"), jobs.to_string()).unwrap();
    let eval = [
        "eval",
        "--jobs",
        "jobs.json",
        "--output",
        "run",
        "--shard",
        "episodes",
    ];
    let launchers = pods.start_all(&[], &eval);
    pods.cluster
        .wait_until("some episodes", |cluster| cluster.finished_episodes() >= 4);
    pods.cluster.signal(launchers[1], "KILL");
    let again = pods.start(2, &[], &eval);
    for launcher in [0, 2, 3] {
        assert_eq!(pods.cluster.end(launchers[launcher]), 1);
    }
    let before = pods.cluster.finished_episodes();
    assert!(before < EPISODES, "it was interrupted");
    let mut new = vec![again];
    for pod in [3, 1, 0] {
        new.push(pods.start(pod, &[], &eval));
    }
    pods.cluster.all_succeed(&new);
    let text = pods.cluster.text("run/report.json");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["overall"]["scored"], &report["missing_count"]),
        (&EPISODES.into(), &0.into())
    );
    assert_eq!(
        pods.cluster.finished_episodes(),
        EPISODES,
        "no episode ran a second time"
    );
}
