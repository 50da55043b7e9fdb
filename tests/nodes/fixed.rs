//! Tests of static launches: node ranks are given, and node 0 has the store.

use std::time::Duration;

use launcher::store::StoreClient;

use crate::nodes::cluster::{Cluster, RECORD, rrun, sh};

#[test]
fn nodes_of_different_size_share_a_world() {
    let mut cluster = Cluster::new();
    cluster.fixed(2, 1, &["--nproc-per-node", "2"], &sh(RECORD));
    cluster.fixed(2, 0, &[], &sh(RECORD));
    let places: Vec<(usize, usize)> = cluster
        .wait_for(3, 3, 0)
        .iter()
        .map(|it| (it.node, it.rank))
        .collect();
    assert_eq!(places, [(0, 1), (0, 2), (1, 0)]);
    assert!(
        cluster
            .records()
            .iter()
            .all(|record| record.master.starts_with("127.0.0.2:"))
    );
    cluster.go();
    cluster.all_succeed(&[0, 1]);
}

#[test]
fn a_failure_on_one_node_ends_the_others_and_they_say_which() {
    let mut cluster = Cluster::new();
    let script = format!("[ $RANK = 1 ] && exit 3; {RECORD}");
    let nodes = [0, 1].map(|rank| cluster.fixed(2, rank, &[], &sh(&script)));
    assert_eq!(nodes.map(|node| cluster.end(node)), [1, 1]);
    let said = cluster.stderr(0);
    assert!(
        said.contains("the launch has failed on node ")
            && said.contains("rank 1 exited with code 3"),
        "{said}"
    );
    assert!(
        !said.contains("Root Cause"),
        "no rank of this node is to blame: {said}"
    );
    assert!(
        cluster.stderr(1).contains("Root Cause"),
        "{}",
        cluster.stderr(1)
    );
}

#[test]
fn nodes_that_are_said_to_be_identical_tell_each_other_of_failures_too() {
    let mut cluster = Cluster::new();
    let script = format!("[ $RANK = 1 ] && exit 3; {RECORD}");
    let nodes = [0, 1].map(|rank| {
        let mut command = rrun();
        command.env("TORCH_ELASTIC_WORKER_IDENTICAL", "1");
        cluster.fixed_as(command, 2, rank, &sh(&script))
    });
    assert_eq!(nodes.map(|node| cluster.end(node)), [1, 1]);
    let said = cluster.stderr(0);
    assert!(said.contains("rank 1 exited with code 3"), "{said}");
}

#[test]
fn a_launcher_without_a_name_stays_apart_from_identical_ones() {
    let mut cluster = Cluster::new();
    let mut command = rrun();
    command.env("TORCH_ELASTIC_WORKER_IDENTICAL", "1");
    let node = cluster.fixed_as(command, 2, 0, &sh("[ $RANK/$WORLD_SIZE = 0/2 ]"));
    // Like a torchrun, which counts itself, exchanges no ranks, and waits for all at the end.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = Duration::from_secs(60);
        let mut client = StoreClient::connect("127.0.0.2", cluster.port(), limit).await;
        let client = client.as_mut().unwrap();
        let member = "none/torchelastic/agent/terminal_state/num_members";
        client.add(member, 1).await.unwrap();
        client.count_in().await.unwrap();
    });
    cluster.all_succeed(&[node]);
}

#[test]
fn all_nodes_restart_together() {
    let mut cluster = Cluster::new();
    let script = format!("[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 3; {RECORD}");
    let nodes = [0, 1].map(|rank| cluster.fixed(2, rank, &["--max-restarts", "1"], &sh(&script)));
    assert_eq!(cluster.wait_for(2, 2, 1).len(), 2);
    cluster.go();
    cluster.all_succeed(&nodes);
}

#[test]
fn the_first_node_that_is_done_waits_for_the_last() {
    let mut cluster = Cluster::new();
    cluster.fixed(2, 0, &[], &sh("exit 0"));
    cluster.fixed(2, 1, &[], &sh(RECORD));
    cluster.wait_for(1, 2, 0);
    cluster.go();
    cluster.all_succeed(&[0, 1]);
}

#[test]
fn a_launcher_that_is_killed_is_missed_by_the_other() {
    let mut cluster = Cluster::new();
    let nodes = [0, 1].map(|rank| cluster.fixed(2, rank, &[], &sh(RECORD)));
    cluster.wait_for(2, 2, 0);
    cluster.signal(nodes[1], "KILL");
    assert_eq!(cluster.end(nodes[0]), 1);
    assert!(
        cluster.stderr(nodes[0]).contains("the node is gone"),
        "{}",
        cluster.stderr(nodes[0])
    );
}

#[test]
fn nodes_that_are_all_told_to_stop_do_not_miss_each_other() {
    let mut cluster = Cluster::new();
    let nodes = [0, 1, 2].map(|rank| cluster.fixed(3, rank, &[], &sh(RECORD)));
    cluster.wait_for(3, 3, 0);
    nodes.iter().for_each(|&node| cluster.signal(node, "TERM"));
    for node in nodes {
        assert_eq!(cluster.end(node), 1);
        let said = cluster.stderr(node);
        assert!(
            !said.contains("is gone") && !said.contains("lost the store"),
            "{said}"
        );
    }
}

#[test]
fn two_launchers_with_one_node_rank_are_told_so() {
    let mut cluster = Cluster::new();
    cluster.fixed(3, 0, &[], &sh(RECORD));
    let one = cluster.fixed(3, 1, &[], &sh(RECORD));
    let other = cluster.fixed(3, 1, &[], &sh(RECORD));
    let mut said = String::new();
    cluster.wait_until("the refusal of one of them", |cluster| {
        said = cluster.stderr(one) + &cluster.stderr(other);
        said.contains("--node-rank 1 is taken by another launcher")
    });
}
