//! Tests of elastic launches: nodes arrive, leave or die, and the others start another round.

use rig::run::Signal;

use crate::nodes::cluster::{Cluster, FAST, RECORD, Record};

/// Returns node and rank of each record.
fn places(records: &[Record]) -> Vec<(usize, usize)> {
    records.iter().map(|it| (it.node, it.rank)).collect()
}

/// Starts a node and then a second one, which the first lets in.
fn two() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.elastic("1:2 --node-rank 0", RECORD);
    cluster.wait_for(1, 1, 0);
    cluster.elastic("1:2 --node-rank 1", RECORD);
    let both = cluster.wait_for(2, 2, 0);
    assert_eq!(places(&both), [(0, 0), (1, 1)], "no restart was counted");
    assert_eq!(both[0].master, both[1].master);
    cluster
}

#[test]
fn the_rest_goes_on_without_a_killed_node_under_a_new_master() {
    let mut cluster = Cluster::losing();
    // Node 0 has the store, node 1 has rank 0.
    cluster.elastic("1:3 --local-addr 127.0.0.3", RECORD);
    cluster.wait_for(1, 1, 0);
    cluster.elastic("1:3 --local-addr 127.0.0.1", RECORD);
    cluster.elastic("1:3 --local-addr 127.0.0.2", RECORD);
    let all = cluster.wait_for_world(&[0, 1, 2]);
    assert_eq!(places(&all), [(0, 2), (1, 0), (2, 1)]);
    assert!(all[0].master.starts_with("127.0.0.1:"), "{all:?}");
    cluster.signal(1, Signal::KILL);
    let rest = cluster.wait_for_world(&[0, 2]);
    assert!(rest[0].master.starts_with("127.0.0.2:"), "{rest:?}");
    cluster.go(&[0, 2]);
}

#[test]
fn a_node_that_was_cut_off_comes_back() {
    let mut cluster = Cluster::losing();
    cluster.elastic("1:2", RECORD);
    cluster.wait_for_world(&[0]);
    cluster.elastic("1:2", RECORD);
    cluster.wait_for_world(&[0, 1]);
    cluster.signal(1, Signal::STOP);
    cluster.wait_for_world(&[0]);
    cluster.signal(1, Signal::CONT);
    // It hears that the others considered it dead, or finds first that the store has not answered
    // for so long, and looks for another host.
    cluster.wait_for_world(&[0, 1]);
    cluster.go(&[0, 1]);
}

#[test]
fn a_node_that_is_told_to_stop_leaves_the_others_running_and_another_is_let_in() {
    let mut cluster = two();
    cluster.signal(1, Signal::TERM);
    cluster.all_end_with(1, &[1]);
    cluster.wait_for(2, 1, 0);
    cluster.says(
        0,
        &["node 127.0.0.1 was stopped; the others start a new round"],
    );
    cluster.elastic("1:2", RECORD);
    cluster.wait_for(4, 2, 0);
    cluster.go(&[0, 2]);
}

#[test]
fn a_host_that_is_told_to_stop_says_so_to_all() {
    let mut cluster = two();
    cluster.signal(0, Signal::TERM);
    cluster.all_end_with(1, &[0, 1]);
    cluster.says(1, &["which hosts the rendezvous, got SIGTERM"]);
}

#[test]
fn nodes_that_share_a_file_need_no_endpoint() {
    let mut cluster = Cluster::new();
    let file = cluster.folder().path("meeting");
    let words = format!(
        "--rdzv-endpoint {} --rdzv-conf store_type=file,{FAST} --local-addr 127.0.0.1",
        file.display()
    );
    // The earlier launch with this file has ended, so that the file is free.
    let first = cluster.elastic(&format!("1 {words}"), "exit 0");
    cluster.all_end_with(0, &[first]);
    let nodes = [0, 1].map(|_| cluster.elastic(&format!("2 {words}"), RECORD));
    cluster.wait_for(2, 2, 0);
    cluster.go(&nodes);
}

#[test]
fn a_spare_is_not_needed_and_ends_well() {
    let mut cluster = Cluster::new();
    cluster.elastic("2", RECORD);
    cluster.elastic("2", RECORD);
    cluster.wait_for(2, 2, 0);
    cluster.elastic("2", RECORD);
    cluster.wait_for_said(2, "waiting as a spare");
    cluster.go(&[0, 1, 2]);
}
