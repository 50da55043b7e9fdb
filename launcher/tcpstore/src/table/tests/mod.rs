//! Conversations of clients with a table, and property tests against a model.

use super::*;
use std::path::Path;

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> StoreRequest<'a> {
    StoreRequest::Set { key, value }
}

fn refuses(answer: Result<Answer, StoreRefusal>) -> bool {
    answer.is_err_and(|why| why.to_string().starts_with("the store holds "))
}

fn is_silent(answer: &Result<Answer, StoreRefusal>) -> bool {
    matches!(answer, Ok(Answer::None))
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

fn shown(reply: &StoreReply) -> String {
    match reply {
        StoreReply::StopWaiting => "stops".to_owned(),
        StoreReply::WaitCanceled => "gives up".to_owned(),
        StoreReply::Exist(all) => all.to_string(),
        StoreReply::Number(number) => number.to_string(),
        StoreReply::Value(value) => format!("`{}`", String::from_utf8_lossy(value)),
        StoreReply::Popped(item) => format!("pops {}", item.is_some()),
        other => format!("{other:?}"),
    }
}

/// Returns what a word of a conversation means: `''` is an empty word, `␣` a blank and `⇥` a
/// tab.
fn word(text: &str) -> String {
    text.replace("''", "").replace('␣', " ").replace('⇥', "\t")
}

/// Holds a conversation: each line is a client and its request, or `leaves`. Says what comes of
/// each line.
fn answer(given: &str) -> String {
    let mut table = StoreTable::default();
    let mut waits: Vec<(String, Wait)> = Vec::new();
    let mut said = Vec::new();
    for line in given.lines() {
        let words: Vec<String> = line.split(' ').map(word).collect();
        let (client, leaves) = (&words[0], words[1] == "leaves");
        if leaves || words[1] == "cancel" {
            waits.retain(|(of, _)| of != client);
        }
        let answer = match leaves {
            true => Ok(Answer::None),
            false => table.answer(&request(&words[1..])),
        };
        let over = waits.extract_if(.., |(_, wait)| wait.is_over());
        let mut shown: Vec<_> = over.map(|(of, _)| format!("{of} stops")).collect();
        match answer {
            Ok(Answer::None) => {}
            Ok(Answer::Reply(reply)) => shown.push(format!("{client} {}", self::shown(&reply))),
            Ok(Answer::Wait(wait)) => waits.push((client.clone(), wait)),
            Err(err) => shown.push(format!("{client} is closed: {err}")),
        }
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
    assert!(is_silent(&table.answer(&set(b"x", b"123"))));
    assert!(is_silent(&table.answer(&set(b"y", b"123"))));
    for line in ["add z 1", "push q"] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert!(refuses(table.answer(&request(&words))), "{line}");
    }
    let (key, value) = (b"x", b"4");
    assert!(refuses(table.answer(&StoreRequest::Append { key, value })));
    assert!(is_silent(&table.answer(&set(b"x", b"abc"))));
    table.answer(&StoreRequest::Delete { key: b"x" }).unwrap();
    assert!(is_silent(&table.answer(&set(b"z", b"456"))));
}

#[test]
fn what_clients_wait_for_counts_and_is_given_back() {
    let mut table = StoreTable::with_limit(2400);
    let (one, other) = ([7; 1000], [8; 1000]);
    let waits = |key| StoreRequest::Wait { keys: vec![key] };
    let Ok(Answer::Wait(wait)) = table.answer(&waits(&one)) else {
        panic!("the key is there")
    };
    assert!(refuses(table.answer(&waits(&other))));
    assert!(refuses(table.answer(&set(b"x", &[0; 1200]))));
    drop(wait);
    let wait = table.answer(&waits(&other));
    assert!(matches!(wait, Ok(Answer::Wait(_))), "the first is given up");
    assert!(refuses(table.answer(&waits(&one))));
    assert!(is_silent(&table.answer(&set(&other, b""))));
    table.answer(&StoreRequest::Delete { key: &other }).unwrap();
    assert!(matches!(table.answer(&waits(&one)), Ok(Answer::Wait(_))));
}

#[test]
fn waits_that_begin_and_are_given_up_for_ever_leave_nothing_behind() {
    let mut table = StoreTable::default();
    for turn in 0..10_000_u32 {
        let key = (turn % 100).to_le_bytes();
        let keys = vec![&key[..], b"never"];
        table.answer(&StoreRequest::Wait { keys }).unwrap();
    }
    let held = table.budget().held();
    assert!(
        held < 400 * ENTRY + 4 * 1024 * crate::limits::WAIT_ENTRY,
        "{held}"
    );
    table.waits.sweep();
    assert_eq!(table.budget().held(), 0);
}

#[test]
fn a_value_that_is_being_sent_counts_until_it_has_arrived() {
    let big = [7; 2000];
    let mut table = StoreTable::with_limit(3000);
    assert!(is_silent(&table.answer(&set(b"x", &big))));
    let reply = table.answer(&StoreRequest::Get { key: b"x" });
    table.answer(&StoreRequest::Delete { key: b"x" }).unwrap();
    assert!(refuses(table.answer(&set(b"y", &big))));
    drop(reply);
    assert!(is_silent(&table.answer(&set(b"y", &big))));
}

#[test]
fn a_value_that_is_being_sent_does_not_change() {
    let mut table = StoreTable::default();
    let (key, value) = (&b"x"[..], &b"2"[..]);
    for change in [set(key, value), StoreRequest::Append { key, value }] {
        table.answer(&set(key, b"1")).unwrap();
        let Ok(Answer::Reply(reply)) = table.answer(&StoreRequest::Get { key }) else {
            panic!("there is no reply")
        };
        table.answer(&change).unwrap();
        assert_eq!(reply.into_value().as_deref(), Some(&b"1"[..]));
    }
}

#[test]
fn a_short_value_in_place_of_a_long_one_takes_little() {
    let mut table = StoreTable::default();
    table.answer(&set(b"x", &[7; 1 << 20])).unwrap();
    table.answer(&set(b"x", b"short")).unwrap();
    assert!(table.get(b"x").bytes.capacity() < 100);
}

#[test]
fn a_value_is_not_appended_to_for_ever() {
    let mut table = StoreTable::default();
    let mut append = |length: usize| {
        let (key, value) = (b"x", &vec![0; length]);
        table.answer(&StoreRequest::Append { key, value })
    };
    assert!(is_silent(&append(MAX_APPENDED - 1)));
    assert!(is_silent(&append(1)));
    let why = append(1).expect_err("it is taken").to_string();
    assert!(why.starts_with("a value of 67108865 bytes"), "{why}");
}

mod model;
