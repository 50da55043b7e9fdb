//! Tests of launches on machines in a network: addresses, names, interfaces.

use crate::nodes::cluster::{Cluster, FAST, RECORD, sh};
use crate::nodes::site::Site;

/// Checks nodes of 64 ranks: each has sixteen consecutive ranks, and all have one master.
#[track_caller]
fn are_64_ranks(cluster: &mut Cluster, master: &str) {
    let all = cluster.wait_for(64, 64, 0);
    let mut ranks: Vec<usize> = all.iter().map(|record| record.rank).collect();
    assert!(
        all.iter().all(|record| record.rank / 16 == record.node),
        "{all:?}"
    );
    ranks.sort_unstable();
    assert_eq!(ranks, (0..64).collect::<Vec<_>>());
    assert!(
        all.iter()
            .all(|record| record.master == all[0].master && record.master.starts_with(master)),
        "{all:?}"
    );
    cluster.go();
    cluster.all_succeed(&[0, 1, 2, 3]);
}

#[test]
fn four_elastic_nodes_of_sixteen_ranks_are_a_world_of_64() {
    let Some(mut site) = Site::new(4) else { return };
    for host in 0..4 {
        site.elastic(host, "4", &["--nproc-per-node", "16"], &sh(RECORD));
    }
    are_64_ranks(&mut site.cluster, "10.77.0.1:");
}

#[test]
fn four_static_nodes_of_sixteen_ranks_are_a_world_of_64() {
    let Some(mut site) = Site::new(4) else { return };
    for host in [3, 1, 0, 2] {
        site.fixed(
            host,
            4,
            &["--nproc-per-node", "16"],
            &sh(&RECORD.replace("$NODE", "$GROUP_RANK")),
        );
    }
    are_64_ranks(&mut site.cluster, "10.77.0.1:29400");
}

#[test]
fn nodes_meet_at_an_ipv6_address() {
    let Some(mut site) = Site::new(2) else { return };
    let options = [
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "[fd00::1]:29400",
        "--nnodes",
        "2",
    ];
    for host in 0..2 {
        site.start(
            host,
            &[&options[..], &["--rdzv-conf", FAST]].concat(),
            &sh(RECORD),
        );
    }
    let both = site.cluster.wait_for(2, 2, 0);
    assert!(
        both.iter()
            .all(|record| record.master.starts_with("fd00::1:")),
        "{both:?}"
    );
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1]);
}

#[test]
fn static_nodes_meet_at_an_ipv6_address() {
    let Some(mut site) = Site::new(2) else { return };
    for (host, rank) in ["0", "1"].into_iter().enumerate() {
        let options = [
            "--nnodes",
            "2",
            "--node-rank",
            rank,
            "--master-addr",
            "[fd00::1]",
            "--rdzv-conf",
            FAST,
        ];
        site.start(host, &options, &sh(RECORD));
    }
    let both = site.cluster.wait_for(2, 2, 0);
    assert!(
        both.iter().all(|record| record.master == "fd00::1:29500"),
        "{both:?}"
    );
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1]);
}

#[test]
fn a_host_name_is_an_endpoint_and_its_owner_hosts() {
    let Some(mut site) = Site::new(2) else { return };
    let options = [
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "node1:29400",
        "--nnodes",
        "2",
        "--rdzv-conf",
        FAST,
    ];
    for host in 0..2 {
        site.start(host, &options, &sh(RECORD));
    }
    site.cluster.wait_for(2, 2, 0);
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1]);
}

#[test]
fn a_local_address_chooses_the_network_of_the_ranks() {
    let Some(mut site) = Site::new(2) else { return };
    for (host, address) in ["10.78.0.1", "10.78.0.2"].into_iter().enumerate() {
        site.elastic(host, "2", &["--local-addr", address], &sh(RECORD));
    }
    let both = site.cluster.wait_for(2, 2, 0);
    assert!(
        both.iter()
            .all(|record| record.master.starts_with("10.78.0.1:")),
        "{both:?}"
    );
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1]);
}

#[test]
fn a_name_that_is_unknown_on_one_machine_is_named() {
    let Some(mut site) = Site::new(1) else { return };
    let options = [
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "node7:29400",
        "--nnodes",
        "2",
    ];
    site.start(
        0,
        &[&options[..], &["--rdzv-conf", "read_timeout=1"]].concat(),
        &sh(RECORD),
    );
    assert_eq!(site.cluster.end(0), 1);
    let said = site.cluster.stderr(0);
    assert!(
        said.contains(
            "cannot reach the rendezvous at node7:29400 within 1 s: `node7` does not resolve"
        ),
        "{said}"
    );
}

#[test]
fn a_master_in_a_network_without_a_way_is_said_to_be_so() {
    let Some(mut site) = Site::new(1) else { return };
    let options = [
        "--nnodes",
        "2",
        "--node-rank",
        "1",
        "--master-addr",
        "10.99.0.1",
        "--rdzv-conf",
        "timeout=1",
    ];
    site.start(0, &options, &sh(RECORD));
    assert_eq!(site.cluster.end(0), 1);
    let said = site.cluster.stderr(0);
    assert!(
        said.contains("at 10.99.0.1:29500 within 1 s") && said.contains("Network is unreachable"),
        "{said}"
    );
}

#[test]
#[ignore = "waits for the kernel to give up: 4 s"]
fn a_master_that_is_not_there_is_said_to_be_so() {
    let Some(mut site) = Site::new(1) else { return };
    let options = [
        "--nnodes",
        "2",
        "--node-rank",
        "1",
        "--master-addr",
        "10.77.0.9",
        "--rdzv-conf",
        "timeout=4",
    ];
    site.start(0, &options, &sh(RECORD));
    assert_eq!(site.cluster.end(0), 1);
    let said = site.cluster.stderr(0);
    assert!(
        said.contains("at 10.77.0.9:29500 within 4 s") && said.contains("No route to host"),
        "{said}"
    );
}
