//! Tests of machines that die during a launch, and of others that join.

use rig::run::Signal;
use rig::wait::now;

use crate::nodes::cluster::{LOSING, RECORD};
use crate::nodes::site::{NOTICED, Site, within};

/// Starts three of four machines in one elastic launch; the first has the store.
fn three(nnodes: &str) -> Option<Site> {
    let mut site = Site::losing(4, 3, &format!("{nnodes} --nproc-per-node 2"), RECORD)?;
    site.wait_for(6, 6, 0);
    Some(site)
}

#[test]
#[ignore = "waits for the keep-alive time: 6 s"]
fn a_machine_without_power_is_missed_and_the_others_go_on() {
    let Some(mut site) = three("2:3") else { return };
    let lost = now();
    site.lose(1, 1);
    site.wait_for(4, 4, 0);
    within(lost, NOTICED, "a round without the machine");
    site.says(0, &["node 10.77.0.2 is gone"]);
    site.go(&[0, 2]);
}

#[test]
#[ignore = "waits for the keep-alive time: 6 s"]
fn a_static_launch_fails_when_a_machine_loses_power() {
    let Some(mut site) = Site::new(3) else { return };
    site.conf = LOSING;
    for host in 0..3 {
        site.fixed(host, "3", RECORD);
    }
    site.wait_for(3, 3, 0);
    let lost = now();
    site.lose(1, 1);
    site.all_end_with(1, &[0, 2]);
    for node in [0, 2] {
        site.says(
            node,
            &["the launch has failed on 10.77.0.2: the node is gone"],
        );
    }
    within(lost, NOTICED, "the end of a static launch");
}

#[test]
#[ignore = "waits for the keep-alive time: 10 s"]
fn a_machine_takes_the_place_of_one_without_power() {
    let Some(mut site) = three("3") else { return };
    site.lose(1, 1);
    site.wait_for_said(0, "node 10.77.0.2 is gone");
    let spare = site.elastic(3, "3 --nproc-per-node 2", RECORD);
    let all = site.wait_for(12, 6, 0);
    assert_eq!(all.iter().filter(|record| record.node == spare).count(), 2);
    site.go(&[0, 2, spare]);
}

#[test]
#[ignore = "three rounds: 8 s"]
fn a_launch_grows_and_shrinks() {
    let Some(mut site) = three("1:4") else { return };
    let late = site.elastic(3, "1:4 --nproc-per-node 2", RECORD);
    site.wait_for(8, 8, 0);
    site.signal(late, Signal::TERM);
    site.all_end_with(1, &[late]);
    let again = site.wait_for(12, 6, 0);
    assert!(again.iter().all(|record| record.node < 3), "{again:?}");
    site.go(&[0, 1, 2]);
}
