use super::*;
use crate::assign::lease::simulation::{SimulatedStore, tasks};
use std::collections::BTreeSet;

#[test]
fn what_a_lease_says_is_read_back() {
    let holder = LeaseHolder {
        rank: 12,
        life: 3,
        mark: 4,
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
    let [hung, other] = [0, 1].map(|rank| LeaseHolder {
        rank,
        life: 1,
        mark: 0,
    });
    let lease = LeaseKey::Lease(job, 0);
    store.serve(LeaseOp::Swap(lease, Hold::Free, Hold::By(hung)));
    store.serve(LeaseOp::Swap(lease, Hold::By(hung), Hold::By(other)));
    for holder in [other, hung] {
        let [lease, closed] = done(holder, job, 0);
        if store.serve(lease) == LeaseReply::Is(Hold::Done(holder)) {
            store.serve(closed);
        }
    }
    assert_eq!(
        store.serve(LeaseOp::Add(LeaseKey::Closed(job), 0)),
        LeaseReply::Sum(1)
    );
}

/// Runs the state machine of one rank until it has a claim or nothing to do.
fn next(
    shared: &mut SimulatedStore,
    claimer: &mut Claimer,
    want: Want,
    gone: &[usize],
) -> NextStep {
    let mut answer = claimer.start(want, gone.iter().copied().collect());
    while let NextStep::Ask(op) = answer {
        answer = claimer.on(shared.serve(op));
    }
    answer
}

fn serve(shared: &mut SimulatedStore, ops: [LeaseOp; 2]) {
    ops.into_iter().for_each(|op| {
        shared.serve(op);
    });
}

fn claimed(answer: NextStep) -> (usize, usize) {
    let NextStep::Run(claim) = answer else {
        panic!("{answer:?}")
    };
    (claim.job.0, claim.block)
}

fn holder(rank: usize, life: i64) -> LeaseHolder {
    LeaseHolder {
        rank,
        life,
        mark: 0,
    }
}

#[test]
fn the_longest_job_is_begun_first_and_everyone_has_a_job_of_his_own_while_there_are_any() {
    let (mut shared, tasks) = (SimulatedStore::default(), tasks(&[2, 9, 4], 1));
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| Claimer::new(holder(rank, 1), tasks.clone()))
        .collect();
    let first: Vec<_> = ranks
        .iter_mut()
        .map(|rank| claimed(next(&mut shared, rank, Want::Any, &[])))
        .collect();
    assert_eq!(first, [(1, 0), (2, 0), (0, 0)]);
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[0], Want::Stay, &[])),
        (1, 1),
        "it has that job's environments"
    );
}

#[test]
fn who_has_nothing_left_helps_where_most_is_left_for_each_rank() {
    let (mut shared, tasks) = (SimulatedStore::default(), tasks(&[8, 9, 1], 1));
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| Claimer::new(holder(rank, 1), tasks.clone()))
        .collect();
    for rank in &mut ranks {
        let (job, _) = claimed(next(&mut shared, rank, Want::Any, &[]));
        shared.serve(LeaseOp::Add(LeaseKey::Helpers(JobIndex(job)), 1));
    }
    // Job 1 has 8 blocks left, job 0 has 7; two more ranks have joined job 1 meanwhile.
    shared.serve(LeaseOp::Add(LeaseKey::Helpers(JobIndex(1)), 2));
    assert_eq!(
        next(&mut shared, &mut ranks[2], Want::Stay, &[]),
        NextStep::Nothing
    );
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[2], Want::Any, &[])),
        (0, 1)
    );
}

#[test]
fn the_block_of_a_dead_rank_is_taken_over_and_that_of_a_living_one_is_not() {
    let (mut shared, tasks) = (SimulatedStore::default(), tasks(&[2], 1));
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| Claimer::new(holder(rank, 1), tasks.clone()))
        .collect();
    (0..3).for_each(|rank| {
        shared.serve(LeaseOp::Add(LeaseKey::Life(rank), 1));
    });
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[0], Want::Any, &[])),
        (0, 0)
    );
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[1], Want::Any, &[])),
        (0, 1)
    );
    assert_eq!(
        next(&mut shared, &mut ranks[2], Want::Any, &[]),
        NextStep::Nothing
    );
    assert_eq!(
        next(&mut shared, &mut ranks[2], Want::Any, &[1]),
        NextStep::Nothing,
        "it is looked at twice"
    );
    let NextStep::Run(claim) = next(&mut shared, &mut ranks[2], Want::Any, &[1]) else {
        panic!("rank 1 is gone")
    };
    assert!((claim.block, claim.is_taken_over) == (1, true));
    // Rank 0 is restarted.
    shared.serve(LeaseOp::Add(LeaseKey::Life(0), 1));
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[2], Want::Any, &[])),
        (0, 0)
    );
    for block in 0..2 {
        serve(&mut shared, done(holder(2, 1), JobIndex(0), block));
    }
    assert_eq!(
        next(&mut shared, &mut ranks[2], Want::Any, &[]),
        NextStep::Finished
    );
}

#[test]
fn a_job_that_has_failed_for_good_is_nobodys() {
    let (mut shared, tasks) = (SimulatedStore::default(), tasks(&[5, 2], 1));
    let mut ranks: Vec<_> = (0..2)
        .map(|rank| Claimer::new(holder(rank, 1), tasks.clone()))
        .collect();
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[0], Want::Any, &[])),
        (0, 0)
    );
    serve(&mut shared, shut(JobIndex(0)));
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[0], Want::Any, &[])),
        (1, 0)
    );
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[1], Want::Any, &[])),
        (1, 1)
    );
    serve(&mut shared, done(holder(0, 1), JobIndex(1), 0));
    serve(&mut shared, done(holder(1, 1), JobIndex(1), 1));
    assert_eq!(
        next(&mut shared, &mut ranks[1], Want::Any, &[]),
        NextStep::Finished
    );
}

#[test]
fn what_the_journals_had_is_not_claimed() {
    let mut shared = SimulatedStore::default();
    let mut tasks = tasks(&[3, 1], 1);
    tasks[0].done = BTreeSet::from([0, 2]);
    tasks[1].done = BTreeSet::from([0]);
    let mut rank = Claimer::new(holder(0, 1), tasks);
    assert_eq!(
        claimed(next(&mut shared, &mut rank, Want::Any, &[])),
        (0, 1)
    );
    serve(&mut shared, done(holder(0, 1), JobIndex(0), 1));
    assert_eq!(
        next(&mut shared, &mut rank, Want::Any, &[]),
        NextStep::Finished
    );
}

#[test]
fn a_rank_that_writes_is_not_dead() {
    let (mut shared, tasks) = (SimulatedStore::default(), tasks(&[1], 1));
    let mut ranks: Vec<_> = (0..2)
        .map(|rank| Claimer::new(holder(rank, 1), tasks.clone()))
        .collect();
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[0], Want::Any, &[])),
        (0, 0)
    );
    assert_eq!(
        next(&mut shared, &mut ranks[1], Want::Any, &[0]),
        NextStep::Nothing
    );
    let (op, marked) = mark(holder(0, 1), JobIndex(0), 0);
    assert_eq!(shared.serve(op), LeaseReply::Is(Hold::By(marked)));
    assert_eq!(
        next(&mut shared, &mut ranks[1], Want::Any, &[0]),
        NextStep::Nothing,
        "its mark has changed"
    );
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[1], Want::Any, &[0])),
        (0, 0)
    );
    let (op, marked) = mark(marked, JobIndex(0), 0);
    assert_ne!(
        shared.serve(op),
        LeaseReply::Is(Hold::By(marked)),
        "it is not its lease any more"
    );
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
        assert!(
            !matches!(answer, NextStep::Ask(_)),
            "{sum}: it comes to an end"
        );
    }
}

#[test]
fn a_lease_that_a_stranger_deletes_is_run_again_and_not_written_twice() {
    let (mut shared, tasks) = (SimulatedStore::default(), tasks(&[1], 1));
    let (mut first, mut second) = (
        Claimer::new(holder(0, 1), tasks.clone()),
        Claimer::new(holder(1, 1), tasks),
    );
    assert_eq!(
        claimed(next(&mut shared, &mut first, Want::Any, &[])),
        (0, 0)
    );
    assert_eq!(
        next(&mut shared, &mut second, Want::Any, &[]),
        NextStep::Nothing
    );
    let lease = LeaseKey::Lease(JobIndex(0), 0);
    shared.serve(LeaseOp::Swap(lease, Hold::By(holder(0, 1)), Hold::Free));
    assert_eq!(
        claimed(next(&mut shared, &mut second, Want::Any, &[])),
        (0, 0)
    );
    let (swap, marked) = mark(holder(0, 1), JobIndex(0), 0);
    assert_ne!(
        shared.serve(swap),
        LeaseReply::Is(Hold::By(marked)),
        "the first may not write it down any more"
    );
}
