//! What the outcomes of simulated ranks cost the store and rank 0, with the real messages.

use std::time::{Duration, Instant};

use jobs::episode::Episode;
use jobs::samples;

use crate::clock::now;
use crate::eval::monitor::early_stop::EarlyStop;
use crate::eval::monitor::early_stop::batch::{OUTCOMES, read};
use crate::eval::monitor::pace::pace;
use crate::eval::monitor::stop::StopRequest;
use crate::eval::numbered_list::ListReader;
use tcpstore::memory::MemoryStore;

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
    /// When its next episode ends and its next heartbeat is due.
    ends: Instant,
    beats: Instant,
}

impl Run {
    fn load(&self) -> Load {
        let (start, (store, memory)) = (now(), MemoryStore::new());
        let mut ranks: Vec<Rank> = (0..self.ranks).map(|rank| self.rank(rank, start)).collect();
        let mut batches = ListReader::new(OUTCOMES);
        let mut at_once = 0;
        let episode = samples::episode(12, "pick_and_place", 34_567);
        let mut moment = start;
        while moment < start + SPAN {
            moment += TICK;
            for (number, rank) in ranks.iter_mut().enumerate() {
                if !self.is_exchanging(rank, moment, &episode) {
                    continue;
                }
                rank.part.exchanged(moment);
                if number > 0 {
                    rank.part.exchange(Some(&store));
                    continue;
                }
                let before = memory.requests();
                read(&store, &mut batches, |_| ()).unwrap();
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
        Rank {
            part: EarlyStop::new(rank, self.ranks, StopRequest::default(), None),
            ends: start + self.episode.mul_f64(phase),
            beats: start + pace(self.ranks).mul_f64(phase),
        }
    }

    /// Does what the observers do until `moment`; returns whether outcomes are exchanged.
    fn is_exchanging(&self, rank: &mut Rank, moment: Instant, episode: &Episode) -> bool {
        let mut is_due = false;
        while rank.ends <= moment {
            rank.ends += self.episode;
            rank.part.ended(episode);
            is_due |= rank.part.is_due(moment);
        }
        if rank.beats <= moment {
            rank.beats += pace(self.ranks);
            is_due = true;
        }
        is_due
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
