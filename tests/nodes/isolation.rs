//! Tests of `--failure-policy isolate` on several nodes.

use rig::run::Signal;

use crate::nodes::cluster::{Cluster, RECORD, Record};
use crate::nodes::store;

const ISOLATED: &str = "--failure-policy isolate --max-restarts 1";

/// Returns a rank that also writes its round, and fails at once under a condition.
fn failing(condition: &str) -> String {
    let fails = format!("echo $RRUN_ROUND >> rounds.$RANK\n[ {condition} ] && exit 4\nawait go");
    RECORD.replace("await go", &fails)
}

/// Returns the value of a key in the store of this launch's ranks.
fn stored(record: &Record, key: &str) -> String {
    let (host, port) = record.master.rsplit_once(':').expect("host and port");
    let value = store::with(host, port.parse().unwrap(), async |client| {
        client.get(key).await.unwrap()
    });
    String::from_utf8(value).unwrap()
}

/// The rank of one node fails twice, and that of the other is not affected; then both nodes end.
#[track_caller]
fn fails_on_its_node_alone(mut cluster: Cluster) {
    let records = cluster.wait_for(1, 2, 1);
    assert_eq!(records[0].rank, 1);
    assert_eq!(
        stored(&records[0], "rrun/lost/none/0/1"),
        "rank 1 exited with code 4; no restart is left"
    );
    let failed = records[0].node;
    let other = 1 - failed;
    let is_other = |record: &&Record| record.node == other;
    assert_eq!(cluster.records().iter().filter(is_other).count(), 1);
    assert!(cluster.is_running(failed), "it waits for the other");
    cluster.go(&[other]);
    cluster.all_end_with(1, &[failed]);
    let lost = "rank 1 exited with code 4";
    cluster.says(
        failed,
        &[
            &format!("{lost}; restart 1 of 1 in 1 s, the other ranks continue\n"),
            &format!("{lost}; no restart is left, the other ranks continue\n"),
            "Root Cause",
        ],
    );
    assert_eq!(cluster.stderr(other), "", "it concerns nobody else");
}

#[test]
fn a_failure_is_told_to_no_other_node() {
    for is_static in [true, false] {
        let mut cluster = Cluster::new();
        for rank in [0, 1] {
            let words = format!("2 {ISOLATED}");
            let node = match is_static {
                true => cluster.fixed_node(rank, &words),
                false => cluster.elastic_node(&words),
            };
            cluster.start(node.sh(&failing("$RANK = 1")));
        }
        fails_on_its_node_alone(cluster);
    }
}

#[test]
fn a_lost_node_begins_a_new_round_of_all_ranks() {
    let mut cluster = Cluster::losing();
    let words = format!("1:2 {ISOLATED} --node-rank");
    let script = failing("$RANK$TORCHELASTIC_RESTART_COUNT = 00");
    cluster.elastic(&format!("{words} 0"), &script);
    cluster.wait_for(1, 1, 1);
    cluster.elastic(&format!("{words} 1"), &script);
    cluster.wait_for_world(&[0, 1]);
    cluster.signal(1, Signal::KILL);
    cluster.wait_for_world(&[0]);
    cluster.go(&[0]);
    // A rank's own counter is unchanged; the round counts restarts of all ranks.
    let own: Vec<u32> = cluster
        .records()
        .iter()
        .filter(|record| record.node == 0)
        .map(|it| it.restarts)
        .collect();
    assert_eq!(own[0], 0);
    assert!(
        own.len() >= 4 && own[1..].iter().all(|restarts| *restarts == 1),
        "{own:?}"
    );
    let rounds = cluster.text("rounds.0");
    assert!(rounds.starts_with("0\n0\n1\n2\n"), "{rounds}");
}
