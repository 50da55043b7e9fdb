//! Tests of machines that die during a launch, and of others that join.

use crate::nodes::cluster::{RECORD, Record, sh};
use crate::nodes::site::{NOTICED, Site, Stopwatch};

/// Starts three machines in one elastic launch; the first has the store.
fn three(nnodes: &str) -> Option<Site> {
    let mut site = Site::new(4)?;
    for host in 0..3 {
        site.elastic(host, nnodes, &["--nproc-per-node", "2"], &sh(RECORD));
    }
    site.cluster.wait_for(6, 6, 0);
    Some(site)
}

/// Waits for a later round with `world` ranks.
fn next_round(site: &mut Site, world: usize) -> Vec<Record> {
    site.cluster.wait_for(world, world, 0)
}

#[test]
#[ignore = "waits for the keep-alive time: 6 s"]
fn a_killed_launcher_is_missed_and_the_others_go_on() {
    let Some(mut site) = three("2:3") else { return };
    let watch = Stopwatch::start();
    site.cluster.signal(1, "KILL");
    next_round(&mut site, 4);
    watch.within(NOTICED, "a round without the killed launcher");
    assert!(
        site.cluster.stderr(0).contains("node 10.77.0.2 is gone"),
        "{}",
        site.cluster.stderr(0)
    );
    site.cluster.go();
    site.cluster.all_succeed(&[0, 2]);
}

#[test]
#[ignore = "waits for the keep-alive time: 6 s"]
fn a_machine_without_power_is_missed_and_the_others_go_on() {
    let Some(mut site) = three("2:3") else { return };
    let watch = Stopwatch::start();
    site.lose(1, 1);
    next_round(&mut site, 4);
    watch.within(NOTICED, "a round without the machine");
    site.cluster.go();
    site.cluster.all_succeed(&[0, 2]);
}

#[test]
#[ignore = "waits for the keep-alive time: 6 s"]
fn a_static_launch_fails_when_a_machine_loses_power() {
    let Some(mut site) = Site::new(3) else { return };
    for host in 0..3 {
        site.fixed(host, 3, &[], &sh(RECORD));
    }
    site.cluster.wait_for(3, 3, 0);
    let watch = Stopwatch::start();
    site.lose(1, 1);
    for node in [0, 2] {
        assert_eq!(site.cluster.end(node), 1);
        let said = site.cluster.stderr(node);
        assert!(
            said.contains("the launch has failed on 10.77.0.2: the node is gone"),
            "{said}"
        );
    }
    watch.within(NOTICED, "the end of a static launch");
}

#[test]
#[ignore = "waits for the keep-alive time: 10 s"]
fn a_machine_takes_the_place_of_one_without_power() {
    let Some(mut site) = three("3") else { return };
    site.lose(1, 1);
    site.cluster.wait_until("that a node is missed", |cluster| {
        cluster.stderr(0).contains("node 10.77.0.2 is gone")
    });
    let spare = site.elastic(3, "3", &["--nproc-per-node", "2"], &sh(RECORD));
    let all = site.cluster.wait_for(12, 6, 0);
    assert_eq!(all.iter().filter(|record| record.node == spare).count(), 2);
    site.cluster.go();
    site.cluster.all_succeed(&[0, 2, spare]);
}

#[test]
#[ignore = "three rounds: 8 s"]
fn a_launch_grows_and_shrinks() {
    let Some(mut site) = three("1:4") else { return };
    let late = site.elastic(3, "1:4", &["--nproc-per-node", "2"], &sh(RECORD));
    next_round(&mut site, 8);
    site.cluster.signal(late, "TERM");
    assert_eq!(site.cluster.end(late), 1);
    let again = site.cluster.wait_for(12, 6, 0);
    assert!(again.iter().all(|record| record.node < 3), "{again:?}");
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1, 2]);
}
