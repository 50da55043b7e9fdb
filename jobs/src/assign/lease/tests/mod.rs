use super::*;
use simulation::{SimulatedStore, tasks};
use std::collections::BTreeSet;

mod crowd;
mod simulation;

/// Ranks whose state machines share a store.
struct Ranks {
    store: SimulatedStore,
    ranks: Vec<Claimer>,
}

impl Ranks {
    /// Makes ranks for jobs of these numbers of episodes, in blocks of one.
    fn new(count: usize, jobs: &[u64]) -> Self {
        let rank = |rank| Claimer::new(holder(rank, 1), tasks(jobs, 1));
        Self {
            store: SimulatedStore::default(),
            ranks: (0..count).map(rank).collect(),
        }
    }

    /// Runs the state machine of one rank until it has a claim or nothing to do, while the ranks
    /// `gone` seem to be dead.
    fn next(&mut self, rank: usize, want: Want, gone: &[usize]) -> NextStep {
        let mut answer = self.ranks[rank].start(want, gone.iter().copied().collect());
        while let NextStep::Ask(op) = answer {
            answer = self.ranks[rank].on(self.store.serve(op));
        }
        answer
    }

    /// Returns the job and the block that a rank claims.
    fn claims(&mut self, rank: usize, want: Want, gone: &[usize]) -> (usize, usize) {
        match self.next(rank, want, gone) {
            NextStep::Run(claim) => (claim.job.0, claim.block),
            other => panic!("rank {rank} has no claim: {other:?}"),
        }
    }

    fn any(&mut self, rank: usize) -> (usize, usize) {
        self.claims(rank, Want::Any, &[])
    }

    fn serve(&mut self, ops: impl IntoIterator<Item = LeaseOp>) {
        for op in ops {
            self.store.serve(op);
        }
    }
}

fn holder(rank: usize, life: i64) -> LeaseHolder {
    LeaseHolder {
        rank,
        life,
        mark: 0,
    }
}

#[test]
fn what_a_lease_says_is_read_back() {
    let holder = LeaseHolder {
        mark: 4,
        ..holder(12, 3)
    };
    for hold in [Hold::Free, Hold::Done(holder), Hold::By(holder)] {
        assert_eq!(hold.to_string().parse(), Ok(hold));
    }
    for text in ["3", "3:1:x", "done", "done:3"] {
        assert!(text.parse::<Hold>().is_err(), "{text}");
    }
}

#[test]
fn a_block_that_two_ranks_have_finished_is_counted_once() {
    let (job, mut store) = (JobIndex(0), SimulatedStore::default());
    let [hung, other] = [0, 1].map(|rank| holder(rank, 1));
    let lease = LeaseKey::Lease(job, 0);
    store.serve(LeaseOp::Swap(lease, Hold::Free, Hold::By(hung)));
    store.serve(LeaseOp::Swap(lease, Hold::By(hung), Hold::By(other)));
    for holder in [other, hung] {
        let [lease, closed] = done(holder, job, 0);
        if store.serve(lease) == LeaseReply::Is(Hold::Done(holder)) {
            store.serve(closed);
        }
    }
    let closed = store.serve(LeaseOp::Add(LeaseKey::Closed(job), 0));
    assert_eq!(closed, LeaseReply::Sum(1));
}

#[test]
fn the_longest_job_is_begun_first_and_everyone_has_a_job_of_his_own_while_there_are_any() {
    let mut ranks = Ranks::new(3, &[2, 9, 4]);
    let found = [0, 1, 2].map(|rank| ranks.any(rank));
    assert_eq!(found, [(1, 0), (2, 0), (0, 0)]);
    let next = ranks.claims(0, Want::Stay, &[]);
    assert_eq!(next, (1, 1), "it has that job's environments");
}

#[test]
fn who_has_nothing_left_helps_where_most_is_left_for_each_rank() {
    let mut ranks = Ranks::new(3, &[8, 9, 1]);
    for rank in 0..3 {
        let (job, _) = ranks.any(rank);
        ranks.serve([LeaseOp::Add(LeaseKey::Helpers(JobIndex(job)), 1)]);
    }
    // Job 1 has 8 blocks left, job 0 has 7; two more ranks have joined job 1 meanwhile.
    ranks.serve([LeaseOp::Add(LeaseKey::Helpers(JobIndex(1)), 2)]);
    assert_eq!(ranks.next(2, Want::Stay, &[]), NextStep::Nothing);
    assert_eq!(ranks.any(2), (0, 1));
}

#[test]
fn the_block_of_a_dead_rank_is_taken_over_and_that_of_a_living_one_is_not() {
    let mut ranks = Ranks::new(3, &[2]);
    ranks.serve((0..3).map(|rank| LeaseOp::Add(LeaseKey::Life(rank), 1)));
    assert_eq!([0, 1].map(|rank| ranks.any(rank)), [(0, 0), (0, 1)]);
    assert_eq!(ranks.next(2, Want::Any, &[]), NextStep::Nothing);
    let first_look = ranks.next(2, Want::Any, &[1]);
    assert_eq!(first_look, NextStep::Nothing, "it is looked at twice");
    let NextStep::Run(claim) = ranks.next(2, Want::Any, &[1]) else {
        panic!("rank 1 is gone")
    };
    assert!((claim.block, claim.is_taken_over) == (1, true));
    // Rank 0 is restarted.
    ranks.serve([LeaseOp::Add(LeaseKey::Life(0), 1)]);
    assert_eq!(ranks.any(2), (0, 0));
    for block in 0..2 {
        ranks.serve(done(holder(2, 1), JobIndex(0), block));
    }
    assert_eq!(ranks.next(2, Want::Any, &[]), NextStep::Finished);
}

#[test]
fn a_job_that_has_failed_for_good_is_nobodys() {
    let mut ranks = Ranks::new(2, &[5, 2]);
    assert_eq!(ranks.any(0), (0, 0));
    ranks.serve(shut(JobIndex(0)));
    assert_eq!([0, 1].map(|rank| ranks.any(rank)), [(1, 0), (1, 1)]);
    ranks.serve(done(holder(0, 1), JobIndex(1), 0));
    ranks.serve(done(holder(1, 1), JobIndex(1), 1));
    assert_eq!(ranks.next(1, Want::Any, &[]), NextStep::Finished);
}

#[test]
fn what_the_journals_had_is_not_claimed() {
    let mut ranks = Ranks::new(0, &[]);
    let mut tasks = tasks(&[3, 1], 1);
    tasks[0].done = BTreeSet::from([0, 2]);
    tasks[1].done = BTreeSet::from([0]);
    ranks.ranks.push(Claimer::new(holder(0, 1), tasks));
    assert_eq!(ranks.any(0), (0, 1));
    ranks.serve(done(holder(0, 1), JobIndex(0), 1));
    assert_eq!(ranks.next(0, Want::Any, &[]), NextStep::Finished);
}

#[test]
fn a_rank_that_writes_is_not_dead() {
    let mut ranks = Ranks::new(2, &[1]);
    assert_eq!(ranks.any(0), (0, 0));
    assert_eq!(ranks.next(1, Want::Any, &[0]), NextStep::Nothing);
    let (op, marked) = mark(holder(0, 1), JobIndex(0), 0);
    assert_eq!(ranks.store.serve(op), LeaseReply::Is(Hold::By(marked)));
    let looked = ranks.next(1, Want::Any, &[0]);
    assert_eq!(looked, NextStep::Nothing, "its mark has changed");
    assert_eq!(ranks.claims(1, Want::Any, &[0]), (0, 0));
    let (op, marked) = mark(marked, JobIndex(0), 0);
    let is_its_own = ranks.store.serve(op) == LeaseReply::Is(Hold::By(marked));
    assert!(!is_its_own, "it is not its lease any more");
}

#[test]
fn numbers_that_a_stranger_has_written_are_no_panic() {
    let stranger = LeaseHolder {
        rank: usize::MAX,
        life: i64::MAX,
        mark: u64::MAX,
    };
    for sum in [i64::MIN, -1, 0, i64::MAX] {
        let mut claimer = Claimer::new(holder(0, 1), tasks(&[2, 3], 1));
        let mut answer = claimer.start(Want::Any, BTreeSet::new());
        for _ in 0..1000 {
            let NextStep::Ask(op) = answer else { break };
            answer = claimer.on(match op {
                LeaseOp::Add(..) => LeaseReply::Sum(sum),
                LeaseOp::Swap(_, _, to) => LeaseReply::Is(to),
                LeaseOp::Sums(keys) => LeaseReply::Sums(vec![sum; keys.len()]),
                LeaseOp::Holds(keys) => LeaseReply::Holds(vec![Hold::By(stranger); keys.len()]),
                LeaseOp::AreThere(_) => LeaseReply::AreThere(sum > 0),
            });
        }
        let is_over = !matches!(answer, NextStep::Ask(_));
        assert!(is_over, "{sum}: it comes to an end");
    }
}

#[test]
fn a_lease_that_a_stranger_deletes_is_run_again_and_not_written_twice() {
    let mut ranks = Ranks::new(2, &[1]);
    assert_eq!(ranks.any(0), (0, 0));
    assert_eq!(ranks.next(1, Want::Any, &[]), NextStep::Nothing);
    let (lease, first) = (LeaseKey::Lease(JobIndex(0), 0), holder(0, 1));
    ranks.serve([LeaseOp::Swap(lease, Hold::By(first), Hold::Free)]);
    assert_eq!(ranks.any(1), (0, 0));
    let (swap, marked) = mark(first, JobIndex(0), 0);
    let is_its_own = ranks.store.serve(swap) == LeaseReply::Is(Hold::By(marked));
    assert!(!is_its_own, "the first may not write it down any more");
}

mod blocks {
    use super::*;
    use crate::numbers::Numbers;
    use crate::samples;
    use proptest::prelude::*;
    use serde_json::json;

    fn job(rebuilds: u64) -> Job {
        samples::job(json!({"num_episodes": 1000, "num_rebuilds": rebuilds}))
    }

    fn sizes(count: u64, most: u64, world: usize) -> Vec<u64> {
        blocks(&job(1), count, most, world)
            .iter()
            .map(|block| block.end - block.start)
            .collect()
    }

    #[test]
    fn the_last_blocks_are_small() {
        assert_eq!(sizes(20, 4, 2), [4, 4, 3, 3, 2, 1, 1, 1, 1]);
        assert_eq!(sizes(4, 4, 2), [1; 4]);
        assert_eq!(sizes(3, 100, 1), [2, 1]);
    }

    #[test]
    fn a_block_of_chosen_episodes_may_have_gaps() {
        let only: Option<Numbers> = Some("0,5-7,900".parse().unwrap());
        let found = blocks(&Job { only, ..job(1) }, 1000, 2, 1);
        assert_eq!(found, [0..6, 6..8, 900..901]);
    }

    proptest! {
        #[test]
        fn blocks_have_every_episode_once_and_keep_to_one_build(
            count in 1u64..400, most in 1u64..20, world in 1usize..=64, rebuilds in 1u64..5
        ) {
            let job = job(rebuilds);
            let blocks = blocks(&job, count, most, world);
            let all: Vec<_> = blocks.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
            let builds = job.rebuilds(count);
            prop_assert!(blocks.iter().all(|block| block.end - block.start <= most
                && builds.iter().any(|build| build.start <= block.start && block.end <= build.end)));
        }
    }
}
