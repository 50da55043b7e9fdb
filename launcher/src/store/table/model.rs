//! Compares the table with a naive model without indexes, on arbitrary requests of three clients.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The model. It has no barriers, whose waits are [`crate::store::waits::Waits`] like the others.
#[derive(Debug, Default)]
struct Model {
    values: Vec<(Vec<u8>, Vec<u8>)>,
    items: Vec<(Vec<u8>, Vec<u8>)>,
    /// The waits in the order in which they began, with the keys that have not appeared.
    waits: Vec<(ClientId, Vec<Vec<u8>>)>,
    /// Clients that a push has woken and that have sent nothing since.
    woken: Vec<(ClientId, Vec<u8>)>,
}

impl Model {
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

    fn put(&mut self, key: &[u8], value: Vec<u8>) -> Vec<Action> {
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

    fn wake_one(&mut self, key: &[u8]) -> Vec<Action> {
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

    fn pass_on(&mut self, client: ClientId, pops: Option<&[u8]>) -> Vec<Action> {
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

    fn leave(&mut self, client: ClientId) -> Vec<Action> {
        self.waits.retain(|(c, _)| *c != client);
        self.pass_on(client, None)
    }

    fn on(&mut self, client: ClientId, request: &Request) -> Vec<Action> {
        let pops = if let Request::QueuePop { key } = request {
            Some(*key)
        } else {
            None
        };
        let passed = self.pass_on(client, pops);
        [passed, self.answer(client, request)].concat()
    }

    fn answer(&mut self, client: ClientId, request: &Request) -> Vec<Action> {
        let send = |reply| vec![Action::Send(client, reply)];
        let shared = |value: Option<Vec<u8>>| Arc::new(value.unwrap_or_default());
        match *request {
            Request::Set { key, value } => self.put(key, value.to_vec()),
            Request::Append { key, value } => {
                self.put(key, [&self.get(key).unwrap_or_default(), value].concat())
            }
            Request::MultiSet { ref pairs } => pairs
                .iter()
                .flat_map(|(key, value)| self.put(key, value.to_vec()))
                .collect(),
            Request::CompareSet {
                key,
                expected,
                desired,
            } => match self.get(key) {
                None if !expected.is_empty() => send(Reply::Value(shared(Some(expected.to_vec())))),
                Some(old) if old != expected => send(Reply::Value(shared(Some(old)))),
                _ => [
                    self.put(key, desired.to_vec()),
                    send(Reply::Value(shared(Some(desired.to_vec())))),
                ]
                .concat(),
            },
            Request::Add { key, delta } => match leading(&self.get(key).unwrap_or(b"0".to_vec())) {
                Some(old) => {
                    let sum = old + delta;
                    [
                        self.put(key, sum.to_string().into_bytes()),
                        send(Reply::Number(sum)),
                    ]
                    .concat()
                }
                None => vec![Action::Close(client, Refusal::NotANumber)],
            },
            Request::Get { key } => send(Reply::Value(shared(self.get(key)))),
            Request::MultiGet { ref keys } => send(Reply::Values(
                keys.iter().map(|key| shared(self.get(key))).collect(),
            )),
            Request::Check { ref keys } => send(Reply::Exist(keys.iter().all(|key| self.has(key)))),
            Request::NumKeys => send(Reply::Number(self.values.len() as i64)),
            Request::Delete { key } => {
                let before = self.values.len();
                self.values.retain(|(k, _)| k != key);
                send(Reply::Number((before - self.values.len()) as i64))
            }
            Request::QueuePush { key, value } => {
                self.items.push((key.to_vec(), value.to_vec()));
                self.wake_one(key)
            }
            Request::QueuePop { key } => {
                let length = self.count(key) as i64;
                let at = self.items.iter().position(|(k, _)| k == key);
                send(Reply::Popped(
                    at.map(|at| (length, Arc::new(self.items.remove(at).1))),
                ))
            }
            Request::QueueLen { key } => send(Reply::Number(self.count(key) as i64)),
            Request::Wait { .. } if self.waits.iter().any(|(c, _)| *c == client) => {
                vec![Action::Close(client, Refusal::SecondWait)]
            }
            Request::Wait { ref keys } if keys.iter().all(|key| self.has(key)) => {
                vec![stop(client)]
            }
            Request::Wait { ref keys } => {
                let missing = keys
                    .iter()
                    .filter(|key| !self.has(key))
                    .map(|key| key.to_vec())
                    .collect();
                self.waits.push((client, missing));
                vec![]
            }
            Request::CancelWait => {
                self.waits.retain(|(c, _)| *c != client);
                send(Reply::WaitCanceled)
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

fn request() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![
        1 => (key(), text()).prop_map(|(key, value)| Request::Set { key, value }),
        1 => (key(), text()).prop_map(|(key, value)| Request::Append { key, value }),
        1 => (key(), text(), text()).prop_map(|(key, expected, desired)| Request::CompareSet { key, expected, desired }),
        1 => (key(), -9..9_i64).prop_map(|(key, delta)| Request::Add { key, delta }),
        1 => vec((key(), text()), 0..3).prop_map(|pairs| Request::MultiSet { pairs }),
        1 => key().prop_map(|key| Request::Get { key }),
        1 => vec(key(), 0..4).prop_map(|keys| Request::MultiGet { keys }),
        1 => vec(key(), 0..4).prop_map(|keys| Request::Check { keys }),
        3 => key().prop_map(|key| Request::Delete { key }),
        1 => Just(Request::NumKeys),
        2 => (key(), text()).prop_map(|(key, value)| Request::QueuePush { key, value }),
        2 => key().prop_map(|key| Request::QueuePop { key }),
        1 => key().prop_map(|key| Request::QueueLen { key }),
        4 => vec(key(), 0..4).prop_map(|keys| Request::Wait { keys }),
        1 => Just(Request::CancelWait),
    ]
}

proptest! {
    #[test]
    fn the_table_does_what_the_model_does(
        steps in vec((0..3_u64, proptest::option::weighted(0.95, request())), 0..80),
    ) {
        let (mut table, mut model) = (Table::default(), Model::default());
        for (client, request) in steps {
            let client = ClientId(client);
            let (got, wanted) = match &request {
                Some(request) => (table.on(client, request), model.on(client, request)),
                None => (table.leave(client), model.leave(client)),
            };
            prop_assert_eq!(&got, &wanted, "{:?}", request);
            if matches!(got.last(), Some(Action::Close(..))) {
                prop_assert_eq!(table.leave(client), model.leave(client));
            }
        }
        let texts = table.values.iter().map(|(key, value)| ENTRY + key.len() + value.len());
        let items = table.queues.iter().flat_map(|(key, queue)| queue.iter().map(|v| ENTRY + key.len() + v.len()));
        prop_assert_eq!(table.held, texts.chain(items).sum::<usize>());
        for client in 0..3 {
            table.leave(ClientId(client));
        }
        prop_assert!(table.waits.is_empty() && table.woken.is_empty());
    }
}
