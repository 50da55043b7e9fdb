//! Tests of launches on machines in a network: addresses, names, interfaces.

use crate::nodes::cluster::RECORD;
use crate::nodes::site::Site;

#[test]
fn four_nodes_of_sixteen_ranks_are_a_world_of_64_in_the_order_of_their_node_ranks() {
    let Some(mut site) = Site::new(4) else { return };
    let script = RECORD.replace("$NODE", "$GROUP_RANK");
    for host in [3, 1, 0, 2] {
        site.fixed(host, "4 --nproc-per-node 16", &script);
    }
    let all = site.wait_for(64, 64, 0);
    let mut ranks: Vec<usize> = all.iter().map(|record| record.rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (0..64).collect::<Vec<_>>());
    for record in &all {
        assert_eq!(record.rank / 16, record.node, "{all:?}");
        assert_eq!(record.master, "10.77.0.1:29400");
    }
    site.go(&[0, 1, 2, 3]);
}

/// Two machines meet with these options; their ranks do at an address that begins like this.
#[track_caller]
fn meet(words: &str, master: &str) {
    let Some(mut site) = Site::new(2) else { return };
    for host in 0..2 {
        let address = format!("10.78.0.{}", host + 1);
        let words = words.replace("{host}", &host.to_string());
        let node = site.node(host, &words.replace("{address}", &address));
        site.start(node.words("--nnodes 2").sh(RECORD));
    }
    let both = site.wait_for(2, 2, 0);
    for record in &both {
        assert!(record.master.starts_with(master), "{both:?}");
    }
    site.go(&[0, 1]);
}

#[test]
fn nodes_meet_at_an_ipv6_address() {
    meet(
        "--rdzv-backend c10d --rdzv-endpoint [fd00::1]:29400",
        "fd00::1:",
    );
}

#[test]
fn static_nodes_meet_at_an_ipv6_address() {
    meet(
        "--node-rank {host} --master-addr [fd00::1]",
        "fd00::1:29500",
    );
}

#[test]
fn a_host_name_is_an_endpoint_and_its_owner_hosts() {
    meet("--rdzv-backend c10d --rdzv-endpoint node1:29400", "");
}

#[test]
fn a_local_address_chooses_the_network_of_the_ranks() {
    let meeting = "--rdzv-backend c10d --rdzv-endpoint 10.77.0.1";
    meet(&format!("{meeting} --local-addr {{address}}"), "10.78.0.1:");
}

/// A machine that reaches no other says why.
#[track_caller]
fn says_why(words: &str, texts: &[&str]) {
    let Some(mut site) = Site::new(1) else { return };
    let node = site.node(0, words).words("--nnodes 2");
    site.start(node.sh(RECORD));
    site.all_end_with(1, &[0]);
    site.says(0, texts);
}

#[test]
fn a_master_in_a_network_without_a_way_is_said_to_be_so() {
    says_why(
        "--node-rank 1 --master-addr 10.99.0.1 --rdzv-conf timeout=1",
        &["at 10.99.0.1:29500 within 1 s", "Network is unreachable"],
    );
}

#[test]
#[ignore = "waits for the kernel to give up: 4 s"]
fn a_master_that_is_not_there_is_said_to_be_so() {
    says_why(
        "--node-rank 1 --master-addr 10.77.0.9 --rdzv-conf timeout=4",
        &["at 10.77.0.9:29500 within 4 s", "No route to host"],
    );
}
