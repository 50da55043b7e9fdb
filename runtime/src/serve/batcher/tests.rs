use proptest::prelude::*;

use super::*;
use crate::clock::now;

const WAIT: Duration = Duration::from_millis(5);

fn batcher(max_rows: usize) -> Batcher {
    Batcher::new(BatchLimits {
        max_rows,
        max_wait: WAIT,
        max_queue: 100,
    })
}

fn asked(number: u64) -> BatcherEvent {
    asked_rows(number, 1)
}

fn asked_rows(number: u64, rows: usize) -> BatcherEvent {
    BatcherEvent::Request {
        ticket: Ticket(number),
        client: ConnectionId(number),
        rows,
    }
}

/// Reads `ask <client> [<rows>]`, `left <client>`, `failed <request>`, `inferred`, `woken`, `stop`.
fn event(words: &str) -> BatcherEvent {
    let words: Vec<&str> = words.split_whitespace().collect();
    let number = |at: usize| words.get(at).map(|word| word.parse::<u64>().unwrap());
    match words[0] {
        "ask" => asked_rows(number(1).unwrap(), number(2).unwrap_or(1) as usize),
        "left" => BatcherEvent::Left(ConnectionId(number(1).unwrap())),
        "failed" => BatcherEvent::Failed(Ticket(number(1).unwrap())),
        "inferred" => BatcherEvent::Inferred,
        "woken" => BatcherEvent::Woken,
        "stop" => BatcherEvent::Stop,
        other => panic!("{other}"),
    }
}

fn shown(action: &BatcherAction, start: Instant) -> String {
    let part = |part: &RequestRows| format!("{} {:?}", part.ticket.0, part.rows);
    match action {
        BatcherAction::Infer(parts) => {
            let parts: Vec<_> = parts.iter().map(part).collect();
            format!("infer {}", parts.join(", "))
        }
        BatcherAction::Refuse(ticket, why) => format!("refuse {}: {why}", ticket.0),
        BatcherAction::WakeAt(at) => format!("wake at {:?}", *at - start),
        BatcherAction::Finished => "finished".to_owned(),
    }
}

/// Returns the actions after each event, of which the first line says how many rows a batch and how
/// many requests the queue may have, and how many clients have just had an answer.
fn course(given: &str) -> String {
    let (limits, events) = given.split_once('\n').unwrap();
    let mut limits = limits.split_whitespace().skip(1).step_by(2);
    let mut limit = || limits.next().unwrap().parse::<usize>().unwrap();
    let (max_rows, max_queue, answered) = (limit(), limit(), limit() as u64);
    let start = now();
    let mut batcher = Batcher::new(BatchLimits {
        max_rows,
        max_wait: WAIT,
        max_queue,
    });
    batcher
        .answered
        .extend((1..=answered).map(|number| (ConnectionId(number), start)));
    let mut now = start;
    let course = events.lines().map(|line| {
        let (words, later) = line.split_once(" after ").unwrap_or((line, "0"));
        now += Duration::from_millis(later.parse().unwrap());
        let actions = batcher.on(event(words), now);
        let actions: Vec<_> = actions.iter().map(|action| shown(action, start)).collect();
        format!("{words}: {}\n", actions.join(", "))
    });
    course.collect()
}

#[test]
fn requests_are_batched_fairly_and_without_needless_waits() {
    rig::cases::check("src/serve/batcher/courses.txt", course);
}

#[test]
fn long_requests_get_on_while_short_ones_never_end() {
    let (now, mut batcher) = (now(), batcher(1));
    batcher.on(asked_rows(0, 3), now);
    let (mut batches, mut long) = (0, 1);
    while long < 3 {
        batches += 1;
        batcher.on(asked(batches), now);
        batcher.on(asked(1000 + batches), now);
        let actions = batcher.on(BatcherEvent::Inferred, now);
        let next = RequestRows {
            ticket: Ticket(0),
            rows: long..long + 1,
        };
        long += usize::from(actions == [BatcherAction::Infer(vec![next])]);
        assert!(batches <= 2 * u64::from(LONG_TURN));
    }
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
        let mut now = now();
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
        let (now, mut batcher) = (now(), batcher(max_rows));
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
