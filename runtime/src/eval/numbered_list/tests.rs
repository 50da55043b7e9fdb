use super::*;
use tcpstore::memory::MemoryStore;

fn read(reader: &mut ListReader, store: &Store) -> Vec<String> {
    let mut entries = Vec::new();
    let take = |entry| entries.push(String::from_utf8(entry).unwrap());
    reader.read(store, take).unwrap();
    entries
}

fn append_all(store: &Store, entries: impl IntoIterator<Item = usize>) {
    for entry in entries {
        append(store, "l", entry.to_string().as_bytes()).unwrap();
    }
}

/// Returns how many requests `act` needs.
fn requests_of(memory: &MemoryStore, act: impl FnOnce()) -> u64 {
    let before = memory.requests();
    act();
    memory.requests() - before
}

#[test]
fn each_entry_is_read_once() {
    let ((store, _), mut reader) = (MemoryStore::new(), ListReader::new("l"));
    assert!(read(&mut reader, &store).is_empty());
    append_all(&store, 0..3);
    assert_eq!(read(&mut reader, &store), ["0", "1", "2"]);
    append_all(&store, 3..4);
    assert_eq!(read(&mut reader, &store), ["3"]);
    assert!(read(&mut reader, &store).is_empty());
}

#[test]
fn an_entry_that_never_came_holds_up_no_other_and_is_read_when_it_comes() {
    let ((store, _), mut reader) = (MemoryStore::new(), ListReader::new("l"));
    append_all(&store, 0..5);
    let late = store.add("l", 1).unwrap();
    append_all(&store, 6..9);
    assert_eq!(read(&mut reader, &store).len(), 8);
    append_all(&store, 9..10);
    assert_eq!(read(&mut reader, &store), ["9"]);
    store.set(&entry_key("l", late), b"late").unwrap();
    assert_eq!(read(&mut reader, &store), ["late"]);
}

#[test]
fn a_look_that_finds_nothing_is_one_request_and_new_entries_cost_two_for_each_1024() {
    let ((store, memory), mut reader) = (MemoryStore::new(), ListReader::new("l"));
    append_all(&store, 0..16_384);
    let requests = requests_of(&memory, || drop(read(&mut reader, &store)));
    assert_eq!(requests, 1 + 2 * 16);
    let requests = requests_of(&memory, || drop(read(&mut reader, &store)));
    assert_eq!(requests, 1);
}

#[test]
fn an_absent_entry_costs_a_search_once_and_then_one_request() {
    let ((store, memory), mut reader) = (MemoryStore::new(), ListReader::new("l"));
    append_all(&store, 0..500);
    store.add("l", 1).unwrap();
    append_all(&store, 501..1024);
    let requests = requests_of(&memory, || drop(read(&mut reader, &store)));
    assert!(requests < 40, "{requests}");
    let requests = requests_of(&memory, || drop(read(&mut reader, &store)));
    assert_eq!(requests, 2);
}

#[test]
fn a_counter_that_somebody_has_spoilt_does_no_harm() {
    let ((store, _), mut reader) = (MemoryStore::new(), ListReader::new("l"));
    store.add("l", -3).unwrap();
    assert!(read(&mut reader, &store).is_empty());
    append_all(&store, 0..4);
    assert_eq!(read(&mut reader, &store), ["3"]);
}
