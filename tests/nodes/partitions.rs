//! Tests of machines that are disconnected for some time.

use std::time::Duration;

use rig::wait::{now, pause};

use crate::nodes::cluster::RECORD;
use crate::nodes::site::{NOTICED, Site, within};

/// Lost after 10 s without a heartbeat.
const PATIENT: &str = "keep_alive_interval=1,keep_alive_max_attempt=10,last_call_timeout=1";

#[test]
#[ignore = "a cable out for 3 s: 6 s"]
fn a_short_cut_is_not_noticed() {
    let Some(mut site) = Site::new(2) else { return };
    for host in 0..2 {
        site.elastic(host, &format!("1:2 --rdzv-conf {PATIENT}"), RECORD);
    }
    site.wait_for(2, 2, 0);
    site.lab.unplug(1);
    pause(Duration::from_secs(3));
    site.lab.plug(1);
    // Data from the other side shows that the connection is alive.
    site.go(&[0, 1]);
    assert_eq!(site.records().len(), 2, "{:?}", site.records());
}

#[test]
#[ignore = "waits for the keep-alive time: 15 s"]
fn a_long_cut_ends_the_ranks_behind_it_until_it_is_mended() {
    let Some(mut site) = Site::losing(3, 3, "1:3", RECORD) else {
        return;
    };
    site.wait_for(3, 3, 0);
    let cut = now();
    site.lab.unplug(2);
    site.wait_for(2, 2, 0);
    within(cut, NOTICED, "a round without the node that is cut off");
    site.wait_for_said(2, "the host of the rendezvous is lost; the ranks end");
    within(cut, NOTICED, "the end of the ranks that are cut off");
    site.lab.plug(2);
    site.wait_for(6, 3, 0);
    site.go(&[0, 1, 2]);
}

#[test]
#[ignore = "waits for the keep-alive and the join time: 10 s"]
fn too_few_behind_a_cut_are_told_how_many_they_are() {
    let Some(mut site) = Site::new(2) else { return };
    let conf = "keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=4,read_timeout=4";
    for host in 0..2 {
        site.elastic(host, &format!("2 --rdzv-conf {conf}"), RECORD);
    }
    site.wait_for(2, 2, 0);
    site.lab.unplug(1);
    site.all_end_with(1, &[0, 1]);
    site.says(
        0,
        &[
            "node 10.77.0.2 is gone",
            "only 1 of 2 nodes joined within 4 s",
        ],
    );
}
