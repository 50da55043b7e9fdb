//! Tests of the loss of the host: the launcher that has the store dies, its machine loses power, or
//! a cable is cut.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::nodes::cluster::{Cluster, RECORD, sh};
use crate::nodes::site::{NOTICED, Site, Stopwatch};

/// What a node says that has been elected.
const ELECTED: &str = "this node hosts the rendezvous now";

/// Starts an elastic launch of nodes at 127.0.0.1 to 127.0.0.<nodes>; the first one hosts.
fn launch(nodes: usize, nnodes: &str) -> Cluster {
    let mut cluster = Cluster::new();
    for node in 0..nodes {
        let address = format!("127.0.0.{}", node + 1);
        cluster.elastic(nnodes, &["--local-addr", &address], &sh(RECORD));
        if node == 0 {
            cluster.wait_until("a store", |cluster| {
                std::net::TcpStream::connect(("127.0.0.1", cluster.port())).is_ok()
            });
        }
    }
    let all: Vec<usize> = (0..nodes).collect();
    cluster.wait_for_world(&all);
    cluster
}

/// Starts machines in one elastic launch; the first one hosts.
fn site(hosts: usize, nnodes: &str) -> Option<Site> {
    let mut site = Site::new(hosts)?;
    for host in 0..hosts {
        site.elastic(host, nnodes, &[], &sh(RECORD));
    }
    site.cluster.wait_for_world(&(0..hosts).collect::<Vec<_>>());
    Some(site)
}

#[test]
fn when_the_host_is_killed_the_next_node_hosts() {
    let mut cluster = launch(3, "1:3");
    cluster.signal(0, "KILL");
    let rest = cluster.wait_for_world(&[1, 2]);
    assert!(rest[0].master.starts_with("127.0.0.2:"), "{rest:?}");
    assert!(cluster.stderr(1).contains(ELECTED), "{}", cluster.stderr(1));
    let said = cluster.stderr(2);
    assert!(
        said.contains("node 127.0.0.2 hosts the rendezvous now"),
        "{said}"
    );
    assert!(
        said.contains("node 127.0.0.1 is gone; the others start a new round"),
        "{said}"
    );
    cluster.go();
    cluster.all_succeed(&[1, 2]);
}

#[test]
fn one_host_after_another_is_replaced() {
    let mut cluster = launch(4, "1:4");
    cluster.signal(0, "KILL");
    cluster.wait_for_world(&[1, 2, 3]);
    cluster.signal(1, "KILL");
    cluster.wait_for_world(&[2, 3]);
    // Of two nodes the host is a quorum.
    cluster.signal(3, "KILL");
    cluster.wait_for_world(&[2]);
    cluster.go();
    cluster.all_succeed(&[2]);
}

#[test]
fn of_two_nodes_the_other_ends_with_a_reason() {
    let mut cluster = Cluster::new();
    let conf = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,read_timeout=4";
    let options = ["--rdzv-conf", conf];
    cluster.elastic("1:2", &options, &sh(RECORD));
    cluster.wait_for(1, 1, 0);
    cluster.elastic("1:2", &options, &sh(RECORD));
    cluster.wait_for(2, 2, 0);
    cluster.signal(0, "KILL");
    assert_eq!(cluster.end(1), 1);
    let said = cluster.stderr(1);
    assert!(
        said.contains("no other was elected within 4 s: that takes more than half of the 2"),
        "{said}"
    );
}

#[test]
fn a_host_that_stood_still_comes_back_as_a_node() {
    let mut cluster = launch(3, "1:3");
    cluster.signal(0, "STOP");
    cluster.wait_for_world(&[1, 2]);
    cluster.signal(0, "CONT");
    cluster.wait_for_world(&[0, 1, 2]);
    let said = cluster.stderr(0);
    assert!(said.contains(" hosts the rendezvous now"), "{said}");
    cluster.go();
    cluster.all_succeed(&[0, 1, 2]);
}

#[test]
fn a_launcher_that_is_started_again_at_the_endpoint_joins_the_launch() {
    let mut cluster = launch(3, "1:3");
    cluster.signal(0, "KILL");
    cluster.wait_for_world(&[1, 2]);
    let conf = "last_call_timeout=30,keep_alive_interval=1,keep_alive_max_attempt=3";
    let options = ["--local-addr", "127.0.0.1", "--rdzv-conf", conf];
    let again = cluster.elastic("1:3", &options, &sh(RECORD));
    cluster.wait_for_world(&[again, 1, 2]);
    // Its store is not that of the launch, and says where that is.
    cluster.signal(2, "KILL");
    cluster.wait_for_world(&[again, 1]);
    let late = cluster.elastic("1:3", &["--local-addr", "127.0.0.4"], &sh(RECORD));
    cluster.wait_for_world(&[again, 1, late]);
    cluster.go();
    cluster.all_succeed(&[again, 1, late]);
}

#[test]
#[ignore = "waits for the keep-alive time: 15 s"]
fn a_node_that_comes_while_there_is_no_host_begins_no_launch_of_its_own() {
    let mut cluster = launch(3, "1:4");
    cluster.signal(0, "STOP");
    cluster.wait_for_world(&[1, 2]);
    // The first host comes back, and hears that it is none, but not who is.
    cluster.signal(1, "STOP");
    cluster.wait_until("a node without a host", |cluster| {
        cluster
            .stderr(2)
            .matches("looking for another host")
            .count()
            == 2
    });
    cluster.signal(0, "CONT");
    cluster.pause(Duration::from_secs(4));
    let late = cluster.elastic("1:4", &["--local-addr", "127.0.0.4"], &sh(RECORD));
    cluster.pause(Duration::from_secs(4));
    let early: Vec<_> = cluster
        .records()
        .into_iter()
        .filter(|record| record.node == late)
        .collect();
    assert!(early.is_empty(), "{early:?}");
    cluster.signal(1, "CONT");
    cluster.wait_for_world(&[0, 1, 2, late]);
    cluster.go();
    cluster.all_succeed(&[0, 1, 2, late]);
}

#[test]
#[ignore = "waits for the keep-alive time: 8 s"]
fn when_the_host_loses_power_the_others_go_on() {
    let Some(mut site) = site(3, "1:3") else {
        return;
    };
    let watch = Stopwatch::start();
    site.lose(0, 0);
    site.cluster.wait_for_world(&[1, 2]);
    watch.within(NOTICED, "a round without the host");
    site.cluster.go();
    site.cluster.all_succeed(&[1, 2]);
}

#[test]
#[ignore = "waits for the keep-alive time: 15 s"]
fn a_host_in_the_minority_stops_and_comes_back_as_a_node() {
    let Some(mut site) = site(3, "1:3") else {
        return;
    };
    site.lab.unplug(0);
    site.cluster.wait_for_world(&[1, 2]);
    the_ranks_of_the_host_end(&mut site.cluster);
    let alone = |record: &crate::nodes::cluster::Record| record.node == 0 && record.world < 3;
    site.cluster.pause(Duration::from_secs(3));
    assert!(
        !site.cluster.records().iter().any(alone),
        "{:?}",
        site.cluster.records()
    );
    site.lab.plug(0);
    site.cluster.wait_for_world(&[0, 1, 2]);
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1, 2]);
}

#[test]
#[ignore = "a cable that flaps: 40 s"]
fn a_cable_that_flaps_does_not_split_the_launch() {
    let Some(mut site) = site(3, "1:3") else {
        return;
    };
    for (host, tenths) in [(0, 5), (0, 45), (1, 20), (0, 35), (2, 45), (0, 25), (1, 45)] {
        site.lab.unplug(host);
        site.cluster.pause(Duration::from_millis(100 * tenths));
        site.lab.plug(host);
        site.cluster.pause(Duration::from_millis(700));
    }
    site.cluster.wait_for_world(&[0, 1, 2]);
    // Each round has a store of its own: those who meet there are one world, each rank once.
    let mut rounds = std::collections::BTreeMap::<_, Vec<(usize, usize)>>::new();
    for record in site.cluster.records() {
        let round = rounds.entry(record.master).or_default();
        round.push((record.world, record.rank));
    }
    for (master, mut ranks) in rounds {
        let (world, count) = (ranks[0].0, ranks.len());
        ranks.sort_unstable();
        ranks.dedup();
        let are_one = ranks.iter().all(|(of, rank)| *of == world && *rank < world);
        assert!(are_one && ranks.len() == count, "{master}: {ranks:?}");
    }
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1, 2]);
}

/// Waits until the first node, which hosts and is cut off, has ended its ranks.
fn the_ranks_of_the_host_end(cluster: &mut Cluster) {
    cluster.wait_until("the end of the ranks of the host", |cluster| {
        cluster
            .stderr(0)
            .contains("gone; the others start a new round")
    });
}

/// Number of episodes of the evaluation, enough to be interrupted.
const EPISODES: usize = 60;

/// Writes the jobs of an evaluation into the folder; returns its command line, or `None` without
/// the program of its ranks.
fn evaluation(cluster: &Cluster) -> Option<Vec<&'static str>> {
    let rank = Path::new(rig::rrun()).with_file_name("rrun-rank");
    if !rank.exists() {
        eprintln!("skipped, there is no {}", rank.display());
        return None;
    }
    let jobs = json!({"jobs": [{
        "name": "push", "num_episodes": EPISODES, "policy_type": "scripted",
        "arena_env_args": {"environment": "push", "num_envs": 1, "enable_cameras": false},
    }]});
    fs::write(cluster.path("jobs.json"), jobs.to_string()).unwrap();
    Some(vec!["eval", "--jobs", "jobs.json", "--output", "run"])
}

/// Waits until the evaluation is under way, and returns how many episodes have ended.
fn begun(cluster: &mut Cluster) -> usize {
    cluster.wait_until("some episodes", |cluster| cluster.finished_episodes() >= 6);
    let before = cluster.finished_episodes();
    assert!(before < EPISODES, "nothing is left to do");
    before
}

/// Checks that each episode has run once.
fn is_whole(cluster: &Cluster) {
    let report: Value = serde_json::from_str(&cluster.text("run/report.json")).unwrap();
    assert_eq!(
        (&report["overall"]["scored"], &report["missing_count"]),
        (&EPISODES.into(), &0.into())
    );
    assert_eq!(
        cluster.finished_episodes(),
        EPISODES,
        "no episode ran a second time"
    );
    let verify = std::process::Command::new(rig::rrun())
        .args(["verify", "run"])
        .current_dir(cluster.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&verify.stdout);
    assert!(verify.status.success(), "{said}{verify:?}");
    eprintln!("{}", said.trim());
}

#[test]
#[ignore = "an evaluation on three nodes: 20 s"]
fn an_evaluation_loses_no_episode_with_its_host() {
    let mut cluster = Cluster::new();
    let Some(eval) = evaluation(&cluster) else {
        return;
    };
    let eval = [&eval[..], &["--shard", "episodes"]].concat();
    for node in 0..3 {
        let address = format!("127.0.0.{}", node + 1);
        cluster.elastic("1:3", &["--local-addr", &address], &eval);
        cluster.wait_until("a store", |cluster| {
            std::net::TcpStream::connect(("127.0.0.1", cluster.port())).is_ok()
        });
    }
    let before = begun(&mut cluster);
    cluster.signal(0, "KILL");
    cluster.all_succeed(&[1, 2]);
    is_whole(&cluster);
    eprintln!("{before} episodes before the kill");
}

#[test]
#[ignore = "an evaluation on three machines: 20 s"]
fn leases_of_an_evaluation_hold_when_its_host_is_cut_off() {
    let Some(mut site) = Site::new(3) else { return };
    let Some(eval) = evaluation(&site.cluster) else {
        return;
    };
    let eval = [&eval[..], &["--assign", "dynamic"]].concat();
    for host in 0..3 {
        site.elastic(host, "1:3", &[], &eval);
    }
    let before = begun(&mut site.cluster);
    site.lab.unplug(0);
    site.cluster.all_succeed(&[1, 2]);
    the_ranks_of_the_host_end(&mut site.cluster);
    is_whole(&site.cluster);
    eprintln!("{before} episodes before the cut");
}
