//! Compares the table with a naive model without indexes, on arbitrary requests of three clients.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::wire::tests::Any;

/// The model. It has no barriers, whose waits are like the others.
#[derive(Debug, Default)]
struct TableModel {
    values: Vec<(Vec<u8>, Vec<u8>)>,
    items: Vec<(Vec<u8>, Vec<u8>)>,
    /// The waits in the order in which they began, with the keys that have not appeared.
    waits: Vec<(usize, Vec<Vec<u8>>)>,
    /// The clients whose wait has ended by the last request.
    over: BTreeSet<usize>,
}

impl TableModel {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.values
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, value)| value.clone())
    }

    fn has(&self, key: &[u8]) -> bool {
        self.values.iter().chain(&self.items).any(|(k, _)| k == key)
    }

    fn count(&self, key: &[u8]) -> usize {
        self.items.iter().filter(|(k, _)| k == key).count()
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>) {
        self.values.retain(|(k, _)| k != key);
        self.values.push((key.to_vec(), value));
        let waits = self.waits.iter_mut();
        waits.for_each(|(_, keys)| keys.retain(|k| k != key));
        let over = self.waits.extract_if(.., |(_, keys)| keys.is_empty());
        self.over.extend(over.map(|(client, _)| client));
    }

    fn wake_one(&mut self, key: &[u8]) {
        for i in 0..self.waits.len() {
            let (client, keys) = &mut self.waits[i];
            let before = keys.len();
            keys.retain(|k| k != key);
            if keys.is_empty() && before > 0 {
                self.over.insert(*client);
                self.waits.remove(i);
                return;
            }
        }
    }

    /// Returns the reply, none for a request that has none or begins a wait.
    fn on(
        &mut self,
        client: usize,
        request: &StoreRequest,
    ) -> Result<Option<StoreReply>, StoreRefusal> {
        let shared = |value: Option<Vec<u8>>| Arc::new(Charged::from(value.unwrap_or_default()));
        let reply = match *request {
            StoreRequest::Set { key, value } => {
                self.put(key, value.to_vec());
                return Ok(None);
            }
            StoreRequest::Append { key, value } => {
                self.put(key, [&self.get(key).unwrap_or_default(), value].concat());
                return Ok(None);
            }
            StoreRequest::MultiSet { ref pairs } => {
                let pairs = pairs.iter();
                pairs.for_each(|(key, value)| self.put(key, value.to_vec()));
                return Ok(None);
            }
            StoreRequest::CompareSet {
                key,
                expected,
                desired,
            } => StoreReply::Value(shared(Some(match self.get(key) {
                None if !expected.is_empty() => expected.to_vec(),
                Some(old) if old != expected => old,
                _ => {
                    self.put(key, desired.to_vec());
                    desired.to_vec()
                }
            }))),
            StoreRequest::Add { key, delta } => {
                let old = leading(&self.get(key).unwrap_or(b"0".to_vec()));
                let sum = old.ok_or_else(|| StoreRefusal::new(NOT_A_NUMBER))? + delta;
                self.put(key, sum.to_string().into_bytes());
                StoreReply::Number(sum)
            }
            StoreRequest::Get { key } => StoreReply::Value(shared(self.get(key))),
            StoreRequest::MultiGet { ref keys } => {
                StoreReply::Values(keys.iter().map(|key| shared(self.get(key))).collect())
            }
            StoreRequest::Check { ref keys } => {
                StoreReply::Exist(keys.iter().all(|key| self.has(key)))
            }
            StoreRequest::NumKeys => StoreReply::Number(self.values.len() as i64),
            StoreRequest::Delete { key } => {
                let before = self.values.len();
                self.values.retain(|(k, _)| k != key);
                StoreReply::Number((before - self.values.len()) as i64)
            }
            StoreRequest::QueuePush { key, value } => {
                self.items.push((key.to_vec(), value.to_vec()));
                self.wake_one(key);
                return Ok(None);
            }
            StoreRequest::QueuePop { key } => {
                let length = self.count(key) as i64;
                let at = self.items.iter().position(|(k, _)| k == key);
                let taken = at.map(|at| shared(Some(self.items.remove(at).1)));
                StoreReply::Popped(taken.map(|value| (length, value)))
            }
            StoreRequest::QueueLen { key } => StoreReply::Number(self.count(key) as i64),
            StoreRequest::Wait { ref keys } if keys.iter().all(|key| self.has(key)) => {
                StoreReply::StopWaiting
            }
            StoreRequest::Wait { ref keys } => {
                let missing = keys.iter().filter(|key| !self.has(key));
                let missing = missing.map(|key| key.to_vec()).collect();
                self.waits.push((client, missing));
                return Ok(None);
            }
            StoreRequest::CancelWait => StoreReply::WaitCanceled,
            _ => return Ok(None),
        };
        Ok(Some(reply))
    }
}

/// Returns the longest prefix that is a number; the texts here have no blanks and no `+`.
fn leading(text: &[u8]) -> Option<i64> {
    (1..=text.len())
        .rev()
        .find_map(|end| str::from_utf8(&text[..end]).ok()?.parse().ok())
}

/// Requests of all operations that the model knows, the most often those that take keys away and
/// those that wait for them. Keys and values are of the same few texts.
fn request() -> impl Strategy<Value = Any> {
    let ops =
        b"\x01\x02\x03\x04\x05\x06\x06\x06\x06\x07\x08\x08\x08\x09\x0a\x0b\x0c\x0e\x0e\x0f\x0f\x10";
    let texts = vec(select(&["a", "b", "c", "", "1", "22"][..]), 0..4);
    (select(&ops[..]), texts, -9..9_i64).prop_map(|(op, texts, number)| {
        let texts = texts.into_iter().map(|text| text.as_bytes().to_vec());
        let texts = texts.collect();
        Any { op, texts, number }
    })
}

/// One client after another makes a request; one that waits gives that up first, or leaves.
fn compare(steps: Vec<(usize, Option<Any>)>) {
    let (mut table, mut model) = (StoreTable::default(), TableModel::default());
    let mut waits: [Option<Wait>; 3] = [const { None }; 3];
    for (client, any) in &steps {
        let (client, request) = (*client, any.as_ref().map(Any::request));
        if request.is_none() || request == Some(StoreRequest::CancelWait) {
            waits[client] = None;
            model.waits.retain(|(of, _)| *of != client);
        }
        let Some(request) = request.filter(|_| waits[client].is_none()) else {
            continue;
        };
        let wanted = model.on(client, &request);
        let got = match table.answer(&request) {
            Ok(Answer::None) => Ok(None),
            Ok(Answer::Reply(reply)) => Ok(Some(reply)),
            Ok(Answer::Wait(wait)) => {
                waits[client] = Some(wait);
                Ok(None)
            }
            Err(err) => Err(err),
        };
        assert_eq!(got, wanted, "{request:?}");
        let is_over = |of: &usize| waits[*of].as_ref().is_some_and(Wait::is_over);
        let over: BTreeSet<usize> = (0..3).filter(is_over).collect();
        assert_eq!(over, std::mem::take(&mut model.over), "{request:?}");
        over.into_iter().for_each(|of| waits[of] = None);
    }
    drop(waits);
    table.waits.sweep();
    assert!(table.waits.is_empty());
    let size = |key: &[u8], value: &StoreValue| ENTRY + key.len() + value.len();
    let texts = table.values.iter().map(|(key, value)| size(key, value));
    let queues = table.queues.iter();
    let items = queues.flat_map(|(key, queue)| queue.iter().map(|value| size(key, value)));
    assert_eq!(table.budget.held(), texts.chain(items).sum::<usize>());
}

proptest! {
    #[test]
    fn the_table_does_what_the_model_does(
        steps in vec((0..3_usize, proptest::option::weighted(0.95, request())), 0..80),
    ) {
        compare(steps);
    }
}
