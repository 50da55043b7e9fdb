use super::*;
use crate::assign::lease::simulation::{Shared, tasks};
use std::collections::BTreeSet;

#[test]
fn what_a_lease_says_is_read_back() {
    let holder = Holder {
        rank: 12,
        life: 3,
        mark: 4,
    };
    for hold in [Hold::Free, Hold::Done(holder), Hold::By(holder)] {
        assert_eq!(hold.to_string().parse(), Ok(hold));
    }
    assert_eq!(NOTHING.parse(), Ok(Hold::Free));
    for text in ["3", "3:1:x", "done", "done:3"] {
        assert!(text.parse::<Hold>().is_err(), "{text}");
    }
}

#[test]
fn a_block_that_two_ranks_have_finished_is_counted_once() {
    let (job, mut store) = (JobIndex(0), Shared::default());
    let [hung, other] = [0, 1].map(|rank| Holder {
        rank,
        life: 1,
        mark: 0,
    });
    let lease = Key::Lease(job, 0);
    store.serve(Op::Swap(lease, Hold::Free, Hold::By(hung)));
    store.serve(Op::Swap(lease, Hold::By(hung), Hold::By(other)));
    for holder in [other, hung] {
        let [lease, closed] = done(holder, job, 0);
        if store.serve(lease) == Reply::Is(Hold::Done(holder)) {
            store.serve(closed);
        }
    }
    assert_eq!(store.serve(Op::Add(Key::Closed(job), 0)), Reply::Sum(1));
}

/// Runs the state machine of one rank until it has a claim or nothing to do.
fn next(shared: &mut Shared, claimer: &mut Claimer, want: Want, gone: &[usize]) -> Answer {
    let mut answer = claimer.start(want, gone.iter().copied().collect());
    while let Answer::Ask(op) = answer {
        answer = claimer.on(shared.serve(op));
    }
    answer
}

fn serve(shared: &mut Shared, ops: [Op; 2]) {
    ops.into_iter().for_each(|op| {
        shared.serve(op);
    });
}

fn claimed(answer: Answer) -> (usize, usize) {
    let Answer::Run(claim) = answer else {
        panic!("{answer:?}")
    };
    (claim.job.0, claim.block)
}

fn holder(rank: usize, life: i64) -> Holder {
    Holder {
        rank,
        life,
        mark: 0,
    }
}

#[test]
fn the_longest_job_is_begun_first_and_everyone_has_a_job_of_his_own_while_there_are_any() {
    let (mut shared, tasks) = (Shared::default(), tasks(&[2, 9, 4], 1));
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
    let (mut shared, tasks) = (Shared::default(), tasks(&[8, 9, 1], 1));
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| Claimer::new(holder(rank, 1), tasks.clone()))
        .collect();
    for rank in &mut ranks {
        let (job, _) = claimed(next(&mut shared, rank, Want::Any, &[]));
        shared.serve(Op::Add(Key::Helpers(JobIndex(job)), 1));
    }
    // Job 1 has 8 blocks left, job 0 has 7; two more ranks have joined job 1 meanwhile.
    shared.serve(Op::Add(Key::Helpers(JobIndex(1)), 2));
    assert_eq!(
        next(&mut shared, &mut ranks[2], Want::Stay, &[]),
        Answer::Nothing
    );
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[2], Want::Any, &[])),
        (0, 1)
    );
}

#[test]
fn the_block_of_a_dead_rank_is_taken_over_and_that_of_a_living_one_is_not() {
    let (mut shared, tasks) = (Shared::default(), tasks(&[2], 1));
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| Claimer::new(holder(rank, 1), tasks.clone()))
        .collect();
    (0..3).for_each(|rank| {
        shared.serve(Op::Add(Key::Life(rank), 1));
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
        Answer::Nothing
    );
    assert_eq!(
        next(&mut shared, &mut ranks[2], Want::Any, &[1]),
        Answer::Nothing,
        "it is looked at twice"
    );
    let Answer::Run(claim) = next(&mut shared, &mut ranks[2], Want::Any, &[1]) else {
        panic!("rank 1 is gone")
    };
    assert!((claim.block, claim.is_taken_over) == (1, true));
    // Rank 0 is restarted.
    shared.serve(Op::Add(Key::Life(0), 1));
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[2], Want::Any, &[])),
        (0, 0)
    );
    for block in 0..2 {
        serve(&mut shared, done(holder(2, 1), JobIndex(0), block));
    }
    assert_eq!(
        next(&mut shared, &mut ranks[2], Want::Any, &[]),
        Answer::Finished
    );
}

#[test]
fn a_job_that_has_failed_for_good_is_nobodys() {
    let (mut shared, tasks) = (Shared::default(), tasks(&[5, 2], 1));
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
        Answer::Finished
    );
}

#[test]
fn what_the_journals_had_is_not_claimed() {
    let mut shared = Shared::default();
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
        Answer::Finished
    );
}

#[test]
fn a_rank_that_writes_is_not_dead() {
    let (mut shared, tasks) = (Shared::default(), tasks(&[1], 1));
    let mut ranks: Vec<_> = (0..2)
        .map(|rank| Claimer::new(holder(rank, 1), tasks.clone()))
        .collect();
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[0], Want::Any, &[])),
        (0, 0)
    );
    assert_eq!(
        next(&mut shared, &mut ranks[1], Want::Any, &[0]),
        Answer::Nothing
    );
    let (op, marked) = mark(holder(0, 1), JobIndex(0), 0);
    assert_eq!(shared.serve(op), Reply::Is(Hold::By(marked)));
    assert_eq!(
        next(&mut shared, &mut ranks[1], Want::Any, &[0]),
        Answer::Nothing,
        "its mark has changed"
    );
    assert_eq!(
        claimed(next(&mut shared, &mut ranks[1], Want::Any, &[0])),
        (0, 0)
    );
    let (op, marked) = mark(marked, JobIndex(0), 0);
    assert_ne!(
        shared.serve(op),
        Reply::Is(Hold::By(marked)),
        "it is not its lease any more"
    );
}

#[test]
fn numbers_that_a_stranger_has_written_are_no_panic() {
    for sum in [i64::MIN, -1, 0, i64::MAX] {
        let mut claimer = Claimer::new(holder(0, 1), tasks(&[2, 3], 1));
        let mut answer = claimer.start(Want::Any, BTreeSet::new());
        for _ in 0..1000 {
            let Answer::Ask(op) = answer else { break };
            answer = claimer.on(match op {
                Op::Add(..) => Reply::Sum(sum),
                Op::Swap(_, _, to) => Reply::Is(to),
                Op::Read(_) => Reply::Is(Hold::By(Holder {
                    rank: usize::MAX,
                    life: i64::MAX,
                    mark: u64::MAX,
                })),
            });
        }
        assert!(
            !matches!(answer, Answer::Ask(_)),
            "{sum}: it comes to an end"
        );
    }
}

#[test]
fn a_lease_that_a_stranger_deletes_is_run_again_and_not_written_twice() {
    let (mut shared, tasks) = (Shared::default(), tasks(&[1], 1));
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
        Answer::Nothing
    );
    let lease = Key::Lease(JobIndex(0), 0);
    shared.serve(Op::Swap(lease, Hold::By(holder(0, 1)), Hold::Free));
    assert_eq!(
        claimed(next(&mut shared, &mut second, Want::Any, &[])),
        (0, 0)
    );
    let (swap, marked) = mark(holder(0, 1), JobIndex(0), 0);
    assert_ne!(
        shared.serve(swap),
        Reply::Is(Hold::By(marked)),
        "the first may not write it down any more"
    );
}
