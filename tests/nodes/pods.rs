//! Tests of launches in pods: each pod is a machine of a network with the name and the variables
//! that it has in Kubernetes, from the manifests of `deploy/k8s`.

use rig::run::{Given, Signal};

use crate::nodes::cluster::{FAST, LOSING, RECORD};
use crate::nodes::evaluation::{self, EVAL};
use crate::nodes::lab::Lab;
use crate::nodes::manifests::{Manifest, PodFacts};
use crate::nodes::site::Site;

/// Episodes of a job that are enough to be interrupted in the middle.
const EPISODES: usize = 60;

/// The pods of a Job.
struct Pods {
    site: Site,
    facts: Vec<PodFacts>,
}

impl Pods {
    /// Creates the machines, if namespaces are available. No pod knows the name of another one yet.
    fn new(manifest: &Manifest) -> Option<Pods> {
        let facts = manifest.pods();
        let names: Vec<String> = facts.iter().map(|pod| pod.host.clone()).collect();
        let site = Site::of(Lab::of_pods(&names, &facts[0].domain)?, 29_500);
        Some(Pods { site, facts })
    }

    /// Works like [`Pods::new`]; all pods know the name of the first one.
    fn known(manifest: &Manifest) -> Option<Pods> {
        let pods = Pods::new(manifest)?;
        pods.publish();
        Some(pods)
    }

    /// Makes the name of the first pod known to the others.
    fn publish(&self) {
        self.site.lab.publish(0, &self.first());
    }

    /// Returns the name of the first pod in the DNS.
    fn first(&self) -> String {
        format!("{}.{}", self.facts[0].host, self.facts[0].domain)
    }

    /// Starts these pods in this order, each as `program` makes it of the launcher, and returns
    /// the numbers of their launchers.
    fn start(&mut self, pods: &[usize], program: impl Fn(Given) -> Given) -> Vec<usize> {
        let start = |pod: &usize| {
            let node = program(self.site.node(*pod, ""));
            let variables = &self.facts[*pod].variables;
            let node = variables
                .iter()
                .fold(node, |node, (name, value)| node.env(name, value));
            self.site.start(node)
        };
        pods.iter().map(start).collect()
    }
}

/// All pods, the first one last. Launcher `3 - pod` is that of a pod.
const ALL: [usize; 4] = [3, 2, 1, 0];

fn record(node: Given) -> Given {
    node.sh(RECORD)
}

/// Every pod has the rank that its place in the Jobs gives it, and the first pod is the master.
#[track_caller]
fn are_one_launch(manifest: &Manifest, note: &str) {
    let Some(mut pods) = Pods::new(manifest) else {
        return;
    };
    let launchers = pods.start(&ALL, record);
    pods.site
        .wait_for_said(launchers[3], "waiting for nodes 1, 2, 3 of 4");
    assert_eq!(pods.site.records(), [], "its name is not known yet");
    pods.publish();
    let records = pods.site.wait_for(4, 4, 0);
    let master = format!("{}:29500", pods.first());
    for record in &records {
        assert_eq!((record.rank, &record.master), (3 - record.node, &master));
    }
    pods.site.says(launchers[0], &[note]);
    pods.site.go(&launchers);
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
    let Some(mut pods) = Pods::known(&Manifest::job()) else {
        return;
    };
    pods.site.conf = LOSING;
    let launchers = pods.start(&ALL, record);
    pods.site.wait_for(4, 4, 0);
    pods.site.conf = FAST;
    // The launcher of pod 2 is killed, and the Job starts a pod with the same index.
    pods.site.signal(launchers[1], Signal::KILL);
    let again = pods.start(&[2], record);
    pods.site.wait_for_said(
        again[0],
        "waiting until the launch with an earlier node 2 (eval-2",
    );
    pods.site.all_end_with(1, &[0, 2, 3]);
    let new = [again, pods.start(&[3, 1, 0], record)].concat();
    let all = pods.site.wait_for(8, 4, 0);
    let mut ranks: Vec<usize> = all.iter().map(|record| record.rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 0, 1, 1, 2, 2, 3, 3]);
    pods.site.go(&new);
}

#[test]
fn all_pods_fail_if_one_has_lost_a_rank_so_that_all_come_back() {
    let Some(mut pods) = Pods::known(&Manifest::job()) else {
        return;
    };
    let script = format!("[ $RANK = 1 ] && exit 4; {RECORD}");
    let launchers = pods.start(&ALL, |node| {
        node.words("--failure-policy isolate").sh(&script)
    });
    let site = &mut pods.site;
    site.wait_for(3, 4, 0);
    // Launcher 2 is that of pod 1.
    site.wait_for_said(launchers[2], "no restart is left");
    let all_run = launchers.iter().all(|&launcher| site.is_running(launcher));
    assert!(all_run, "the other ranks continue");
    site.folder().write("go", "\n");
    site.all_end_with(1, &launchers);
    let lost =
        "the launch has failed on node eval-1 (10.77.0.2): rank 1 exited with code 4; no restart";
    site.says(launchers[0], &[lost]);
    site.says(launchers[2], &["Root Cause"]);
    site.lacks(launchers[2], &["the launch has failed on"]);
}

#[test]
#[ignore = "an evaluation in four pods, twice: 10 s"]
fn an_evaluation_goes_on_after_a_pod_was_killed() {
    let Some(mut pods) = Pods::known(&Manifest::job()) else {
        return;
    };
    evaluation::write_jobs(&pods.site, EPISODES);
    let words = format!("{EVAL} --shard episodes");
    let eval = |node: Given| node.program(words.as_str());
    pods.site.conf = LOSING;
    let launchers = pods.start(&ALL, eval);
    pods.site.conf = FAST;
    evaluation::begin(&mut pods.site);
    evaluation::kill(&pods.site, launchers[1], EPISODES);
    let again = pods.start(&[2], eval);
    pods.site.all_end_with(1, &[0, 2, 3]);
    let new = [again, pods.start(&[3, 1, 0], eval)].concat();
    pods.site.all_end_with(0, &new);
    evaluation::is_whole(&pods.site, EPISODES);
}
