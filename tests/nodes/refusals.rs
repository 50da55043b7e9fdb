//! Tests of nodes that cannot complete a rendezvous, and of their messages.

use crate::nodes::cluster::{Cluster, RECORD, sh};
use crate::nodes::foreign::serve;

#[test]
fn too_few_nodes_are_counted() {
    let mut cluster = Cluster::new();
    let node = cluster.elastic(
        "2",
        &["--rdzv-conf", "join_timeout=1,keep_alive_interval=1"],
        &sh(RECORD),
    );
    assert_eq!(cluster.end(node), 1);
    assert!(
        cluster
            .stderr(node)
            .contains("only 1 of 2 nodes joined within 1 s"),
        "{}",
        cluster.stderr(node)
    );
}

#[test]
fn a_first_node_that_is_not_there_is_named_with_what_was_tried() {
    let mut cluster = Cluster::new();
    let node = cluster.fixed(2, 1, &["--rdzv-conf", "timeout=1"], &sh(RECORD));
    assert_eq!(cluster.end(node), 1);
    let said = cluster.stderr(node);
    assert!(
        said.contains("cannot reach the rendezvous at 127.0.0.2:")
            && said.contains("Connection refused"),
        "{said}"
    );
}

#[test]
fn a_name_that_does_not_resolve_is_named() {
    let mut cluster = Cluster::new();
    let options = ["--rdzv-conf", "read_timeout=1"];
    let node = cluster.elastic_at("nowhere.invalid", "2", &options, &sh(RECORD));
    assert_eq!(cluster.end(node), 1);
    assert!(
        cluster
            .stderr(node)
            .contains("`nowhere.invalid` does not resolve"),
        "{}",
        cluster.stderr(node)
    );
}

#[test]
fn a_missing_node_is_named_by_its_rank() {
    let mut cluster = Cluster::new();
    let node = cluster.fixed(3, 0, &["--rdzv-conf", "timeout=1"], &sh(RECORD));
    assert_eq!(cluster.end(node), 1);
    assert!(
        cluster
            .stderr(node)
            .contains("nodes 1, 2 of 3 did not join within 1 s"),
        "{}",
        cluster.stderr(node)
    );
}

#[test]
fn a_signal_ends_the_wait_for_others() {
    let mut cluster = Cluster::new();
    let node = cluster.fixed(2, 0, &[], &sh(RECORD));
    cluster.wait_until("that it waits", |cluster| {
        cluster.stderr(node).contains("waiting for node 1 of 2")
    });
    cluster.signal(node, "TERM");
    assert_eq!(cluster.end(node), 1);
}

#[test]
fn who_comes_after_the_end_is_told_how_it_ended() {
    let mut cluster = Cluster::at(serve());
    let options = ["--rdzv-conf", "is_host=0"];
    cluster.elastic("1", &options, &sh("exit 3"));
    assert_eq!(cluster.end(0), 1);
    cluster.elastic("1", &options, &sh("exit 0"));
    assert_eq!(cluster.end(1), 1);
    let said = cluster.stderr(1);
    assert!(
        said.contains("the launch with the id `none` has ended (node ") && said.contains("code 3"),
        "{said}"
    );
}
