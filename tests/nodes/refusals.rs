//! Tests of nodes that cannot complete a rendezvous, and of their messages.

use rig::run::Signal;

use crate::nodes::cluster::{Cluster, RECORD};
use crate::nodes::store;

#[test]
fn a_rendezvous_in_vain_names_what_is_missing_and_what_was_tried() {
    let mut cluster = Cluster::new();
    let nowhere = "--rdzv-endpoint nowhere.invalid:1 --rdzv-conf read_timeout=1";
    cluster.elastic("2 --rdzv-conf join_timeout=1,keep_alive_interval=1", RECORD);
    cluster.elastic(&format!("2 {nowhere}"), RECORD);
    cluster.all_end_with(1, &[0, 1]);
    cluster.says(0, &["only 1 of 2 nodes joined within 1 s"]);
    cluster.says(1, &["`nowhere.invalid` does not resolve"]);

    let mut cluster = Cluster::new();
    cluster.fixed(1, "2 --rdzv-conf timeout=1", RECORD);
    cluster.all_end_with(1, &[0]);
    let unreachable = "cannot reach the store at 127.0.0.2:";
    cluster.says(0, &[unreachable, "Connection refused"]);
    cluster.fixed(0, "3 --rdzv-conf timeout=1", RECORD);
    cluster.all_end_with(1, &[1]);
    cluster.says(1, &["nodes 1, 2 of 3 did not join within 1 s"]);
}

#[test]
fn a_signal_ends_the_wait_for_others() {
    let mut cluster = Cluster::new();
    let node = cluster.fixed(0, "2", RECORD);
    cluster.wait_for_said(node, "waiting for node 1 of 2");
    cluster.signal(node, Signal::TERM);
    cluster.all_end_with(1, &[node]);
}

#[test]
fn who_comes_after_the_end_is_told_how_it_ended() {
    let mut cluster = Cluster::at(store::serve());
    cluster.elastic("1 --rdzv-conf is_host=0", "exit 3");
    cluster.all_end_with(1, &[0]);
    cluster.elastic("1 --rdzv-conf is_host=0", "exit 0");
    cluster.all_end_with(1, &[1]);
    cluster.says(
        1,
        &["the launch with the id `none` has ended (node ", "code 3"],
    );
}
