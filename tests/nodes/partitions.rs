//! Tests of machines that are disconnected for some time.

use crate::nodes::cluster::{RECORD, sh};
use crate::nodes::site::{NOTICED, Site, Stopwatch};

/// Lost after 10 s without a heartbeat.
const PATIENT: &str = "keep_alive_interval=1,keep_alive_max_attempt=10,last_call_timeout=1";

#[test]
#[ignore = "a cable out for 3 s: 6 s"]
fn a_short_cut_is_not_noticed() {
    let Some(mut site) = Site::new(2) else { return };
    for host in 0..2 {
        site.elastic(host, "1:2", &["--rdzv-conf", PATIENT], &sh(RECORD));
    }
    site.cluster.wait_for(2, 2, 0);
    site.lab.unplug(1);
    site.cluster.pause(std::time::Duration::from_secs(3));
    site.lab.plug(1);
    // Data from the other side shows that the connection is alive.
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1]);
    assert_eq!(
        site.cluster.records().len(),
        2,
        "{:?}",
        site.cluster.records()
    );
}

#[test]
#[ignore = "waits for the keep-alive time: 15 s"]
fn a_long_cut_ends_the_ranks_behind_it_until_it_is_mended() {
    let Some(mut site) = Site::new(3) else { return };
    for host in 0..3 {
        site.elastic(host, "1:3", &[], &sh(RECORD));
    }
    site.cluster.wait_for(3, 3, 0);
    let watch = Stopwatch::start();
    site.lab.unplug(2);
    site.cluster.wait_for(2, 2, 0);
    watch.within(NOTICED, "a round without the node that is cut off");
    site.cluster.wait_until("the end of its ranks", |cluster| {
        cluster
            .stderr(2)
            .contains("the host of the rendezvous is lost; the ranks end")
    });
    watch.within(NOTICED, "the end of the ranks that are cut off");
    site.lab.plug(2);
    site.cluster.wait_for(6, 3, 0);
    site.cluster.go();
    site.cluster.all_succeed(&[0, 1, 2]);
}

#[test]
#[ignore = "waits for the keep-alive and the join time: 10 s"]
fn too_few_behind_a_cut_are_told_how_many_they_are() {
    let Some(mut site) = Site::new(2) else { return };
    let options = [
        "--rdzv-conf",
        "keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=4,read_timeout=4",
    ];
    for host in 0..2 {
        site.elastic(host, "2", &options, &sh(RECORD));
    }
    site.cluster.wait_for(2, 2, 0);
    site.lab.unplug(1);
    assert_eq!([site.cluster.end(0), site.cluster.end(1)], [1, 1]);
    let said = site.cluster.stderr(0);
    assert!(
        said.contains("node 10.77.0.2 is gone")
            && said.contains("only 1 of 2 nodes joined within 4 s"),
        "{said}"
    );
}
