//! Tests of `--failure-policy isolate` on several nodes.

use std::time::Duration;

use launcher::store::StoreClient;

use crate::nodes::cluster::{Cluster, Record, sh};

/// A rank that writes its rank, world and round, and runs until the file `go` exists. Rank 1 fails
/// at once.
const FAILING: &str = r#"
echo "$NODE $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR $MASTER_PORT" >> "$DIR/records"
echo $RRUN_ROUND >> "$DIR/rounds.$RANK"
[ $RANK = 1 ] && exit 4
while [ ! -e "$DIR/go" ]; do sleep 0.02; done"#;

const ISOLATED: [&str; 4] = ["--failure-policy", "isolate", "--max-restarts", "1"];

/// Returns the value of a key in the store of this launch's ranks.
fn stored(record: &Record, key: &str) -> String {
    let (host, port) = record.master.rsplit_once(':').expect("host and port");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let limit = Duration::from_secs(60);
    let value = runtime.block_on(async {
        let mut client = StoreClient::connect(host, port.parse().expect("a port"), limit).await?;
        client.get(key).await
    });
    String::from_utf8(value.expect("the key comes")).expect("text")
}

/// The rank of one node fails twice, and that of the other is not affected; then both nodes end.
#[track_caller]
fn fails_on_its_node_alone(mut cluster: Cluster, nodes: [usize; 2]) {
    let records = cluster.wait_for(1, 2, 1);
    assert_eq!(records[0].rank, 1);
    assert_eq!(
        stored(&records[0], "rrun/lost/none/0/1"),
        "rank 1 exited with code 4; no restart is left"
    );
    let failed = records[0].node;
    let other = nodes
        .into_iter()
        .find(|node| *node != failed)
        .expect("two nodes");
    assert_eq!(
        cluster
            .records()
            .iter()
            .filter(|record| record.node == other)
            .count(),
        1
    );
    assert!(
        cluster.is_running(failed),
        "it waits for the other\n{}",
        cluster.stderr(failed)
    );
    cluster.go();
    assert_eq!([cluster.end(other), cluster.end(failed)], [0, 1]);
    let said = cluster.stderr(failed);
    assert!(
        said.contains(
            "rank 1 exited with code 4; restart 1 of 1 in 1 s, the other ranks \
            continue\n"
        ),
        "{said}"
    );
    assert!(
        said.contains("rank 1 exited with code 4; no restart is left, the other ranks continue\n"),
        "{said}"
    );
    assert!(said.contains("Root Cause"), "{said}");
    assert_eq!(
        cluster.stderr(other),
        "",
        "nobody is told of what concerns nobody else"
    );
}

#[test]
fn a_failure_is_told_to_no_other_node_of_an_elastic_launch() {
    let mut cluster = Cluster::new();
    let options = [&ISOLATED[..], &["--rdzv-id", "none"]].concat();
    let nodes = [0, 1].map(|_| cluster.elastic("2", &options, &sh(FAILING)));
    fails_on_its_node_alone(cluster, nodes);
}

#[test]
fn a_failure_is_told_to_no_other_node_of_a_static_launch() {
    let mut cluster = Cluster::new();
    let nodes = [0, 1].map(|rank| cluster.fixed(2, rank, &ISOLATED, &sh(FAILING)));
    fails_on_its_node_alone(cluster, nodes);
}

#[test]
fn a_lost_node_begins_a_new_round_of_all_ranks() {
    let script = FAILING.replace(
        "[ $RANK = 1 ] && exit 4",
        "[ $RANK$TORCHELASTIC_RESTART_COUNT = 00 ] && exit 4",
    );
    let mut cluster = Cluster::new();
    let options = |node_rank| [&ISOLATED[..], &["--node-rank", node_rank]].concat();
    cluster.elastic("1:2", &options("0"), &sh(&script));
    cluster.wait_for(1, 1, 1);
    cluster.elastic("1:2", &options("1"), &sh(&script));
    cluster.wait_until("a second round", |cluster| {
        cluster.records().iter().any(|record| record.rank == 1)
            && cluster.text("rounds.0").lines().last() == Some("1")
    });
    cluster.signal(1, "KILL");
    cluster.wait_until("a third round", |cluster| {
        cluster.text("rounds.0").lines().last() == Some("2")
    });
    cluster.go();
    cluster.all_succeed(&[0]);
    // A rank's own counter is unchanged; the round counts restarts of all ranks.
    let own: Vec<u32> = cluster
        .records()
        .iter()
        .filter(|record| record.node == 0)
        .map(|it| it.restarts)
        .collect();
    assert_eq!(
        (own, cluster.text("rounds.0")),
        (vec![0, 1, 1, 1], "0\n0\n1\n2\n".to_owned())
    );
}
