//! Compares the table with a naive model without indexes, on arbitrary requests of three clients.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The model. It has no barriers, whose waits are [`crate::waits::Waits`] like the others.
#[derive(Debug, Default)]
struct TableModel {
    values: Vec<(Vec<u8>, Vec<u8>)>,
    items: Vec<(Vec<u8>, Vec<u8>)>,
    /// The waits in the order in which they began, with the keys that have not appeared.
    waits: Vec<(StoreClientId, Vec<Vec<u8>>)>,
    /// Clients that a push has woken and that have sent nothing since.
    woken: Vec<(StoreClientId, Vec<u8>)>,
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

    fn put(&mut self, key: &[u8], value: Vec<u8>) -> Vec<TableAction> {
        self.values.retain(|(k, _)| k != key);
        self.values.push((key.to_vec(), value));
        self.waits
            .iter_mut()
            .for_each(|(_, keys)| keys.retain(|k| k != key));
        self.waits
            .extract_if(.., |(_, keys)| keys.is_empty())
            .map(|(client, _)| stop(client))
            .collect()
    }

    fn wake_one(&mut self, key: &[u8]) -> Vec<TableAction> {
        for i in 0..self.waits.len() {
            let (client, keys) = &mut self.waits[i];
            let before = keys.len();
            keys.retain(|k| k != key);
            if keys.is_empty() && before > 0 {
                let client = *client;
                self.woken.push((client, key.to_vec()));
                self.waits.remove(i);
                return vec![stop(client)];
            }
        }
        vec![]
    }

    fn pass_on(&mut self, client: StoreClientId, pops: Option<&[u8]>) -> Vec<TableAction> {
        let Some(i) = self.woken.iter().position(|(c, _)| *c == client) else {
            return vec![];
        };
        let (_, key) = self.woken.remove(i);
        if pops == Some(&key) || self.count(&key) == 0 {
            vec![]
        } else {
            self.wake_one(&key)
        }
    }

    fn leave(&mut self, client: StoreClientId) -> Vec<TableAction> {
        self.waits.retain(|(c, _)| *c != client);
        self.pass_on(client, None)
    }

    fn on(&mut self, client: StoreClientId, request: &StoreRequest) -> Vec<TableAction> {
        let pops = if let StoreRequest::QueuePop { key } = request {
            Some(*key)
        } else {
            None
        };
        let passed = self.pass_on(client, pops);
        [passed, self.answer(client, request)].concat()
    }

    fn answer(&mut self, client: StoreClientId, request: &StoreRequest) -> Vec<TableAction> {
        let send = |reply| vec![TableAction::Send(client, reply)];
        let shared = |value: Option<Vec<u8>>| Arc::new(value.unwrap_or_default());
        match *request {
            StoreRequest::Set { key, value } => self.put(key, value.to_vec()),
            StoreRequest::Append { key, value } => {
                self.put(key, [&self.get(key).unwrap_or_default(), value].concat())
            }
            StoreRequest::MultiSet { ref pairs } => pairs
                .iter()
                .flat_map(|(key, value)| self.put(key, value.to_vec()))
                .collect(),
            StoreRequest::CompareSet {
                key,
                expected,
                desired,
            } => match self.get(key) {
                None if !expected.is_empty() => {
                    send(StoreReply::Value(shared(Some(expected.to_vec()))))
                }
                Some(old) if old != expected => send(StoreReply::Value(shared(Some(old)))),
                _ => [
                    self.put(key, desired.to_vec()),
                    send(StoreReply::Value(shared(Some(desired.to_vec())))),
                ]
                .concat(),
            },
            StoreRequest::Add { key, delta } => {
                match leading(&self.get(key).unwrap_or(b"0".to_vec())) {
                    Some(old) => {
                        let sum = old + delta;
                        [
                            self.put(key, sum.to_string().into_bytes()),
                            send(StoreReply::Number(sum)),
                        ]
                        .concat()
                    }
                    None => vec![TableAction::Close(client, StoreRefusal::new(NOT_A_NUMBER))],
                }
            }
            StoreRequest::Get { key } => send(StoreReply::Value(shared(self.get(key)))),
            StoreRequest::MultiGet { ref keys } => send(StoreReply::Values(
                keys.iter().map(|key| shared(self.get(key))).collect(),
            )),
            StoreRequest::Check { ref keys } => {
                send(StoreReply::Exist(keys.iter().all(|key| self.has(key))))
            }
            StoreRequest::NumKeys => send(StoreReply::Number(self.values.len() as i64)),
            StoreRequest::Delete { key } => {
                let before = self.values.len();
                self.values.retain(|(k, _)| k != key);
                send(StoreReply::Number((before - self.values.len()) as i64))
            }
            StoreRequest::QueuePush { key, value } => {
                self.items.push((key.to_vec(), value.to_vec()));
                self.wake_one(key)
            }
            StoreRequest::QueuePop { key } => {
                let length = self.count(key) as i64;
                let at = self.items.iter().position(|(k, _)| k == key);
                send(StoreReply::Popped(
                    at.map(|at| (length, Arc::new(self.items.remove(at).1))),
                ))
            }
            StoreRequest::QueueLen { key } => send(StoreReply::Number(self.count(key) as i64)),
            StoreRequest::Wait { .. } if self.waits.iter().any(|(c, _)| *c == client) => {
                vec![TableAction::Close(client, StoreRefusal::new(SECOND_WAIT))]
            }
            StoreRequest::Wait { ref keys } if keys.iter().all(|key| self.has(key)) => {
                vec![stop(client)]
            }
            StoreRequest::Wait { ref keys } => {
                let missing = keys
                    .iter()
                    .filter(|key| !self.has(key))
                    .map(|key| key.to_vec())
                    .collect();
                self.waits.push((client, missing));
                vec![]
            }
            StoreRequest::CancelWait => {
                self.waits.retain(|(c, _)| *c != client);
                send(StoreReply::WaitCanceled)
            }
            _ => vec![],
        }
    }
}

/// Returns the longest prefix that is a number; the texts here have no blanks and no `+`.
fn leading(text: &[u8]) -> Option<i64> {
    (1..=text.len())
        .rev()
        .find_map(|end| str::from_utf8(&text[..end]).ok()?.parse().ok())
}

const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

fn key() -> impl Strategy<Value = &'static [u8]> {
    (0..KEYS.len()).prop_map(|i| KEYS[i])
}

fn text() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![
        Just(&b""[..]),
        Just(&b"1"[..]),
        Just(&b"x"[..]),
        Just(&b"22"[..])
    ]
}

fn request() -> impl Strategy<Value = StoreRequest<'static>> {
    prop_oneof![
        1 => (key(), text()).prop_map(|(key, value)| StoreRequest::Set { key, value }),
        1 => (key(), text()).prop_map(|(key, value)| StoreRequest::Append { key, value }),
        1 => (key(), text(), text()).prop_map(|(key, expected, desired)| StoreRequest::CompareSet { key, expected, desired }),
        1 => (key(), -9..9_i64).prop_map(|(key, delta)| StoreRequest::Add { key, delta }),
        1 => vec((key(), text()), 0..3).prop_map(|pairs| StoreRequest::MultiSet { pairs }),
        1 => key().prop_map(|key| StoreRequest::Get { key }),
        1 => vec(key(), 0..4).prop_map(|keys| StoreRequest::MultiGet { keys }),
        1 => vec(key(), 0..4).prop_map(|keys| StoreRequest::Check { keys }),
        3 => key().prop_map(|key| StoreRequest::Delete { key }),
        1 => Just(StoreRequest::NumKeys),
        2 => (key(), text()).prop_map(|(key, value)| StoreRequest::QueuePush { key, value }),
        2 => key().prop_map(|key| StoreRequest::QueuePop { key }),
        1 => key().prop_map(|key| StoreRequest::QueueLen { key }),
        4 => vec(key(), 0..4).prop_map(|keys| StoreRequest::Wait { keys }),
        1 => Just(StoreRequest::CancelWait),
    ]
}

proptest! {
    #[test]
    fn the_table_does_what_the_model_does(
        steps in vec((0..3_u64, proptest::option::weighted(0.95, request())), 0..80),
    ) {
        let (mut table, mut model) = (StoreTable::default(), TableModel::default());
        for (client, request) in steps {
            let client = StoreClientId(client);
            let (got, wanted) = match &request {
                Some(request) => (table.on(client, request), model.on(client, request)),
                None => (table.leave(client), model.leave(client)),
            };
            prop_assert_eq!(&got, &wanted, "{:?}", request);
            if matches!(got.last(), Some(TableAction::Close(..))) {
                prop_assert_eq!(table.leave(client), model.leave(client));
            }
        }
        let texts = table.values.iter().map(|(key, value)| ENTRY + key.len() + value.len());
        let items = table.queues.iter().flat_map(|(key, queue)| queue.iter().map(|v| ENTRY + key.len() + v.len()));
        prop_assert_eq!(table.held, texts.chain(items).sum::<usize>());
        for client in 0..3 {
            table.leave(StoreClientId(client));
        }
        prop_assert!(table.waits.is_empty() && table.woken.is_empty());
    }
}
