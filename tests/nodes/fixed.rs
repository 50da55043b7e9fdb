//! Tests of static launches: node ranks are given, and node 0 has the store.

use rig::run::Signal;

use crate::nodes::cluster::{Cluster, RECORD};
use crate::nodes::store;

#[test]
fn nodes_of_different_size_share_a_world_and_restart_together() {
    let mut cluster = Cluster::new();
    let script = format!("[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 3; {RECORD}");
    cluster.fixed(1, "2 --nproc-per-node 2 --max-restarts 1", &script);
    cluster.fixed(0, "2 --max-restarts 1", &script);
    let all = cluster.wait_for(3, 3, 1);
    let places: Vec<(usize, usize)> = all.iter().map(|it| (it.node, it.rank)).collect();
    assert_eq!(places, [(0, 1), (0, 2), (1, 0)]);
    let records = cluster.records();
    assert!(records.iter().all(|it| it.master.starts_with("127.0.0.2:")));
    cluster.go(&[0, 1]);
}

#[test]
fn a_failure_on_one_node_ends_the_others_and_they_say_which() {
    let script = format!("[ $RANK = 1 ] && exit 3; {RECORD}");
    for identical in ["0", "1"] {
        let mut cluster = Cluster::new();
        for rank in [0, 1] {
            let node = cluster.fixed_node(rank, "2").sh(&script);
            cluster.start(node.env("TORCH_ELASTIC_WORKER_IDENTICAL", identical));
        }
        cluster.all_end_with(1, &[0, 1]);
        let failure = "rank 1 exited with code 3";
        cluster.says(0, &["the launch has failed on node ", failure]);
        cluster.lacks(0, &["Root Cause"]);
        cluster.says(1, &["Root Cause"]);
    }
}

#[test]
fn other_nodes_hear_of_a_rank_that_cannot_be_started_again_and_not_of_its_death_before() {
    let mut cluster = Cluster::new();
    cluster.fixed(0, "2 --max-restarts 1", RECORD);
    let script = format!("[ $RANK = 0 ] && {{ {RECORD}; }}; rm -r logs; touch logs; exit 3");
    cluster.fixed(1, "2 --max-restarts 1 -r 3 --log-dir logs", &script);
    cluster.all_end_with(1, &[0, 1]);
    let failure = "rank 1 could not be started";
    cluster.says(0, &["the launch has failed on node ", failure]);
}

#[test]
fn a_launcher_without_a_name_stays_apart_from_identical_ones() {
    let mut cluster = Cluster::new();
    let given = cluster.fixed_node(0, "2").sh("[ $RANK/$WORLD_SIZE = 0/2 ]");
    let node = cluster.start(given.env("TORCH_ELASTIC_WORKER_IDENTICAL", "1"));
    // Like a torchrun, which counts itself, exchanges no ranks, and waits for all at the end.
    store::with("127.0.0.2", cluster.port(), async |client| {
        let member = "none/torchelastic/agent/terminal_state/num_members";
        client.add(member, 1).await.unwrap();
        client.count_in().await.unwrap();
    });
    cluster.all_end_with(0, &[node]);
}

#[test]
fn a_launcher_that_is_killed_is_missed_by_the_other() {
    let mut cluster = Cluster::losing();
    let nodes = [0, 1].map(|rank| cluster.fixed(rank, "2", RECORD));
    cluster.wait_for(2, 2, 0);
    cluster.signal(nodes[1], Signal::KILL);
    cluster.all_end_with(1, &[nodes[0]]);
    cluster.says(nodes[0], &["the node is gone"]);
}

#[test]
fn nodes_that_are_all_told_to_stop_do_not_miss_each_other() {
    let mut cluster = Cluster::new();
    let nodes = [0, 1, 2].map(|rank| cluster.fixed(rank, "3", RECORD));
    cluster.wait_for(3, 3, 0);
    for node in nodes {
        cluster.signal(node, Signal::TERM);
    }
    cluster.all_end_with(1, &nodes);
    for node in nodes {
        cluster.lacks(node, &["is gone", "lost the store"]);
    }
}

#[test]
fn two_launchers_with_one_node_rank_are_told_so() {
    let mut cluster = Cluster::new();
    cluster.fixed(0, "3", RECORD);
    cluster.fixed(1, "3", RECORD);
    cluster.fixed(1, "3", RECORD);
    cluster.until("the refusal of one of them", |cluster| {
        let said = cluster.stderr(1) + &cluster.stderr(2);
        said.contains("--node-rank 1 is taken by another launcher")
    });
}
