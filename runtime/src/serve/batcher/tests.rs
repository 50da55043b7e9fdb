use proptest::prelude::*;

use super::*;

const WAIT: Duration = Duration::from_millis(5);

#[expect(clippy::disallowed_methods, reason = "some moment to count from")]
fn start() -> Instant {
    Instant::now()
}

fn batcher(max_rows: usize) -> Batcher {
    Batcher::new(BatchLimits {
        max_rows,
        max_wait: WAIT,
        max_queue: 100,
    })
}

fn asked(number: u64) -> BatcherEvent {
    BatcherEvent::Request {
        ticket: Ticket(number),
        client: ConnectionId(number),
        rows: 1,
    }
}

/// Expects a batch of these requests, with one row each.
fn infer(numbers: &[u64]) -> Vec<BatcherAction> {
    parts(
        &numbers
            .iter()
            .map(|number| (*number, 0..1))
            .collect::<Vec<_>>(),
    )
}

fn parts(parts: &[(u64, Range<usize>)]) -> Vec<BatcherAction> {
    let part = |(number, rows): &(u64, Range<usize>)| RequestRows {
        ticket: Ticket(*number),
        rows: rows.clone(),
    };
    vec![BatcherAction::Infer(parts.iter().map(part).collect())]
}

fn asked_rows(number: u64, rows: usize) -> BatcherEvent {
    BatcherEvent::Request {
        ticket: Ticket(number),
        client: ConnectionId(number),
        rows,
    }
}

/// Returns a batcher whose clients 1 to `count` have just had an answer.
fn after_answers(count: u64, max_rows: usize, now: Instant) -> Batcher {
    let mut batcher = batcher(max_rows);
    batcher
        .answered
        .extend((1..=count).map(|number| (ConnectionId(number), now)));
    batcher
}

#[test]
fn a_client_alone_does_not_wait() {
    let now = start();
    let mut batcher = after_answers(1, 8, now);
    assert_eq!(batcher.on(asked(1), now), infer(&[1]));
}

#[test]
fn what_comes_during_an_inference_is_inferred_together() {
    let (now, mut batcher) = (start(), batcher(8));
    assert_eq!(batcher.on(asked(1), now), infer(&[1]));
    assert_eq!(batcher.on(asked(2), now), []);
    assert_eq!(batcher.on(asked(3), now), []);
    // Client 1 now has its answer and may ask again.
    assert_eq!(
        batcher.on(BatcherEvent::Inferred, now),
        [BatcherAction::WakeAt(now + WAIT)]
    );
    assert_eq!(batcher.on(BatcherEvent::Woken, now + WAIT), infer(&[2, 3]));
}

#[test]
fn the_last_that_may_come_ends_the_wait() {
    let now = start();
    let mut batcher = after_answers(3, 8, now);
    assert_eq!(
        batcher.on(asked(1), now),
        [BatcherAction::WakeAt(now + WAIT)]
    );
    assert_eq!(
        batcher.on(asked(2), now),
        [BatcherAction::WakeAt(now + WAIT)]
    );
    assert_eq!(batcher.on(asked(3), now), infer(&[1, 2, 3]));
}

#[test]
fn nobody_waits_for_a_client_that_left_or_fell_silent() {
    let now = start();
    let mut batcher = after_answers(2, 8, now);
    batcher.on(asked(1), now);
    assert_eq!(
        batcher.on(BatcherEvent::Left(ConnectionId(2)), now),
        infer(&[1])
    );
    let mut batcher = after_answers(2, 8, now);
    assert_eq!(batcher.on(asked(1), now + RECENT), infer(&[1]));
}

#[test]
fn a_full_batch_does_not_wait_and_the_rest_is_next() {
    let now = start();
    let mut batcher = after_answers(3, 2, now);
    batcher.on(asked(1), now);
    assert_eq!(batcher.on(asked(2), now), infer(&[1, 2]));
    batcher.on(asked(3), now);
    batcher.on(asked(4), now);
    assert_eq!(batcher.on(BatcherEvent::Inferred, now), infer(&[3, 4]));
}

#[test]
fn between_the_parts_of_a_long_request_others_have_their_turn() {
    let (now, mut batcher) = (start(), batcher(4));
    assert_eq!(batcher.on(asked_rows(1, 3000), now), parts(&[(1, 0..4)]));
    batcher.on(asked(2), now);
    batcher.on(asked_rows(3, 4), now);
    assert_eq!(
        batcher.on(BatcherEvent::Inferred, now),
        parts(&[(2, 0..1)]),
        "what would fit alone is not split"
    );
    assert_eq!(batcher.on(BatcherEvent::Inferred, now), parts(&[(3, 0..4)]));
    assert_eq!(batcher.on(BatcherEvent::Inferred, now), parts(&[(1, 4..8)]));
    batcher.on(asked(4), now);
    assert_eq!(batcher.on(BatcherEvent::Inferred, now), parts(&[(4, 0..1)]));
}

#[test]
fn long_requests_get_on_while_short_ones_never_end() {
    let (now, mut batcher) = (start(), batcher(1));
    batcher.on(asked_rows(0, 3), now);
    let (mut batches, mut long) = (0, 1);
    while long < 3 {
        batches += 1;
        batcher.on(asked(batches), now);
        batcher.on(asked(1000 + batches), now);
        let actions = batcher.on(BatcherEvent::Inferred, now);
        long += usize::from(actions == parts(&[(0, long..long + 1)]));
        assert!(batches <= 2 * u64::from(LONG_TURN));
    }
}

#[test]
fn the_last_rows_of_a_long_request_share_a_batch() {
    let (now, mut batcher) = (start(), batcher(4));
    assert_eq!(batcher.on(asked_rows(1, 6), now), parts(&[(1, 0..4)]));
    batcher.on(asked(2), now);
    assert_eq!(
        batcher.on(BatcherEvent::Inferred, now),
        parts(&[(2, 0..1), (1, 4..6)])
    );
    assert_eq!(batcher.on(BatcherEvent::Inferred, now), []);
}

#[test]
fn the_rest_of_a_request_that_failed_or_whose_client_left_is_not_inferred() {
    let (now, mut batcher) = (start(), batcher(1));
    batcher.on(asked_rows(1, 9), now);
    batcher.on(asked_rows(2, 9), now);
    batcher.on(BatcherEvent::Left(ConnectionId(1)), now);
    assert_eq!(batcher.on(BatcherEvent::Inferred, now), parts(&[(2, 0..1)]));
    assert_eq!(batcher.on(BatcherEvent::Failed(Ticket(2)), now), []);
    assert_eq!(
        (batcher.on(BatcherEvent::Inferred, now), batcher.queued()),
        (vec![], 0)
    );
}

#[test]
fn a_client_that_left_is_not_inferred_for() {
    let (now, mut batcher) = (start(), batcher(8));
    batcher.on(asked(1), now);
    batcher.on(asked(2), now);
    batcher.on(BatcherEvent::Left(ConnectionId(2)), now);
    assert_eq!(batcher.on(BatcherEvent::Inferred, now), []);
}

#[test]
fn stopping_answers_what_is_there_and_refuses_what_comes() {
    let (now, mut batcher) = (start(), batcher(1));
    batcher.on(asked(1), now);
    batcher.on(asked(2), now);
    assert_eq!(batcher.on(BatcherEvent::Stop, now), []);
    assert_eq!(
        batcher.on(asked(3), now),
        [BatcherAction::Refuse(Ticket(3), QueueRefusal::Stopping)]
    );
    assert_eq!(batcher.on(BatcherEvent::Inferred, now), infer(&[2]));
    assert_eq!(
        batcher.on(BatcherEvent::Inferred, now),
        [BatcherAction::Finished]
    );
}

#[test]
fn a_full_queue_refuses() {
    let now = start();
    let mut batcher = Batcher::new(BatchLimits {
        max_rows: 8,
        max_wait: WAIT,
        max_queue: 1,
    });
    batcher.on(asked(1), now);
    batcher.on(asked(2), now);
    assert_eq!(
        batcher.on(asked(3), now),
        [BatcherAction::Refuse(Ticket(3), QueueRefusal::Full)]
    );
}

proptest! {
    /// Each row of a request is inferred once and in order, or the request is refused once, unless
    /// its client left. No batch exceeds the limit, and while requests are queued, the batcher
    /// infers or has asked to be woken.
    #[test]
    fn every_row_is_inferred_once(
        steps in proptest::collection::vec((0u8..5, 0u64..6, 0usize..12, 0u64..10), 1..300),
        max_rows in 1usize..6,
    ) {
        let mut now = start();
        let mut batcher = Batcher::new(BatchLimits { max_rows, max_wait: WAIT, max_queue: 5 });
        // Client and remaining rows of each request.
        let mut open: BTreeMap<Ticket, (u64, Range<usize>)> = BTreeMap::new();
        let mut is_inferring = false;
        let mut wake: Option<Instant> = None;
        for (number, (kind, client, rows, millis)) in steps.into_iter().enumerate() {
            now += Duration::from_millis(millis);
            let ticket = Ticket(number as u64);
            let event = match kind {
                0 | 1 if !open.values().any(|(other, _)| *other == client) => {
                    open.insert(ticket, (client, 0..rows));
                    BatcherEvent::Request { ticket, client: ConnectionId(client), rows }
                }
                2 | 4 if is_inferring => {
                    is_inferring = false;
                    BatcherEvent::Inferred
                }
                3 => {
                    open.retain(|_, (other, _)| *other != client);
                    BatcherEvent::Left(ConnectionId(client))
                }
                _ => BatcherEvent::Woken,
            };
            let actions = batcher.on(event, now);
            if !actions.is_empty() {
                wake = None;
            }
            for action in actions {
                match action {
                    BatcherAction::Infer(batch) => {
                        prop_assert!(!is_inferring && !batch.is_empty());
                        is_inferring = true;
                        prop_assert!(batch.iter().map(|part| part.rows.len()).sum::<usize>() <= max_rows);
                        for part in batch {
                            let Some((_, rest)) = open.get_mut(&part.ticket) else { panic!("{part:?}") };
                            prop_assert!(part.rows.start == rest.start && part.rows.end <= rest.end);
                            rest.start = part.rows.end;
                            if rest.start >= rest.end {
                                open.remove(&part.ticket);
                            }
                        }
                    }
                    BatcherAction::Refuse(ticket, _) => prop_assert!(open.remove(&ticket).is_some()),
                    BatcherAction::WakeAt(at) => wake = Some(at),
                    BatcherAction::Finished => prop_assert!(false),
                }
            }
            prop_assert!(batcher.queued() == 0 || is_inferring || wake.is_some());
        }
    }

    /// A new client that asks for a single row is inferred in the second batch at the latest,
    /// however much the others ask for.
    #[test]
    fn a_single_row_waits_for_one_batch(
        greedy in proptest::collection::vec(1usize..4000, 1..64),
        before in 0usize..200,
        max_rows in 1usize..33,
    ) {
        let (now, mut batcher) = (start(), batcher(max_rows));
        let count = greedy.len() as u64;
        for (number, rows) in (0..).zip(greedy) {
            batcher.on(asked_rows(number, rows), now);
        }
        for _ in 0..before {
            batcher.on(BatcherEvent::Inferred, now);
        }
        batcher.on(asked(count), now);
        let mut batches = 0;
        let mut is_done = batcher.queued() == 0;
        while !is_done {
            batches += 1;
            let actions = batcher.on(BatcherEvent::Inferred, now + WAIT);
            let [BatcherAction::Infer(batch)] = &actions[..] else { panic!("{actions:?}") };
            is_done = batch.iter().any(|part| part.ticket == Ticket(count));
        }
        // Other new clients that came at the same moment go first, and one batch may begin with a
        // long request.
        let first_turns = (count as usize).saturating_sub(before);
        prop_assert!(batches <= 2 + first_turns, "{batches} batches");
    }
}
