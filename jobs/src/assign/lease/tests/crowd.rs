//! What leases cost the store with thousands of ranks: real operations, simulated time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::assign::lease::tests::holder;
use crate::assign::lease::tests::simulation::{SimulatedStore, tasks};
use crate::assign::lease::{
    Claim, Claimer, Hold, LeaseHolder, LeaseKey, LeaseOp, LeaseReply, NextStep, Want, done, mark,
};
use crate::job::JobIndex;
use crate::seed;

/// Jobs of the run.
const JOBS: usize = 100;

/// Ranks of a node, and milliseconds until a dead one counts as lost.
const NODE: usize = 64;
const LOST_MS: u64 = 60_000;

/// Ranks with one environment each.
#[derive(Clone, Copy, Debug)]
struct Run {
    ranks: usize,
    /// Mean time of an episode; each takes up to a quarter more or less.
    episode_ms: u64,
    /// Episodes for each rank, each a block of its own.
    episodes: usize,
    /// When the last node dies, if it does.
    dies_ms: Option<u64>,
}

/// What the store had to do.
#[derive(Debug, Default)]
struct Load {
    requests: u64,
    bytes: u64,
    /// Requests in each second.
    by_second: BTreeMap<u64, u64>,
    /// Requests of the rank with most of them.
    of_one: u64,
    /// When the last block was done, and when the last rank knew it.
    done_ms: u64,
    known_ms: u64,
}

struct Rank {
    me: LeaseHolder,
    claimer: Claimer,
    running: Option<(Claim, LeaseHolder)>,
    /// The job whose environments are loaded.
    helps: Option<JobIndex>,
    requests: u64,
    is_finished: bool,
}

struct Crowd {
    run: Run,
    store: SimulatedStore,
    ranks: Vec<Rank>,
    events: BinaryHeap<Reverse<(u64, usize)>>,
    load: Load,
    is_woken: bool,
}

impl Crowd {
    fn new(run: Run) -> Self {
        let each = (run.ranks * run.episodes / JOBS).max(1) as u64;
        let tasks = tasks(&[each; JOBS], 1);
        let rank = |rank| {
            let me = holder(rank, 1);
            Rank {
                me,
                claimer: Claimer::new(me, tasks.clone()),
                running: None,
                helps: None,
                requests: 0,
                is_finished: false,
            }
        };
        Self {
            run,
            store: SimulatedStore::default(),
            ranks: (0..run.ranks).map(rank).collect(),
            events: (0..run.ranks).map(|rank| Reverse((0, rank))).collect(),
            load: Load::default(),
            is_woken: false,
        }
    }

    /// As in the heartbeats of `rrun-rank eval`: a rank that waits asks once a second, or later
    /// with thousands of them.
    fn pace_ms(&self) -> u64 {
        (self.run.ranks as u64 * 1000 / 2048).clamp(1000, 10_000)
    }

    fn run(mut self) -> Load {
        for rank in 0..self.ranks.len() {
            self.serve(rank, 0, LeaseOp::Add(LeaseKey::Life(rank), 1));
        }
        while let Some(Reverse((at, rank))) = self.events.pop() {
            let is_dead =
                self.run.dies_ms.is_some_and(|dies| at >= dies) && rank >= self.run.ranks - NODE;
            if !is_dead && !self.ranks[rank].is_finished {
                self.step(rank, at);
            }
        }
        self.load.of_one = self.ranks.iter().map(|rank| rank.requests).max().unwrap();
        self.load
    }

    fn step(&mut self, rank: usize, at: u64) {
        let ended = self.ranks[rank].running.take();
        let want = match ended {
            Some((claim, holder)) => {
                self.end(rank, at, &claim, holder);
                Want::Stay
            }
            None => Want::Any,
        };
        let next = match self.claim(rank, at, want) {
            NextStep::Nothing if want == Want::Stay => {
                self.help(rank, at, None);
                self.claim(rank, at, Want::Any)
            }
            next => next,
        };
        match next {
            NextStep::Run(claim) => {
                self.help(rank, at, Some(claim.job));
                let ends = at + self.episode_ms(rank, &claim);
                self.ranks[rank].running = Some((claim, self.ranks[rank].me));
                self.events.push(Reverse((ends, rank)));
            }
            NextStep::Finished => self.finish(rank, at),
            NextStep::Nothing | NextStep::Ask(_) => {
                self.events.push(Reverse((at + self.pace_ms(), rank)));
            }
        }
    }

    fn episode_ms(&self, rank: usize, claim: &Claim) -> u64 {
        let number = (claim.job.0 as u64) << 32 | claim.block as u64;
        let spread = self.run.episode_ms / 2 + 1;
        self.run.episode_ms * 3 / 4 + seed::noise(rank as u64, number, 0) % spread
    }

    /// Writes the episode of a block, and closes the block.
    fn end(&mut self, rank: usize, at: u64, claim: &Claim, holder: LeaseHolder) {
        let (op, marked) = mark(holder, claim.job, claim.block);
        assert_eq!(self.serve(rank, at, op), LeaseReply::Is(Hold::By(marked)));
        let [lease, closed] = done(marked, claim.job, claim.block);
        self.serve(rank, at, lease);
        self.serve(rank, at, closed);
        self.load.done_ms = at;
    }

    fn help(&mut self, rank: usize, at: u64, job: Option<JobIndex>) {
        let before = std::mem::replace(&mut self.ranks[rank].helps, job);
        if before == job {
            return;
        }
        for (job, delta) in before
            .map(|job| (job, -1))
            .into_iter()
            .chain(job.map(|job| (job, 1)))
        {
            self.serve(rank, at, LeaseOp::Add(LeaseKey::Helpers(job), delta));
        }
    }

    /// The first rank that has finished wakes those that wait.
    fn finish(&mut self, rank: usize, at: u64) {
        self.ranks[rank].is_finished = true;
        self.load.known_ms = at;
        if !std::mem::replace(&mut self.is_woken, true) {
            let all = (0..self.ranks.len()).map(|rank| Reverse((at, rank)));
            self.events.extend(all);
        }
    }

    fn claim(&mut self, rank: usize, at: u64, want: Want) -> NextStep {
        let is_known = self.run.dies_ms.is_some_and(|dies| at >= dies + LOST_MS);
        let gone: BTreeSet<_> = match is_known {
            true => (self.run.ranks - NODE..self.run.ranks).collect(),
            false => BTreeSet::new(),
        };
        let mut next = self.ranks[rank].claimer.start(want, gone);
        while let NextStep::Ask(op) = next {
            let reply = self.serve(rank, at, op);
            next = self.ranks[rank].claimer.on(reply);
        }
        next
    }

    fn serve(&mut self, rank: usize, at: u64, op: LeaseOp) -> LeaseReply {
        let (requests, bytes) = self.cost(&op);
        self.load.requests += requests;
        self.load.bytes += bytes;
        *self.load.by_second.entry(at / 1000).or_default() += requests;
        self.ranks[rank].requests += requests;
        self.store.serve(op)
    }

    /// Returns requests and bytes of keys and values of an operation, as the lease client sends it.
    fn cost(&self, op: &LeaseOp) -> (u64, u64) {
        let keys = |keys: &[LeaseKey]| keys.iter().map(|key| key.to_string().len() as u64).sum();
        match op {
            LeaseOp::Add(key, _) => (1, keys(&[*key]) + 16),
            LeaseOp::Swap(key, from, to) => {
                let values = from.to_string().len() + 2 * to.to_string().len();
                (1, keys(&[*key]) + values as u64)
            }
            LeaseOp::AreThere(all) => (1, keys(all)),
            LeaseOp::Sums(all) | LeaseOp::Holds(all) => {
                let requests = all.chunks(1024).map(|part| self.find(part)).sum();
                (requests, 2 * keys(all) + 24 * all.len() as u64)
            }
        }
    }

    /// As `Lookup::find` of the store's client.
    fn find(&self, keys: &[LeaseKey]) -> u64 {
        if self.store.have(keys) {
            return 2;
        }
        if keys.len() <= 1 {
            return 1;
        }
        let (first, rest) = keys.split_at(keys.len() / 2);
        1 + self.find(first) + self.find(rest)
    }
}

fn shown(run: Run) -> Load {
    let load = Crowd::new(run).run();
    let seconds = load.known_ms.div_ceil(1000);
    println!(
        "{} ranks, episodes of {} ms: {:.1} requests a block, {} requests/s, {} bytes/s, {} in the \
         busiest second, {} of one rank, known {} ms after the end",
        run.ranks,
        run.episode_ms,
        load.requests as f64 / (run.ranks * run.episodes) as f64,
        load.requests / seconds,
        load.bytes / seconds,
        load.by_second.values().max().unwrap(),
        load.of_one,
        load.known_ms - load.done_ms,
    );
    load
}

const LONG: Run = Run {
    ranks: 16,
    episode_ms: 10_000,
    episodes: 10,
    dies_ms: None,
};

#[test]
fn the_requests_of_a_rank_do_not_grow_with_the_number_of_ranks() {
    for ranks in [256, 1024, 4096, 16_384] {
        let load = shown(Run { ranks, ..LONG });
        let blocks = (ranks * LONG.episodes) as u64;
        assert!(load.requests < 12 * blocks, "{ranks}");
        assert!(load.known_ms - load.done_ms <= 10_000, "{ranks}");
    }
}

#[test]
fn short_episodes_cost_no_more_requests_each() {
    for ranks in [256, 1024, 4096] {
        let run = Run {
            ranks,
            episode_ms: 50,
            episodes: 40,
            dies_ms: None,
        };
        let load = shown(run);
        assert!(load.requests < 8 * (ranks * run.episodes) as u64, "{ranks}");
    }
}

#[test]
fn the_blocks_of_a_node_that_died_are_run_by_others_within_a_minute_of_its_loss() {
    for ranks in [256, 4096] {
        let run = Run {
            ranks,
            dies_ms: Some(95_000),
            ..LONG
        };
        let load = shown(run);
        let limit = 95_000 + LOST_MS + 60_000;
        assert!(load.done_ms < limit, "{ranks}: {load:?}");
    }
}
