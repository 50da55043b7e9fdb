//! Tests of a rendezvous of torchrun, and of a torchrun that tries to join one of `rrun`.

use rig::need::{Need, need};
use rig::run::{Given, Running};

use crate::nodes::cluster::{Cluster, RECORD};
use crate::nodes::store;

/// The key of the rendezvous.
const STATE: &str = "torch.rendezvous.none";

#[test]
fn rrun_says_that_it_cannot_join_torchrun() {
    let port = store::serve();
    // Torch's value for "no state yet", with which every torchrun agent begins.
    store::with("127.0.0.1", port, async |client| {
        client.set(STATE, b"Y2FuaW1hZGFt").await.unwrap();
    });
    let mut cluster = Cluster::at(port);
    let node = cluster.elastic("2", RECORD);
    cluster.all_end_with(1, &[node]);
    cluster.says(
        node,
        &["torchrun keeps the rendezvous", "another --rdzv-id"],
    );
}

/// Starts a real torchrun with its rendezvous at the port of the cluster.
fn torchrun(cluster: &Cluster, nnodes: &str) -> Running {
    let endpoint = format!("127.0.0.1:{}", cluster.port());
    Given::new(rig::PYTHON)
        .words("-m torch.distributed.run --rdzv-backend c10d --nnodes")
        .words([nnodes, "--rdzv-endpoint", &endpoint])
        .words("--rdzv-conf read_timeout=20")
        .program(["--no-python", "/bin/sh", "-c", "exit 0"])
        .start()
}

#[test]
#[ignore = "starts a real torchrun: 10 s"]
fn a_torchrun_that_joins_rrun_says_why_it_cannot_and_does_no_harm() {
    if !need(Need::Torch) {
        return;
    }
    let mut cluster = Cluster::new();
    let node = cluster.elastic("1:2", RECORD);
    cluster.wait_for(1, 1, 0);
    let ended = torchrun(&cluster, "1:2").wait();
    assert_ne!(ended.code, 0);
    ended.stderr_has("torchrun cannot take part in it: start this node with rrun too");
    cluster.go(&[node]);
    assert_eq!(cluster.records().len(), 1);
}

#[test]
#[ignore = "starts a real torchrun: 10 s"]
fn rrun_that_joins_a_torchrun_says_why_it_cannot_and_does_no_harm() {
    if !need(Need::Torch) {
        return;
    }
    let mut cluster = Cluster::new();
    let torchrun = torchrun(&cluster, "2");
    store::with("127.0.0.1", cluster.port(), async |client| {
        client.get(STATE).await.unwrap()
    });
    let node = cluster.elastic("2", RECORD);
    cluster.all_end_with(1, &[node]);
    cluster.says(
        node,
        &["torchrun keeps the rendezvous", "another --rdzv-id"],
    );
    assert!(
        torchrun.is_running(),
        "it still waits for a second torchrun"
    );
}
