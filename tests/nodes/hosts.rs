//! Tests of the loss of the host: the launcher that has the store dies, its machine loses power, or
//! a cable is cut.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::Duration;

use rig::run::Signal;
use rig::wait::{now, pause};

use crate::nodes::cluster::{Cluster, LOSING, RECORD};
use crate::nodes::evaluation::{self, EVAL};
use crate::nodes::site::{NOTICED, Site, within};

/// Enough episodes to be interrupted.
const EPISODES: usize = 60;

/// Starts an elastic launch of nodes at 127.0.0.1 to 127.0.0.<nodes>; the first one hosts.
fn launch(nodes: usize, nnodes: &str) -> Cluster {
    let mut cluster = Cluster::losing();
    for node in 0..nodes {
        cluster.elastic(
            &format!("{nnodes} --local-addr 127.0.0.{}", node + 1),
            RECORD,
        );
        wait_for_store(&mut cluster);
    }
    cluster.wait_for_world(&(0..nodes).collect::<Vec<_>>());
    cluster
}

fn wait_for_store(cluster: &mut Cluster) {
    cluster.until("a store", |cluster| {
        TcpStream::connect(("127.0.0.1", cluster.port())).is_ok()
    });
}

/// Starts three machines in one elastic launch; the first one hosts.
fn site() -> Option<Site> {
    let mut site = Site::losing(3, 3, "1:3", RECORD)?;
    site.wait_for_world(&[0, 1, 2]);
    Some(site)
}

/// Waits until one of these nodes hosts, and all others know that; returns it and the others.
fn host(cluster: &mut Cluster, nodes: &[usize]) -> (usize, Vec<usize>) {
    let hosts = |cluster: &Cluster, node: &usize| {
        let said = cluster.stderr(*node);
        said.contains("this node hosts the rendezvous now")
    };
    let host = cluster.until("a host", |cluster| {
        nodes.iter().copied().find(|node| hosts(cluster, node))
    });
    let others: Vec<usize> = nodes.iter().copied().filter(|it| *it != host).collect();
    for other in &others {
        let known = format!("node 127.0.0.{} hosts the rendezvous now", host + 1);
        cluster.wait_for_said(*other, &known);
    }
    (host, others)
}

#[test]
fn one_host_after_another_is_replaced() {
    let mut cluster = launch(4, "1:4");
    cluster.signal(0, Signal::KILL);
    let rest = cluster.wait_for_world(&[1, 2, 3]);
    assert!(rest[0].master.starts_with("127.0.0.2:"), "{rest:?}");
    let (host, others) = host(&mut cluster, &[1, 2, 3]);
    let gone = "node 127.0.0.1 is gone; the others start a new round";
    cluster.says(others[0], &[gone]);
    cluster.signal(host, Signal::KILL);
    cluster.wait_for_world(&others);
    // Of two nodes the host is a quorum.
    let (host, others) = self::host(&mut cluster, &others);
    cluster.signal(others[0], Signal::KILL);
    cluster.wait_for_world(&[host]);
    cluster.go(&[host]);
}

/// Starts a launch of two nodes whose host then gets this signal; the other one ends and says this.
fn two_nodes_without_host(signal: Signal, read_timeout: &str, said: &str) {
    let mut cluster = Cluster::losing();
    let conf = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3";
    let words = format!("1:2 --rdzv-conf {conf},read_timeout={read_timeout}");
    cluster.elastic(&words, RECORD);
    cluster.wait_for_world(&[0]);
    cluster.elastic(&words, RECORD);
    cluster.wait_for_world(&[0, 1]);
    cluster.signal(0, signal);
    cluster.all_end_with(1, &[1]);
    cluster.says(1, &[&format!("{said}: that takes more than half of the 2")]);
}

#[test]
fn of_two_nodes_the_other_does_not_look_long_for_a_host_that_has_ended() {
    let said = "has ended, and there are too few others";
    two_nodes_without_host(Signal::KILL, "3600", said);
}

#[test]
#[ignore = "waits for the keep-alive time: 8 s"]
fn of_two_nodes_the_other_ends_with_a_reason_if_the_host_stands_still() {
    let said = "is lost, and no other was elected within 4 s";
    two_nodes_without_host(Signal::STOP, "4", said);
}

#[test]
fn a_host_that_stood_still_comes_back_as_a_node() {
    let mut cluster = launch(3, "1:3");
    cluster.signal(0, Signal::STOP);
    cluster.wait_for_world(&[1, 2]);
    cluster.signal(0, Signal::CONT);
    cluster.wait_for_world(&[0, 1, 2]);
    cluster.says(0, &[" hosts the rendezvous now"]);
    cluster.go(&[0, 1, 2]);
}

#[test]
fn a_launcher_that_is_started_again_at_the_endpoint_joins_the_launch() {
    let mut cluster = launch(3, "1:3");
    cluster.signal(0, Signal::KILL);
    cluster.wait_for_world(&[1, 2]);
    let conf = "last_call_timeout=30,keep_alive_interval=1,keep_alive_max_attempt=3";
    let words = format!("1:3 --local-addr 127.0.0.1 --rdzv-conf {conf}");
    let again = cluster.elastic(&words, RECORD);
    cluster.wait_for_world(&[again, 1, 2]);
    // Its store is not that of the launch, and says where that is.
    cluster.signal(2, Signal::KILL);
    cluster.wait_for_world(&[again, 1]);
    let late = cluster.elastic("1:3 --local-addr 127.0.0.4", RECORD);
    cluster.wait_for_world(&[again, 1, late]);
    cluster.go(&[again, 1, late]);
}

#[test]
#[ignore = "waits for the keep-alive time: 15 s"]
fn a_node_that_comes_while_there_is_no_host_begins_no_launch_of_its_own() {
    let mut cluster = launch(3, "1:4");
    cluster.signal(0, Signal::STOP);
    cluster.wait_for_world(&[1, 2]);
    // The first host comes back, and hears that it is none, but not who is.
    cluster.signal(1, Signal::STOP);
    cluster.until("a node without a host", |cluster| {
        let said = cluster.stderr(2);
        said.matches("looking for another host").count() == 2
    });
    cluster.signal(0, Signal::CONT);
    pause(Duration::from_secs(4));
    let late = cluster.elastic("1:4 --local-addr 127.0.0.4", RECORD);
    pause(Duration::from_secs(4));
    let records = cluster.records();
    assert!(records.iter().all(|it| it.node != late), "{records:?}");
    cluster.signal(1, Signal::CONT);
    cluster.wait_for_world(&[0, 1, 2, late]);
    cluster.go(&[0, 1, 2, late]);
}

#[test]
#[ignore = "waits for the keep-alive time: 8 s"]
fn when_the_host_loses_power_the_others_go_on() {
    let Some(mut site) = site() else { return };
    let lost = now();
    site.lose(0, 0);
    site.wait_for_world(&[1, 2]);
    within(lost, NOTICED, "a round without the host");
    site.go(&[1, 2]);
}

#[test]
#[ignore = "waits for the keep-alive time: 15 s"]
fn a_host_in_the_minority_stops_and_comes_back_as_a_node() {
    let Some(mut site) = site() else { return };
    site.lab.unplug(0);
    site.wait_for_world(&[1, 2]);
    site.wait_for_said(0, CUT_OFF);
    pause(Duration::from_secs(3));
    let records = site.records();
    let alone = records.iter().any(|it| it.node == 0 && it.world < 3);
    assert!(!alone, "{records:?}");
    site.lab.plug(0);
    site.wait_for_world(&[0, 1, 2]);
    site.go(&[0, 1, 2]);
}

/// What a host says that is cut off, when it ends its ranks.
const CUT_OFF: &str = "gone; the others start a new round";

#[test]
#[ignore = "a cable that flaps: 40 s"]
fn a_cable_that_flaps_does_not_split_the_launch() {
    let Some(mut site) = site() else { return };
    for (host, tenths) in [(0, 5), (0, 45), (1, 20), (0, 35), (2, 45), (0, 25), (1, 45)] {
        site.lab.unplug(host);
        pause(Duration::from_millis(100 * tenths));
        site.lab.plug(host);
        pause(Duration::from_millis(700));
    }
    site.wait_for_world(&[0, 1, 2]);
    // Each round has a store of its own: those who meet there are one world, each rank once.
    let mut rounds = BTreeMap::<_, Vec<(usize, usize)>>::new();
    for record in site.records() {
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
    site.go(&[0, 1, 2]);
}

#[test]
#[ignore = "an evaluation on three nodes: 20 s"]
fn an_evaluation_loses_no_episode_with_its_host() {
    let mut cluster = Cluster::losing();
    evaluation::write_jobs(&cluster, EPISODES);
    for node in 1..=3 {
        let given = cluster.elastic_node(&format!("1:3 --local-addr 127.0.0.{node}"));
        cluster.start(given.program(format!("{EVAL} --shard episodes").as_str()));
        wait_for_store(&mut cluster);
    }
    evaluation::begin(&mut cluster);
    evaluation::kill(&cluster, 0, EPISODES);
    cluster.all_end_with(0, &[1, 2]);
    evaluation::is_whole(&cluster, EPISODES);
}

#[test]
#[ignore = "an evaluation on three machines: 20 s"]
fn leases_of_an_evaluation_hold_when_its_host_is_cut_off() {
    let Some(mut site) = Site::new(3) else { return };
    evaluation::write_jobs(&site, EPISODES);
    site.conf = LOSING;
    for host in 0..3 {
        let given = site.elastic_node(host, "1:3");
        site.start(given.program(format!("{EVAL} --assign dynamic").as_str()));
    }
    evaluation::begin(&mut site);
    site.lab.unplug(0);
    site.all_end_with(0, &[1, 2]);
    site.wait_for_said(0, CUT_OFF);
    evaluation::is_whole(&site, EPISODES);
}
