//! What the heartbeats of simulated ranks cost the store, with the messages as they are sent.

use super::*;
use crate::eval::monitor::peers::watch::Overview;

/// What reaches the store in a second: requests, bytes of values, and the requests of rank 0.
#[derive(Debug, PartialEq)]
struct Load {
    requests: f64,
    bytes: f64,
    of_rank_0: f64,
}

/// Ranks of which each is at work, or has arrived and waits, except for the last node of 64 ranks,
/// which has died.
struct Run {
    ranks: usize,
    waits: bool,
}

impl Run {
    fn beat(&self, rank: usize) -> Beat {
        Beat {
            steps: 1_000_000 + rank as u64,
            job: "pick_and_place_of_the_warehouse".to_owned(),
            done: 12,
            of: 50,
            solved: 9,
            arrived: self.waits,
            ended: 312,
            ended_solved: 207,
            own: 400,
            jobs_done: 6,
            jobs: 8,
            sim_s: 1234.5678901234,
            infer_s: 234.5678901234,
            device: "cuda:3".to_owned(),
            gpu_used: 61_234_567_890,
            gpu_total: 85_899_345_920,
            ..Beat::default()
        }
    }

    fn overview(&self) -> Overview {
        let start = now();
        let mut watch = Watch::new(self.ranks, start);
        let later = start + Duration::from_secs(100);
        for rank in 0..self.ranks.saturating_sub(64).max(self.ranks / 2) {
            watch.on(rank, self.beat(rank), later);
        }
        watch.overview(1, later, STILL)
    }

    /// Each request is that of `peers`; the bytes are those of values in both
    /// directions.
    fn load(&self) -> Load {
        let (ranks, every) = (self.ranks as f64, pace(self.ranks).as_secs_f64());
        let beat = json(&self.beat(self.ranks - 1));
        let overview = json(&self.overview());
        // set(beat), check(off)
        let (mut requests, mut bytes) = (2.0 * ranks, beat * ranks);
        let gets = (ranks / AT_ONCE as f64).ceil();
        // check(begun) and its get, which waits first, the gets, check(any), set(overview)
        let (look, begun) = (5.0 + gets, 6.0 * ranks);
        let readers = if self.ranks <= DIRECT && self.waits {
            ranks
        } else {
            1.0
        };
        requests += look * readers;
        bytes += (beat * ranks + begun) * readers + overview;
        if self.waits {
            // wait(all) and its end
            requests += 2.0 * ranks;
        }
        if self.waits && self.ranks > DIRECT {
            // check(overview), and its get, which waits first
            requests += 3.0 * (ranks - 1.0);
            bytes += overview * (ranks - 1.0);
        }
        Load {
            requests: requests / every,
            bytes: bytes / every,
            of_rank_0: (look + 2.0) / every,
        }
    }
}

fn json(value: &impl serde::Serialize) -> f64 {
    serde_json::to_vec(value).unwrap().len() as f64
}

#[test]
fn the_store_keeps_up_with_the_heartbeats_of_any_number_of_ranks() {
    for ranks in [16, 64, 65, 256, 1024, 4096, 16_384] {
        for waits in [false, true] {
            let load = Run { ranks, waits }.load();
            println!(
                "{ranks} ranks, {}: {load:.0?}",
                if waits { "waiting" } else { "working" }
            );
            // Half of what the store of the bench serves, and a tenth of a slow network.
            assert!(load.requests < 15_000.0, "{ranks}, {waits}: {load:?}");
            assert!(load.bytes < 12e6, "{ranks}, {waits}: {load:?}");
            assert!(load.of_rank_0 < 10.0, "{ranks}, {waits}: {load:?}");
        }
    }
}

#[test]
fn ranks_of_a_node_that_died_are_lost_in_the_overview() {
    let run = Run {
        ranks: 16_384,
        waits: true,
    };
    let (now, minute) = (now(), Duration::from_secs(60));
    let mut outlook = Outlook::new(now);
    outlook.on(run.overview(), now);
    let lost = outlook.lost(now, minute);
    assert_eq!(lost, (16_384 - 64..16_384).collect::<Vec<_>>());
    assert!(outlook.settled(16_384, now, minute));
}

#[test]
fn up_to_2048_ranks_have_a_heartbeat_each_second_and_no_rank_waits_for_long() {
    assert_eq!([1, 16, 2048].map(pace), [Duration::from_secs(1); 3]);
    assert_eq!(pace(4096), Duration::from_secs(2));
    assert_eq!(pace(16_384), Duration::from_secs(8));
    assert_eq!(pace(usize::MAX), Duration::from_secs(10));
}
