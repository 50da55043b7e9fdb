//! Conversations of clients with a table, and property tests against a model.

use super::*;
use std::path::Path;

const A: StoreClientId = StoreClientId(1);
const B: StoreClientId = StoreClientId(2);
const C: StoreClientId = StoreClientId(3);

fn stop(to: StoreClientId) -> TableAction {
    TableAction::Send(to, StoreReply::StopWaiting)
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> StoreRequest<'a> {
    StoreRequest::Set { key, value }
}

fn refuses(actions: &[TableAction]) -> bool {
    let is_full = |why: &StoreRefusal| why.to_string().starts_with("the store holds ");
    matches!(actions, [TableAction::Close(_, why)] if is_full(why))
}

/// Reads a request: its name, and keys, values or a number.
fn request<'a>(words: &'a [String]) -> StoreRequest<'a> {
    let at = |index: usize| words[index].as_bytes();
    let number = |index: usize| words[index].parse().unwrap();
    let keys = || words[1..].iter().map(|key| key.as_bytes()).collect();
    match words[0].as_str() {
        "set" => set(at(1), at(2)),
        "compare_set" => StoreRequest::CompareSet {
            key: at(1),
            expected: at(2),
            desired: at(3),
        },
        "get" => StoreRequest::Get { key: at(1) },
        "add" => StoreRequest::Add {
            key: at(1),
            delta: number(2),
        },
        "check" => StoreRequest::Check { keys: keys() },
        "wait" => StoreRequest::Wait { keys: keys() },
        "cancel" => StoreRequest::CancelWait,
        "count" => StoreRequest::NumKeys,
        "list" => StoreRequest::ListKeys,
        "delete" => StoreRequest::Delete { key: at(1) },
        "push" => StoreRequest::QueuePush {
            key: at(1),
            value: b"item",
        },
        "pop" => StoreRequest::QueuePop { key: at(1) },
        "length" => StoreRequest::QueueLen { key: at(1) },
        "barrier" => StoreRequest::Barrier {
            key: at(1),
            world: number(2),
        },
        other => panic!("no request {other}"),
    }
}

fn shown(action: &TableAction) -> String {
    let (to, what) = match action {
        TableAction::Close(to, err) => (to, format!("is closed: {err}")),
        TableAction::Send(to, reply) => (
            to,
            match reply {
                StoreReply::StopWaiting => "stops".to_owned(),
                StoreReply::WaitCanceled => "gives up".to_owned(),
                StoreReply::Exist(all) => all.to_string(),
                StoreReply::Number(number) => number.to_string(),
                StoreReply::Value(value) => format!("`{}`", String::from_utf8_lossy(value)),
                StoreReply::Popped(item) => format!("pops {}", item.is_some()),
                other => format!("{other:?}"),
            },
        ),
    };
    let to = ["A", "B", "C"][to.0 as usize - 1];
    format!("{to} {what}")
}

/// Returns what a word of a conversation means: `''` is an empty word, `␣` a blank and `⇥` a
/// tab.
fn word(text: &str) -> String {
    text.replace("''", "").replace('␣', " ").replace('⇥', "\t")
}

/// Holds a conversation: each line is a client and its request, `leaves`, or `begins` with a part
/// of a wait. Says what comes of each line.
fn answer(given: &str) -> String {
    let mut table = StoreTable::default();
    let mut said = Vec::new();
    for line in given.lines() {
        let words: Vec<String> = line.split(' ').map(word).collect();
        let client = match words[0].as_str() {
            "A" => A,
            "B" => B,
            _ => C,
        };
        let actions = match words[1].as_str() {
            "leaves" => table.leave(client),
            "begins" => {
                let keys: Vec<_> = words[2..].iter().map(|key| key.as_bytes()).collect();
                table.begin_wait(client, &keys).unwrap();
                Vec::new()
            }
            _ => table.on(client, &request(&words[1..])),
        };
        let shown: Vec<_> = actions.iter().map(shown).collect();
        said.push(match shown.is_empty() {
            true => "-".to_owned(),
            false => shown.join(", "),
        });
    }
    said.join("\n")
}

#[test]
fn clients_are_answered_as_by_torch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    rig::cases::check(folder.join("src/table/conversations.txt"), answer);
}

#[test]
fn a_full_store_refuses_more_and_still_takes_replacements_and_deletions() {
    let mut table = StoreTable::with_limit(2 * ENTRY + 8);
    table.on(A, &set(b"x", b"123"));
    table.on(A, &set(b"y", b"123"));
    for line in ["add z 1", "push q"] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert!(refuses(&table.on(A, &request(&words))), "{line}");
    }
    let (key, value) = (b"x", b"4");
    assert!(refuses(&table.on(A, &StoreRequest::Append { key, value })));
    assert_eq!(table.on(A, &set(b"x", b"abc")), []);
    table.on(A, &StoreRequest::Delete { key: b"x" });
    assert_eq!(table.on(A, &set(b"z", b"456")), []);
}

#[test]
fn what_clients_wait_for_counts_and_is_given_back() {
    let mut table = StoreTable::with_limit(2400);
    let key = [7; 1000];
    let waits = || StoreRequest::Wait { keys: vec![&key] };
    assert_eq!(table.on(A, &waits()), []);
    assert!(refuses(&table.on(B, &waits())));
    assert!(refuses(&table.on(C, &set(b"x", &[0; 1200]))));
    assert_eq!(table.on(C, &set(&key, b"")), [stop(A)]);
    let deleted = TableAction::Send(C, StoreReply::Number(1));
    assert_eq!(table.on(C, &StoreRequest::Delete { key: &key }), [deleted]);
    assert_eq!(table.on(B, &waits()), []);
}

#[test]
fn a_value_that_is_being_sent_counts_until_it_has_arrived() {
    let big = [7; 2000];
    let mut table = StoreTable::with_limit(3000);
    table.on(A, &set(b"x", &big));
    let reply = table.on(B, &StoreRequest::Get { key: b"x" });
    table.on(A, &StoreRequest::Delete { key: b"x" });
    assert!(refuses(&table.on(A, &set(b"y", &big))));
    drop(reply);
    assert_eq!(table.on(A, &set(b"y", &big)), []);
}

#[test]
fn a_value_is_not_appended_to_for_ever() {
    let mut table = StoreTable::default();
    let mut append = |length: usize| {
        let (key, value) = (b"x", &vec![0; length]);
        table.on(A, &StoreRequest::Append { key, value })
    };
    assert_eq!(append(MAX_APPENDED - 1), []);
    assert_eq!(append(1), []);
    let [TableAction::Close(_, why)] = &append(1)[..] else {
        panic!("it is taken")
    };
    assert!(
        why.to_string().starts_with("a value of 67108865 bytes"),
        "{why}"
    );
}

mod model;
