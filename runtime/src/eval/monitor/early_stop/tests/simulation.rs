//! What the outcomes of simulated ranks cost the store and rank 0, with the real messages.

use std::time::{Duration, Instant};

use jobs::samples;
use rig::memory_store::MemoryStore;

use super::*;
use crate::clock::now;
use crate::eval::monitor::Every;

const SPAN: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(50);

/// Ranks with one environment each, whose episodes take this long.
struct Run {
    ranks: usize,
    episode: Duration,
}

/// What reaches the store in a second, what it holds after an hour, and the most requests that rank
/// 0 makes between two steps.
#[derive(Debug)]
struct Load {
    requests: f64,
    bytes: f64,
    held_in_an_hour: f64,
    at_once: u64,
}

struct Rank {
    part: EarlyStop,
    beat: Beat,
    /// When its next episode ends.
    ends: Instant,
    told: Every,
}

impl Run {
    fn load(&self) -> Load {
        let (start, (store, memory)) = (now() + SPAN, MemoryStore::new());
        let mut ranks: Vec<Rank> = (0..self.ranks).map(|rank| self.rank(rank, start)).collect();
        let mut at_once = 0;
        let mut episode = samples::episode(12, "pick_and_place", 34_567);
        let mut moment = start;
        while moment < start + SPAN {
            moment += TICK;
            for number in 0..self.ranks {
                let rank = &mut ranks[number];
                episode.rank = number;
                while rank.ends <= moment {
                    rank.ends += self.episode;
                    rank.part.add(&episode);
                }
                let usual = Duration::from_secs((self.ranks as u64 / 2048).max(1));
                if !rank.told.due(rank.part.pace(usual), moment) {
                    continue;
                }
                if number > 0 {
                    rank.part.publish(&store, &mut rank.beat);
                    rank.part.decides(Some(&store), [].into_iter());
                    store
                        .set("beat", &serde_json::to_vec(&rank.beat).unwrap())
                        .unwrap();
                    continue;
                }
                let before = memory.requests();
                let beats: Vec<_> = ranks.iter().map(|rank| rank.beat.clone()).collect();
                ranks[0].part.has_news = false;
                ranks[0].part.read(&store, beats.iter()).unwrap();
                at_once = at_once.max(memory.requests() - before);
            }
        }
        let seconds = SPAN.as_secs_f64();
        Load {
            requests: memory.requests() as f64 / seconds,
            bytes: memory.bytes() as f64 / seconds,
            held_in_an_hour: memory.held() as f64 / seconds * 3600.0,
            at_once,
        }
    }

    /// Returns a rank at its own point of an episode and of the time between two heartbeats.
    fn rank(&self, rank: usize, start: Instant) -> Rank {
        let phase = rank as f64 / self.ranks as f64;
        let usual = Duration::from_secs((self.ranks as u64 / 2048).max(1));
        Rank {
            part: EarlyStop::new(rank, self.ranks, None),
            beat: Beat::default(),
            ends: start + self.episode.mul_f64(phase),
            told: Every(Some(start - usual.mul_f64(1.0 - phase))),
        }
    }
}

#[test]
fn rank_0_reads_the_outcomes_of_any_number_of_ranks_with_a_few_requests() {
    for millis in [10_000, 50] {
        for ranks in [16, 1024, 16_384] {
            let episode = Duration::from_millis(millis);
            let load = Run { ranks, episode }.load();
            println!("{ranks} ranks, episodes of {episode:?}: {load:.0?}");
            assert!(
                load.held_in_an_hour < 25e9,
                "{ranks}, {episode:?}: {load:?}"
            );
            assert!(load.at_once <= 80, "{ranks}, {episode:?}: {load:?}");
            assert!(load.requests < 10_000.0, "{ranks}, {episode:?}: {load:?}");
            assert!(load.bytes < 20e6, "{ranks}, {episode:?}: {load:?}");
        }
    }
}
