use proptest::prelude::*;

use super::*;

const WAIT: Duration = Duration::from_millis(5);

#[expect(clippy::disallowed_methods, reason = "some moment to count from")]
fn start() -> Instant {
    Instant::now()
}

fn batcher(max_rows: usize) -> Batcher {
    Batcher::new(Limits { max_rows, max_wait: WAIT, max_queue: 100 })
}

fn asked(number: u64) -> Event {
    Event::Asked { ticket: Ticket(number), client: ClientId(number), rows: 1 }
}

fn infer(numbers: &[u64]) -> Vec<Action> {
    vec![Action::Infer(numbers.iter().copied().map(Ticket).collect())]
}

/// A batcher whose clients 1 to `count` have just had an answer.
fn after_answers(count: u64, max_rows: usize, now: Instant) -> Batcher {
    let mut batcher = batcher(max_rows);
    batcher.answered.extend((1..=count).map(|number| (ClientId(number), now)));
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
    // Client 1 has its answer now and may come back.
    assert_eq!(batcher.on(Event::Inferred, now), [Action::WakeAt(now + WAIT)]);
    assert_eq!(batcher.on(Event::Woken, now + WAIT), infer(&[2, 3]));
}

#[test]
fn the_last_that_may_come_ends_the_wait() {
    let now = start();
    let mut batcher = after_answers(3, 8, now);
    assert_eq!(batcher.on(asked(1), now), [Action::WakeAt(now + WAIT)]);
    assert_eq!(batcher.on(asked(2), now), [Action::WakeAt(now + WAIT)]);
    assert_eq!(batcher.on(asked(3), now), infer(&[1, 2, 3]));
}

#[test]
fn nobody_waits_for_a_client_that_left_or_fell_silent() {
    let now = start();
    let mut batcher = after_answers(2, 8, now);
    batcher.on(asked(1), now);
    assert_eq!(batcher.on(Event::Left(ClientId(2)), now), infer(&[1]));
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
    assert_eq!(batcher.on(Event::Inferred, now), infer(&[3, 4]));
}

#[test]
fn a_request_with_many_rows_goes_alone() {
    let (now, mut batcher) = (start(), batcher(4));
    batcher.on(asked(1), now);
    batcher.on(asked(2), now);
    batcher.on(Event::Asked { ticket: Ticket(3), client: ClientId(3), rows: 9 }, now);
    batcher.on(asked(4), now);
    assert_eq!(batcher.on(Event::Inferred, now), infer(&[2]));
    assert_eq!(batcher.on(Event::Inferred, now), infer(&[3]));
}

#[test]
fn a_client_that_left_is_not_inferred_for() {
    let (now, mut batcher) = (start(), batcher(8));
    batcher.on(asked(1), now);
    batcher.on(asked(2), now);
    batcher.on(Event::Left(ClientId(2)), now);
    assert_eq!(batcher.on(Event::Inferred, now), []);
}

#[test]
fn stopping_answers_what_is_there_and_refuses_what_comes() {
    let (now, mut batcher) = (start(), batcher(1));
    batcher.on(asked(1), now);
    batcher.on(asked(2), now);
    assert_eq!(batcher.on(Event::Stop, now), []);
    assert_eq!(batcher.on(asked(3), now), [Action::Refuse(Ticket(3), Refusal::Stopping)]);
    assert_eq!(batcher.on(Event::Inferred, now), infer(&[2]));
    assert_eq!(batcher.on(Event::Inferred, now), [Action::Finished]);
}

#[test]
fn a_full_queue_refuses() {
    let now = start();
    let mut batcher = Batcher::new(Limits { max_rows: 8, max_wait: WAIT, max_queue: 1 });
    batcher.on(asked(1), now);
    batcher.on(asked(2), now);
    assert_eq!(batcher.on(asked(3), now), [Action::Refuse(Ticket(3), Refusal::Full)]);
}

proptest! {
    /// Whatever happens, a request is inferred once or refused once, unless its client left; no batch is larger than it
    /// may be, and a batcher that is woken when it asks for it never falls asleep with somebody in the queue.
    #[test]
    fn every_request_is_answered_once(
        steps in proptest::collection::vec((0u8..4, 0u64..6, 1usize..5, 0u64..10), 1..200),
        max_rows in 1usize..6,
    ) {
        let mut now = start();
        let mut batcher = Batcher::new(Limits { max_rows, max_wait: WAIT, max_queue: 5 });
        let (mut open, mut rows_of, mut is_inferring) = (BTreeMap::new(), BTreeMap::new(), false);
        let mut wake: Option<Instant> = None;
        for (number, (kind, client, rows, millis)) in steps.into_iter().enumerate() {
            now += Duration::from_millis(millis);
            let ticket = Ticket(number as u64);
            let event = match kind {
                0 | 1 if !open.values().any(|other| *other == client) => {
                    open.insert(ticket, client);
                    rows_of.insert(ticket, rows);
                    Event::Asked { ticket, client: ClientId(client), rows }
                }
                2 if is_inferring => {
                    is_inferring = false;
                    Event::Inferred
                }
                3 => {
                    open.retain(|_, other| *other != client);
                    Event::Left(ClientId(client))
                }
                _ => Event::Woken,
            };
            let actions = batcher.on(event, now);
            if !actions.is_empty() {
                wake = None;
            }
            for action in actions {
                match action {
                    Action::Infer(batch) => {
                        prop_assert!(!is_inferring);
                        is_inferring = true;
                        let rows: usize = batch.iter().map(|ticket| rows_of[ticket]).sum();
                        prop_assert!(rows <= max_rows || batch.len() == 1);
                        for ticket in batch {
                            prop_assert!(open.remove(&ticket).is_some());
                        }
                    }
                    Action::Refuse(ticket, _) => prop_assert!(open.remove(&ticket).is_some()),
                    Action::WakeAt(at) => wake = Some(at),
                    Action::Finished => prop_assert!(false),
                }
            }
            prop_assert!(batcher.queued() == 0 || is_inferring || wake.is_some());
        }
    }
}
