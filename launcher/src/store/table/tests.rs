//! Tests of protocol scenarios, and property tests against a model.

use super::*;

const A: StoreClientId = StoreClientId(1);
const B: StoreClientId = StoreClientId(2);
const C: StoreClientId = StoreClientId(3);

fn set(key: &'static str, value: &'static str) -> StoreRequest<'static> {
    StoreRequest::Set {
        key: key.as_bytes(),
        value: value.as_bytes(),
    }
}

fn wait(keys: &[&'static str]) -> StoreRequest<'static> {
    StoreRequest::Wait {
        keys: keys.iter().map(|key| key.as_bytes()).collect(),
    }
}

fn push(key: &'static str) -> StoreRequest<'static> {
    StoreRequest::QueuePush {
        key: key.as_bytes(),
        value: b"item",
    }
}

fn add(key: &'static str, delta: i64) -> StoreRequest<'static> {
    StoreRequest::Add {
        key: key.as_bytes(),
        delta,
    }
}

fn barrier(world: i64) -> StoreRequest<'static> {
    StoreRequest::Barrier { key: b"b", world }
}

fn compare_set<'a>(expected: &'a str, desired: &'a str) -> StoreRequest<'a> {
    StoreRequest::CompareSet {
        key: b"c",
        expected: expected.as_bytes(),
        desired: desired.as_bytes(),
    }
}

fn value(to: StoreClientId, text: &str) -> TableAction {
    TableAction::Send(to, StoreReply::Value(Arc::new(text.as_bytes().to_vec())))
}

fn stop(to: StoreClientId) -> TableAction {
    TableAction::Send(to, StoreReply::StopWaiting)
}

#[test]
fn a_wait_ends_when_the_last_key_is_set() {
    let mut table = StoreTable::default();
    assert_eq!(table.on(A, &wait(&["x", "y"])), []);
    assert_eq!(table.on(B, &set("x", "1")), []);
    assert_eq!(
        table.on(B, &add("y", 1)),
        [stop(A), TableAction::Send(B, StoreReply::Number(1))]
    );
    assert_eq!(table.on(A, &wait(&["x", "y"])), [stop(A)]);
}

#[test]
fn a_wait_for_nothing_ends_at_once() {
    assert_eq!(StoreTable::default().on(A, &wait(&[])), [stop(A)]);
}

#[test]
fn a_key_deleted_again_has_appeared() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["x", "y"]));
    table.on(B, &set("x", "1"));
    table.on(B, &StoreRequest::Delete { key: b"x" });
    assert_eq!(table.on(B, &set("y", "1")), [stop(A)]);
}

#[test]
fn a_cancelled_wait_is_answered_once() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["x"]));
    assert_eq!(
        table.on(A, &StoreRequest::CancelWait),
        [TableAction::Send(A, StoreReply::WaitCanceled)]
    );
    assert_eq!(table.on(B, &set("x", "1")), []);
}

#[test]
fn a_cancel_that_comes_too_late_is_answered_too() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["x"]));
    assert_eq!(table.on(B, &set("x", "1")), [stop(A)]);
    assert_eq!(
        table.on(A, &StoreRequest::CancelWait),
        [TableAction::Send(A, StoreReply::WaitCanceled)]
    );
}

#[test]
fn a_second_wait_before_the_first_is_over_is_refused() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["x"]));
    assert_eq!(
        table.on(A, &wait(&["y"])),
        [TableAction::Close(A, StoreRefusal::SecondWait)]
    );
}

#[test]
fn compare_set_is_as_torch_has_it() {
    let mut table = StoreTable::default();
    assert_eq!(table.on(A, &compare_set("x", "y")), [value(A, "x")]);
    assert_eq!(
        table.on(A, &StoreRequest::NumKeys),
        [TableAction::Send(A, StoreReply::Number(0))]
    );
    assert_eq!(table.on(A, &compare_set("", "first")), [value(A, "first")]);
    assert_eq!(table.on(A, &compare_set("", "second")), [value(A, "first")]);
    assert_eq!(
        table.on(A, &compare_set("first", "second")),
        [value(A, "second")]
    );
}

#[test]
fn a_compare_set_that_stores_nothing_wakes_nobody() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["c"]));
    assert_eq!(table.on(B, &compare_set("x", "y")), [value(B, "x")]);
    assert_eq!(table.on(B, &compare_set("", "y")), [stop(A), value(B, "y")]);
}

#[test]
fn numbers_are_read_as_in_c() {
    let table = [
        (" 12abc", 13),
        ("-4", -3),
        ("\t+7", 8),
        ("9223372036854775807", i64::MIN),
    ];
    for (text, sum) in table {
        let mut store = StoreTable::default();
        store.on(A, &set("n", text));
        assert_eq!(
            store.on(A, &add("n", 1)),
            [TableAction::Send(A, StoreReply::Number(sum))],
            "{text}"
        );
    }
    for text in ["", "xxxx", "- 1", "+", "9223372036854775808"] {
        let mut store = StoreTable::default();
        store.on(A, &set("n", text));
        assert_eq!(
            store.on(A, &add("n", 1)),
            [TableAction::Close(A, StoreRefusal::NotANumber)],
            "{text}"
        );
    }
}

#[test]
fn queues_are_beside_the_map() {
    let mut table = StoreTable::default();
    table.on(A, &push("q"));
    assert_eq!(
        table.on(A, &StoreRequest::Check { keys: vec![b"q"] }),
        [TableAction::Send(A, StoreReply::Exist(true))]
    );
    assert_eq!(
        table.on(A, &StoreRequest::Get { key: b"q" }),
        [value(A, "")]
    );
    assert_eq!(
        table.on(A, &StoreRequest::NumKeys),
        [TableAction::Send(A, StoreReply::Number(0))]
    );
    assert_eq!(
        table.on(A, &StoreRequest::ListKeys),
        [TableAction::Send(A, StoreReply::Keys(vec![]))]
    );
    assert_eq!(
        table.on(A, &StoreRequest::Delete { key: b"q" }),
        [TableAction::Send(A, StoreReply::Number(0))]
    );
    assert_eq!(
        table.on(A, &StoreRequest::QueueLen { key: b"q" }),
        [TableAction::Send(A, StoreReply::Number(1))]
    );
}

#[test]
fn a_push_wakes_one_waiter_and_the_next_push_the_next() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["q"]));
    table.on(B, &wait(&["q"]));
    assert_eq!(table.on(C, &push("q")), [stop(A)]);
    table.on(A, &StoreRequest::QueuePop { key: b"q" });
    assert_eq!(table.on(C, &push("q")), [stop(B)]);
}

#[test]
fn a_woken_client_that_dies_leaves_its_item_to_the_next() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["q"]));
    table.on(B, &wait(&["q"]));
    assert_eq!(table.on(C, &push("q")), [stop(A)]);
    assert_eq!(table.leave(A), [stop(B)]);
}

#[test]
fn a_woken_client_that_gave_up_leaves_its_item_to_the_next() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["q"]));
    table.on(B, &wait(&["q"]));
    table.on(C, &push("q"));
    assert_eq!(
        table.on(A, &StoreRequest::CancelWait),
        [stop(B), TableAction::Send(A, StoreReply::WaitCanceled)]
    );
}

#[test]
fn a_barrier_opens_for_all_with_the_last() {
    let mut table = StoreTable::default();
    assert_eq!(table.on(A, &barrier(3)), []);
    assert_eq!(table.on(B, &barrier(3)), []);
    assert_eq!(table.on(C, &barrier(3)), [stop(A), stop(B), stop(C)]);
    assert_eq!(
        table.on(A, &StoreRequest::Get { key: b"b" }),
        [value(A, "3")]
    );
}

#[test]
fn the_dead_are_not_woken() {
    let mut table = StoreTable::default();
    table.on(A, &wait(&["x"]));
    table.on(B, &barrier(2));
    assert_eq!((table.leave(A), table.leave(B)), (vec![], vec![]));
    assert_eq!(table.on(C, &set("x", "1")), []);
    assert_eq!(table.on(C, &barrier(2)), [stop(C)]);
}

#[test]
fn a_full_store_refuses_more_and_still_takes_replacements_and_deletions() {
    let mut table = StoreTable::with_limit(2 * ENTRY + 8);
    table.on(A, &set("x", "123"));
    table.on(A, &set("y", "123"));
    assert!(matches!(
        table.on(A, &add("z", 1))[..],
        [TableAction::Close(A, StoreRefusal::Full { .. })]
    ));
    assert!(matches!(
        table.on(A, &push("q"))[..],
        [TableAction::Close(A, StoreRefusal::Full { .. })]
    ));
    assert!(matches!(
        table.on(
            A,
            &StoreRequest::Append {
                key: b"x",
                value: b"4"
            }
        )[..],
        [TableAction::Close(..)]
    ));
    assert_eq!(table.on(A, &set("x", "abc")), []);
    table.on(A, &StoreRequest::Delete { key: b"x" });
    assert_eq!(table.on(A, &set("z", "456")), []);
}

#[test]
fn what_clients_wait_for_counts_and_is_given_back() {
    let mut table = StoreTable::with_limit(2400);
    let key = [7; 1000];
    let waits = || StoreRequest::Wait { keys: vec![&key] };
    assert_eq!(table.on(A, &waits()), []);
    assert!(matches!(
        table.on(B, &waits())[..],
        [TableAction::Close(B, StoreRefusal::Full { .. })]
    ));
    assert!(matches!(
        table.on(
            C,
            &StoreRequest::Set {
                key: b"x",
                value: &[0; 1200]
            }
        )[..],
        [TableAction::Close(C, StoreRefusal::Full { .. })]
    ));
    assert_eq!(
        table.on(
            C,
            &StoreRequest::Set {
                key: &key,
                value: b""
            }
        ),
        [stop(A)]
    );
    assert_eq!(
        table.on(C, &StoreRequest::Delete { key: &key }),
        [TableAction::Send(C, StoreReply::Number(1))]
    );
    assert_eq!(table.on(B, &waits()), []);
}

#[test]
fn a_value_that_is_being_sent_counts_until_it_has_arrived() {
    let big = "v".repeat(2000);
    let mut table = StoreTable::with_limit(3000);
    table.on(
        A,
        &StoreRequest::Set {
            key: b"x",
            value: big.as_bytes(),
        },
    );
    let reply = table.on(B, &StoreRequest::Get { key: b"x" });
    table.on(A, &StoreRequest::Delete { key: b"x" });
    let again = StoreRequest::Set {
        key: b"y",
        value: big.as_bytes(),
    };
    assert!(matches!(
        table.on(A, &again)[..],
        [TableAction::Close(A, StoreRefusal::Full { .. })]
    ));
    drop(reply);
    assert_eq!(table.on(A, &again), []);
}

#[test]
fn a_value_is_not_appended_to_for_ever() {
    let mut table = StoreTable::default();
    let append = |table: &mut StoreTable, length| {
        table.on(
            A,
            &StoreRequest::Append {
                key: b"x",
                value: &vec![0; length],
            },
        )
    };
    assert_eq!(append(&mut table, MAX_APPENDED - 1), []);
    assert_eq!(append(&mut table, 1), []);
    assert_eq!(
        append(&mut table, 1),
        [TableAction::Close(
            A,
            StoreRefusal::TooLong(MAX_APPENDED + 1)
        )]
    );
}

#[test]
fn a_wait_in_parts_ends_as_one() {
    let mut table = StoreTable::default();
    table.on(B, &set("x", "1"));
    assert_eq!(table.begin_wait(A, &[b"x", b"y"]), Ok(()));
    assert_eq!(table.on(B, &set("y", "1")), []);
    assert_eq!(table.on(A, &wait(&["z"])), []);
    assert_eq!(table.on(B, &set("z", "1")), [stop(A)]);
    assert_eq!(table.begin_wait(A, &[b"x"]), Ok(()));
    assert_eq!(table.on(A, &wait(&["y"])), [stop(A)], "all of it is there");
}

#[path = "model.rs"]
mod model;
