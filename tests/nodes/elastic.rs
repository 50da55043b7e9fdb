//! Tests of elastic launches: nodes arrive, leave or die, and the others start another round.

use crate::nodes::cluster::{Cluster, RECORD, Record, sh};

/// Returns node and rank of each record.
fn places(records: &[Record]) -> Vec<(usize, usize)> {
    records
        .iter()
        .map(|record| (record.node, record.rank))
        .collect()
}

#[test]
fn a_late_node_is_let_in_and_costs_no_restart() {
    let mut cluster = Cluster::new();
    cluster.elastic("1:2", &["--node-rank", "0"], &sh(RECORD));
    cluster.wait_for(1, 1, 0);
    cluster.elastic("1:2", &["--node-rank", "1"], &sh(RECORD));
    let both = cluster.wait_for(2, 2, 0);
    assert_eq!(places(&both), [(0, 0), (1, 1)]);
    assert_eq!(both[0].master, both[1].master);
    cluster.go();
    cluster.all_succeed(&[0, 1]);
}

#[test]
fn the_rest_goes_on_without_a_killed_node_under_a_new_master() {
    let mut cluster = Cluster::new();
    // Node 0 has the store, node 1 has rank 0.
    for (node, address) in ["127.0.0.3", "127.0.0.1", "127.0.0.2"]
        .into_iter()
        .enumerate()
    {
        cluster.elastic("1:3", &["--local-addr", address], &sh(RECORD));
        if node == 0 {
            cluster.wait_for(1, 1, 0);
        }
    }
    let all = cluster.wait_for_world(&[0, 1, 2]);
    assert_eq!(places(&all), [(0, 2), (1, 0), (2, 1)]);
    assert!(all[0].master.starts_with("127.0.0.1:"), "{all:?}");
    cluster.signal(1, "KILL");
    let rest = cluster.wait_for_world(&[0, 2]);
    assert!(rest[0].master.starts_with("127.0.0.2:"), "{rest:?}");
    cluster.go();
    cluster.all_succeed(&[0, 2]);
}

#[test]
fn a_node_that_was_cut_off_comes_back() {
    let mut cluster = Cluster::new();
    cluster.elastic("1:2", &[], &sh(RECORD));
    cluster.wait_for(1, 1, 0);
    cluster.elastic("1:2", &[], &sh(RECORD));
    cluster.wait_for(2, 2, 0);
    cluster.signal(1, "STOP");
    cluster.wait_for(2, 1, 0);
    cluster.signal(1, "CONT");
    cluster.wait_for(4, 2, 0);
    assert!(
        cluster.stderr(1).contains("considered this one dead"),
        "{}",
        cluster.stderr(1)
    );
    cluster.go();
    cluster.all_succeed(&[0, 1]);
}

#[test]
fn a_failure_restarts_every_node_once() {
    let mut cluster = Cluster::new();
    let script = format!("[ $RANK$TORCHELASTIC_RESTART_COUNT = 20 ] && exit 3; {RECORD}");
    let options = ["--nproc-per-node", "2", "--max-restarts", "1"];
    let nodes = [0, 1].map(|_| cluster.elastic("2", &options, &sh(&script)));
    let all = cluster.wait_for(4, 4, 1);
    assert_eq!(all.iter().map(|record| record.rank).sum::<usize>(), 6);
    cluster.go();
    cluster.all_succeed(&nodes);
    assert_eq!(
        cluster
            .records()
            .iter()
            .filter(|record| record.restarts > 1)
            .count(),
        0
    );
}

#[test]
fn a_failure_without_restart_ends_all_nodes() {
    let mut cluster = Cluster::new();
    let script = format!("[ $RANK = 1 ] && exit 3; {RECORD}");
    let nodes = [0, 1].map(|_| cluster.elastic("2", &[], &sh(&script)));
    assert_eq!(nodes.map(|node| cluster.end(node)), [1, 1]);
    let said = [0, 1].map(|node| {
        cluster
            .stderr(node)
            .contains("the launch has failed on node ")
    });
    assert_eq!(
        said.iter().filter(|said| **said).count(),
        1,
        "the node that did not fail says who did"
    );
}

#[test]
fn a_node_that_is_told_to_stop_leaves_the_others_running() {
    let mut cluster = Cluster::new();
    cluster.elastic("1:2", &[], &sh(RECORD));
    cluster.wait_for(1, 1, 0);
    cluster.elastic("1:2", &[], &sh(RECORD));
    cluster.wait_for(2, 2, 0);
    cluster.signal(1, "TERM");
    assert_eq!(cluster.end(1), 1);
    cluster.wait_for(2, 1, 0);
    let said = cluster.stderr(0);
    assert!(
        said.contains("node 127.0.0.1 was stopped; the others start a new round"),
        "{said}"
    );
    cluster.elastic("1:2", &[], &sh(RECORD));
    cluster.wait_for(4, 2, 0);
    cluster.go();
    cluster.all_succeed(&[0, 2]);
}

#[test]
fn a_host_that_is_told_to_stop_says_so_to_all() {
    let mut cluster = Cluster::new();
    cluster.elastic("1:2", &[], &sh(RECORD));
    cluster.wait_for(1, 1, 0);
    cluster.elastic("1:2", &[], &sh(RECORD));
    cluster.wait_for(2, 2, 0);
    cluster.signal(0, "TERM");
    assert_eq!([cluster.end(0), cluster.end(1)], [1, 1]);
    assert!(
        cluster
            .stderr(1)
            .contains("which hosts the rendezvous, got SIGTERM"),
        "{}",
        cluster.stderr(1)
    );
}

#[test]
fn nodes_that_share_a_file_need_no_endpoint() {
    let mut cluster = Cluster::new();
    // The earlier launch with this file has ended, so that the file is free.
    let first = cluster.by_file("1", &sh("exit 0"));
    cluster.all_succeed(&[first]);
    let nodes = [0, 1].map(|_| cluster.by_file("2", &sh(RECORD)));
    cluster.wait_for(2, 2, 0);
    cluster.go();
    cluster.all_succeed(&nodes);
}

#[test]
fn a_spare_is_not_needed_and_ends_well() {
    let mut cluster = Cluster::new();
    cluster.elastic_at("127.0.0.2", "2", &[], &sh(RECORD));
    cluster.elastic_at("127.0.0.2", "2", &[], &sh(RECORD));
    cluster.wait_for(2, 2, 0);
    cluster.elastic_at("127.0.0.2", "2", &[], &sh(RECORD));
    cluster.wait_until("a spare", |cluster| {
        cluster.stderr(2).contains("waiting as a spare")
    });
    cluster.go();
    cluster.all_succeed(&[0, 1, 2]);
}
