//! Simulates ranks that claim, run, die and hang at any moment, one store operation at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use crate::assign::lease::tests::holder;
use crate::assign::lease::{
    Claim, Claimer, Hold, LeaseHolder, LeaseKey, LeaseOp, LeaseReply, LeasedJob, NextStep, Want,
    done, mark,
};
use crate::job::JobIndex;
use crate::seed;

/// Total steps after which a simulation counts as stuck.
const FOR_EVER: u64 = 500_000;

/// Own steps between two attempts of a rank that has nothing to do; the other ranks take many steps
/// meanwhile.
const WAIT: u64 = 50;

/// The store and the journals of all ranks.
#[derive(Default)]
pub(super) struct SimulatedStore {
    numbers: BTreeMap<LeaseKey, i64>,
    holds: BTreeMap<LeaseKey, Hold>,
    /// How often each episode was written.
    journal: BTreeMap<(JobIndex, u64), u32>,
}

impl SimulatedStore {
    pub(super) fn serve(&mut self, op: LeaseOp) -> LeaseReply {
        match op {
            LeaseOp::Add(key, delta) => {
                let number = self.numbers.entry(key).or_default();
                *number += delta;
                LeaseReply::Sum(*number)
            }
            LeaseOp::Swap(key, from, to) => {
                let hold = self.holds.entry(key).or_insert(Hold::Free);
                if *hold == from {
                    *hold = to;
                }
                LeaseReply::Is(*hold)
            }
            LeaseOp::Sums(keys) => {
                let sum = |key| self.numbers.get(key).copied().unwrap_or_default();
                LeaseReply::Sums(keys.iter().map(sum).collect())
            }
            LeaseOp::Holds(keys) => {
                let hold = |key| self.holds.get(key).copied().unwrap_or(Hold::Free);
                LeaseReply::Holds(keys.iter().map(hold).collect())
            }
            LeaseOp::AreThere(keys) => LeaseReply::AreThere(self.have(&keys)),
        }
    }
}

impl SimulatedStore {
    pub(super) fn have(&self, keys: &[LeaseKey]) -> bool {
        let has = |key| self.holds.contains_key(key) || self.numbers.contains_key(key);
        keys.iter().all(has)
    }
}

/// A block that is being run.
struct SimulatedBlock {
    claim: Claim,
    holder: LeaseHolder,
    left: VecDeque<u64>,
}

enum RankActivity {
    Asks(LeaseOp),
    Runs,
    /// An episode has ended, and the rank still holds the lease.
    Commits,
    /// Marks a block as done.
    Closes,
    Rests,
}

struct SimulatedRank {
    me: LeaseHolder,
    claimer: Claimer,
    open: VecDeque<SimulatedBlock>,
    doing: RankActivity,
    /// Steps that the rank hangs for, or waits before it asks again.
    hangs: u64,
    waits: u64,
    is_finished: bool,
}

impl SimulatedRank {
    /// Runs the block that is open, or rests without one.
    fn next(&self) -> RankActivity {
        match self.open.is_empty() {
            true => RankActivity::Rests,
            false => RankActivity::Runs,
        }
    }
}

/// The rates of faults: one in this many steps; 0 for never.
#[derive(Clone, Copy, Debug)]
struct FaultRates {
    deaths: u64,
    hangs: u64,
    restarts: usize,
}

struct Simulation {
    shared: SimulatedStore,
    tasks: Vec<LeasedJob>,
    ranks: Vec<Option<SimulatedRank>>,
    restarts: Vec<usize>,
    trouble: FaultRates,
    seed: u64,
    drawn: u64,
}

impl Simulation {
    fn new(tasks: Vec<LeasedJob>, ranks: usize, trouble: FaultRates, seed: u64) -> Self {
        let shared = SimulatedStore::default();
        let (ranks, restarts) = (
            (0..ranks).map(|_| None).collect(),
            vec![trouble.restarts + 1; ranks],
        );
        Self {
            shared,
            tasks,
            ranks,
            restarts,
            trouble,
            seed,
            drawn: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.drawn += 1;
        seed::noise(self.seed, self.drawn, 0) % below.max(1)
    }

    fn happens(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.draw(one_in) == 0
    }

    /// Runs until every surviving rank has found everything done.
    fn run(&mut self) {
        for _ in 0..FOR_EVER {
            let rank = self.draw(self.ranks.len() as u64) as usize;
            self.step(rank);
            let over = |(process, left): (&Option<SimulatedRank>, &usize)| match process {
                Some(process) => process.is_finished,
                None => *left == 0,
            };
            if self.ranks.iter().zip(&self.restarts).all(over) {
                return;
            }
        }
        panic!("it does not end");
    }

    fn step(&mut self, rank: usize) {
        let Some(mut process) = self.ranks[rank].take() else {
            return self.begin(rank);
        };
        // Rank 0 may die, too, but is always restarted, because some rank must finish.
        let may_die = rank > 0 || self.restarts[0] > 0;
        if may_die && !process.is_finished && self.happens(self.trouble.deaths) {
            return;
        }
        if process.hangs > 0 || process.waits > 0 {
            (process.hangs, process.waits) = (
                process.hangs.saturating_sub(1),
                process.waits.saturating_sub(1),
            );
        } else if !matches!(process.doing, RankActivity::Commits)
            && self.happens(self.trouble.hangs)
        {
            // A rank must not hang between mark and journal: that is the known remaining window.
            process.hangs = 1 + self.draw(400);
        } else {
            self.work(&mut process);
        }
        self.ranks[rank] = Some(process);
    }

    fn begin(&mut self, rank: usize) {
        if self.restarts[rank] == 0 {
            return;
        }
        self.restarts[rank] -= 1;
        let LeaseReply::Sum(life) = self.shared.serve(LeaseOp::Add(LeaseKey::Life(rank), 1)) else {
            unreachable!()
        };
        let me = holder(rank, life);
        let journal = &self.shared.journal;
        let tasks = self.tasks.iter().cloned().map(|mut task| {
            let is_done = |block: &std::ops::Range<u64>| {
                block.clone().all(|e| journal.contains_key(&(task.job, e)))
            };
            task.done = (0..task.blocks.len())
                .filter(|block| is_done(&task.blocks[*block]))
                .collect();
            task
        });
        let claimer = Claimer::new(me, tasks.collect());
        let (open, doing) = (VecDeque::new(), RankActivity::Rests);
        self.ranks[rank] = Some(SimulatedRank {
            me,
            claimer,
            open,
            doing,
            hangs: 0,
            waits: 0,
            is_finished: false,
        });
    }

    /// The ranks that do not come back, and those that hang.
    fn gone(&self, but: usize) -> BTreeSet<usize> {
        let gone = |rank: &usize| match &self.ranks[*rank] {
            Some(process) => process.hangs > 0,
            None => self.restarts[*rank] == 0,
        };
        (0..self.ranks.len())
            .filter(|rank| *rank != but && gone(rank))
            .collect()
    }

    fn work(&mut self, process: &mut SimulatedRank) {
        match std::mem::replace(&mut process.doing, RankActivity::Rests) {
            RankActivity::Asks(op) => {
                let reply = self.shared.serve(op);
                let answer = process.claimer.on(reply);
                self.answered(process, answer);
            }
            RankActivity::Rests => self.want(process, Want::Any),
            RankActivity::Runs if process.open.len() < 3 && self.draw(3) == 0 => {
                self.want(process, Want::Stay)
            }
            RankActivity::Runs => self.run_on(process),
            RankActivity::Commits => {
                let open = &mut process.open[0];
                let episode = open.left.pop_front().unwrap();
                *self
                    .shared
                    .journal
                    .entry((open.claim.job, episode))
                    .or_default() += 1;
                process.doing = if open.left.is_empty() {
                    RankActivity::Closes
                } else {
                    RankActivity::Runs
                };
            }
            RankActivity::Closes => {
                let SimulatedBlock { claim, holder, .. } = process.open.pop_front().unwrap();
                let [lease, closed] = done(holder, claim.job, claim.block);
                // The rank may die between the two operations.
                if self.shared.serve(lease) == LeaseReply::Is(Hold::Done(holder))
                    && self.draw(20) > 0
                {
                    self.shared.serve(closed);
                }
                process.doing = process.next();
            }
        }
    }

    fn want(&mut self, process: &mut SimulatedRank, want: Want) {
        let answer = process.claimer.start(want, self.gone(process.me.rank));
        self.answered(process, answer);
    }

    fn answered(&mut self, process: &mut SimulatedRank, answer: NextStep) {
        process.doing = match answer {
            NextStep::Ask(op) => RankActivity::Asks(op),
            NextStep::Nothing => {
                process.waits = if process.open.is_empty() { WAIT } else { 0 };
                process.next()
            }
            NextStep::Finished => {
                process.is_finished = true;
                RankActivity::Rests
            }
            NextStep::Run(claim) => {
                // A block that was taken over is compared with the journals; for a fresh block the
                // journals only have older episodes.
                let is_done =
                    |episode: &u64| self.shared.journal.contains_key(&(claim.job, *episode));
                let left: VecDeque<_> = claim
                    .episodes
                    .clone()
                    .filter(|e| !claim.is_taken_over || !is_done(e))
                    .collect();
                let is_empty = left.is_empty();
                process.open.push_front(SimulatedBlock {
                    claim,
                    holder: process.me,
                    left,
                });
                if is_empty {
                    RankActivity::Closes
                } else {
                    RankActivity::Runs
                }
            }
        };
    }

    /// Ends an episode: checks that the rank still holds the lease.
    fn run_on(&mut self, process: &mut SimulatedRank) {
        let SimulatedBlock { claim, holder, .. } = &mut process.open[0];
        let (op, marked) = mark(*holder, claim.job, claim.block);
        if self.shared.serve(op) == LeaseReply::Is(Hold::By(marked)) {
            *holder = marked;
            process.doing = RankActivity::Commits;
            return;
        }
        process.open.pop_front();
        process.doing = process.next();
    }
}

/// Returns jobs with these numbers of episodes, cut into blocks of `most`.
pub(super) fn tasks(lengths: &[u64], most: u64) -> Vec<LeasedJob> {
    let task = |(job, length): (usize, &u64)| LeasedJob {
        job: JobIndex(job),
        blocks: (0..*length)
            .step_by(most as usize)
            .map(|first| first..(first + most).min(*length))
            .collect(),
        done: BTreeSet::new(),
        block_s: 1.0,
    };
    lengths.iter().enumerate().map(task).collect()
}

fn each_once(lengths: &[u64]) -> BTreeMap<(JobIndex, u64), u32> {
    let all = lengths
        .iter()
        .enumerate()
        .flat_map(|(job, length)| (0..*length).map(move |e| ((JobIndex(job), e), 1)));
    all.collect()
}

const QUIET: FaultRates = FaultRates {
    deaths: 0,
    hangs: 0,
    restarts: 0,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_episode_is_run_once_whoever_dies_or_hangs_at_any_moment(
        lengths in proptest::collection::vec(1u64..25, 1..6), most in 1u64..5, ranks in 1usize..=8,
        deaths in prop_oneof![Just(0u64), 5u64..200], hangs in prop_oneof![Just(0u64), 5u64..200],
        restarts in 0usize..4, seed in any::<u64>()
    ) {
        let mut world = Simulation::new(tasks(&lengths, most), ranks, FaultRates { deaths, hangs, restarts }, seed);
        world.run();
        prop_assert_eq!(world.shared.journal, each_once(&lengths));
    }

    #[test]
    fn sixty_four_ranks_share_a_few_jobs(lengths in proptest::collection::vec(1u64..100, 1..4), seed in any::<u64>()) {
        let mut world = Simulation::new(tasks(&lengths, 1), 64, QUIET, seed);
        world.run();
        prop_assert_eq!(world.shared.journal, each_once(&lengths));
    }
}
