//! The contents of the store as a state machine: takes requests, and returns what to send to which
//! client. Pure.
//!
//! ```text
//!            WAIT, keys missing                     last key appears: STOP_WAITING
//!   idle ───────────────────────► waiting ───────────────────────────────────────► idle
//!                                    └── CANCEL_WAIT: WAIT_CANCELED, disconnect ──►
//! ```
//!
//! Three differences from torch 2.11: a `COMPARE_SET` that stores nothing wakes no client; when a
//! client woken by a push disconnects without popping, the next waiting client is woken; and a
//! second `WAIT` before the first is over closes the connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::error::StoreRefusal;
use crate::limits::{ENTRY, MAX_APPENDED, MAX_HELD};
use crate::reply::StoreReply;
use crate::retired::Retired;
use crate::value::StoreValue;
use crate::waits::{StoreClientId, StoreWaits};
use crate::wire::StoreRequest;

const NOT_A_NUMBER: &str = "the value to add to is not a 64-bit number";

const SECOND_WAIT: &str = "a second wait before the first has ended";

/// An action for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableAction {
    /// Send this reply, after those before it.
    Send(StoreClientId, StoreReply),
    /// Close the connection and answer none of its requests any more.
    Close(StoreClientId, StoreRefusal),
}

/// The contents of a store: values, queues and waits.
#[derive(Debug)]
pub struct StoreTable {
    values: HashMap<Arc<[u8]>, StoreValue>,
    /// The queues; none of them is empty.
    queues: HashMap<Box<[u8]>, VecDeque<StoreValue>>,
    waits: StoreWaits,
    barriers: StoreWaits,
    /// Clients that a push has woken and that have sent nothing since, with the key of the queue.
    woken: HashMap<StoreClientId, Box<[u8]>>,
    /// Bytes of all keys and values plus `ENTRY` each, and of the connection buffers.
    held: usize,
    /// Values that have left the table but are shared by queued replies.
    retired: Retired,
    most: usize,
}

impl Default for StoreTable {
    fn default() -> StoreTable {
        StoreTable::with_limit(MAX_HELD)
    }
}

impl StoreTable {
    /// Returns an empty store that holds at most `most` bytes.
    pub fn with_limit(most: usize) -> StoreTable {
        StoreTable {
            values: HashMap::new(),
            queues: HashMap::new(),
            waits: StoreWaits::default(),
            barriers: StoreWaits::default(),
            woken: HashMap::new(),
            held: 0,
            retired: Retired::default(),
            most,
        }
    }

    /// Answers one request of one client.
    pub fn on(&mut self, client: StoreClientId, request: &StoreRequest<'_>) -> Vec<TableAction> {
        let mut actions = Vec::new();
        let pops = if let StoreRequest::QueuePop { key } = request {
            Some(*key)
        } else {
            None
        };
        self.pass_on(client, pops, &mut actions);
        match self.answer(client, request, &mut actions) {
            Ok(Some(reply)) => actions.push(TableAction::Send(client, reply)),
            Ok(None) => {}
            Err(refusal) => actions.push(TableAction::Close(client, refusal)),
        }
        actions
    }

    /// Begins a client's wait for these keys; a further part or a `WAIT` names the rest.
    pub fn begin_wait(
        &mut self,
        client: StoreClientId,
        keys: &[&[u8]],
    ) -> Result<(), StoreRefusal> {
        self.is_free_to_wait(client)?;
        let missing: Vec<&[u8]> = keys.iter().copied().filter(|key| !self.has(key)).collect();
        // This only checks that there is room; the reservation is undone at once.
        self.exchange(0, StoreWaits::cost(missing.iter().copied()))?;
        self.held -= StoreWaits::cost(missing.iter().copied());
        self.waits.begin_part(client, missing);
        Ok(())
    }

    /// Returns the memory of keys and values, in bytes.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes the first value of a queue, if there is one.
    pub fn take_first(&mut self, key: &[u8]) -> Option<StoreValue> {
        self.pop(key).map(|(_, value)| value)
    }

    /// Returns whether all of these keys exist.
    pub fn has_all(&self, keys: &[&[u8]]) -> bool {
        keys.iter().all(|key| self.has(key))
    }

    /// Updates the bytes that connections buffer from `before` to `now`.
    pub fn buffer(&mut self, before: usize, now: usize) -> Result<(), StoreRefusal> {
        self.exchange(before, now)
    }

    /// Handles the end of a client's connection, whatever the reason.
    pub fn leave(&mut self, client: StoreClientId) -> Vec<TableAction> {
        let mut actions = Vec::new();
        self.waits.cancel(client);
        self.barriers.cancel(client);
        self.pass_on(client, None, &mut actions);
        actions
    }

    fn answer(
        &mut self,
        client: StoreClientId,
        request: &StoreRequest<'_>,
        actions: &mut Vec<TableAction>,
    ) -> Result<Option<StoreReply>, StoreRefusal> {
        let reply = match *request {
            StoreRequest::Validate => return Ok(None),
            StoreRequest::Set { key, value } => {
                return self.set(key, value, actions).map(|()| None);
            }
            StoreRequest::CompareSet {
                key,
                expected,
                desired,
            } => StoreReply::Value(self.compare_set(key, expected, desired, actions)?),
            StoreRequest::Get { key } => StoreReply::Value(self.get(key)),
            StoreRequest::Add { key, delta } => StoreReply::Number(self.add(key, delta, actions)?),
            StoreRequest::Check { ref keys } => StoreReply::Exist(self.has_all(keys)),
            StoreRequest::Wait { ref keys } => return self.wait(client, keys),
            StoreRequest::NumKeys => StoreReply::Number(number(self.values.len())),
            StoreRequest::Delete { key } => StoreReply::Number(i64::from(self.delete(key))),
            StoreRequest::Append { key, value } => {
                return self.append(key, value, actions).map(|()| None);
            }
            StoreRequest::MultiGet { ref keys } => {
                StoreReply::Values(keys.iter().map(|key| self.get(key)).collect())
            }
            StoreRequest::MultiSet { ref pairs } => {
                pairs
                    .iter()
                    .try_for_each(|(key, value)| self.set(key, value, actions))?;
                return Ok(None);
            }
            StoreRequest::CancelWait => {
                self.waits.cancel(client);
                self.barriers.cancel(client);
                StoreReply::WaitCanceled
            }
            StoreRequest::Ping { nonce } => StoreReply::Nonce(nonce),
            StoreRequest::QueuePush { key, value } => {
                return self.push(key, value, actions).map(|()| None);
            }
            StoreRequest::QueuePop { key } => StoreReply::Popped(self.pop(key)),
            StoreRequest::QueueLen { key } => {
                StoreReply::Number(number(self.queues.get(key).map_or(0, VecDeque::len)))
            }
            StoreRequest::ListKeys => StoreReply::Keys(self.values.keys().cloned().collect()),
            StoreRequest::Barrier { key, world } => {
                return self.barrier(client, key, world, actions);
            }
        };
        Ok(Some(reply))
    }

    fn has(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    fn get(&self, key: &[u8]) -> StoreValue {
        self.values.get(key).cloned().unwrap_or_default()
    }

    fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        actions: &mut Vec<TableAction>,
    ) -> Result<(), StoreRefusal> {
        let old = self
            .values
            .get(key)
            .map_or(0, |old| ENTRY + key.len() + old.len());
        self.exchange(old, ENTRY + key.len() + value.len())?;
        let value = Arc::new(value.to_vec());
        match self.values.get_mut(key) {
            Some(place) => self.retired.add(std::mem::replace(place, value)),
            None => drop(self.values.insert(Arc::from(key), value)),
        }
        self.wake(key, actions);
        Ok(())
    }

    /// Compares and sets, and returns the value afterwards. If the key is absent and a value was
    /// expected, returns the expected value, as torch does.
    fn compare_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        desired: &[u8],
        actions: &mut Vec<TableAction>,
    ) -> Result<StoreValue, StoreRefusal> {
        match self.values.get(key) {
            None if !expected.is_empty() => return Ok(Arc::new(expected.to_vec())),
            Some(value) if value.as_slice() != expected => return Ok(Arc::clone(value)),
            _ => self.set(key, desired, actions)?,
        }
        Ok(self.get(key))
    }

    fn add(
        &mut self,
        key: &[u8],
        delta: i64,
        actions: &mut Vec<TableAction>,
    ) -> Result<i64, StoreRefusal> {
        let sum = self
            .values
            .get(key)
            .map_or(Some(0), |value| leading_number(value))
            .ok_or_else(|| StoreRefusal::new(NOT_A_NUMBER))?;
        let sum = sum.wrapping_add(delta);
        self.set(key, sum.to_string().as_bytes(), actions)?;
        Ok(sum)
    }

    fn append(
        &mut self,
        key: &[u8],
        value: &[u8],
        actions: &mut Vec<TableAction>,
    ) -> Result<(), StoreRefusal> {
        let Some(old) = self.values.get(key) else {
            return self.set(key, value, actions);
        };
        let length = old.len() + value.len();
        if length > MAX_APPENDED {
            return Err(StoreRefusal::new(format!(
                "a value of {length} bytes, expected at most {MAX_APPENDED} appended together"
            )));
        }
        self.exchange(0, value.len())?;
        if let Some(old) = self.values.get_mut(key) {
            if Arc::strong_count(old) > 1 {
                self.retired.add(Arc::clone(old));
            }
            Arc::make_mut(old).extend_from_slice(value);
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let Some(old) = self.values.remove(key) else {
            return false;
        };
        self.held -= ENTRY + key.len() + old.len();
        self.retired.add(old);
        true
    }

    fn push(
        &mut self,
        key: &[u8],
        value: &[u8],
        actions: &mut Vec<TableAction>,
    ) -> Result<(), StoreRefusal> {
        self.exchange(0, ENTRY + key.len() + value.len())?;
        let value = Arc::new(value.to_vec());
        match self.queues.get_mut(key) {
            Some(queue) => queue.push_back(value),
            None => drop(self.queues.insert(Box::from(key), VecDeque::from([value]))),
        }
        self.wake_one(key, actions);
        Ok(())
    }

    fn pop(&mut self, key: &[u8]) -> Option<(i64, StoreValue)> {
        let queue = self.queues.get_mut(key)?;
        let length = number(queue.len());
        let value = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(key);
        }
        self.held -= ENTRY + key.len() + value.len();
        self.retired.add_sent(&value);
        Some((length, value))
    }

    fn wait(
        &mut self,
        client: StoreClientId,
        keys: &[&[u8]],
    ) -> Result<Option<StoreReply>, StoreRefusal> {
        self.begin_wait(client, keys)?;
        Ok(self
            .waits
            .end_parts(client)
            .then_some(StoreReply::StopWaiting))
    }

    fn barrier(
        &mut self,
        client: StoreClientId,
        key: &[u8],
        world: i64,
        actions: &mut Vec<TableAction>,
    ) -> Result<Option<StoreReply>, StoreRefusal> {
        self.is_free_to_wait(client)?;
        if self.add(key, 1, actions)? < world {
            self.exchange(0, StoreWaits::cost([key]))?;
            self.held -= StoreWaits::cost([key]);
            self.barriers.begin_part(client, [key]);
            self.barriers.end_parts(client);
            return Ok(None);
        }
        actions.extend(self.barriers.appeared(key).into_iter().map(stop_waiting));
        Ok(Some(StoreReply::StopWaiting))
    }

    /// Accounts for `new` bytes that will replace `old` ones.
    fn exchange(&mut self, old: usize, new: usize) -> Result<(), StoreRefusal> {
        if new > old && !self.has_room(new - old) {
            self.retired.sweep();
            if !self.has_room(new - old) {
                let (held, most) = (self.held, self.most);
                return Err(StoreRefusal::new(format!(
                    "the store holds {held} of at most {most} bytes, and has no room for more"
                )));
            }
        }
        self.held = self.held - old + new;
        Ok(())
    }

    fn has_room(&self, more: usize) -> bool {
        let held = self.held + self.waits.held() + self.barriers.held() + self.retired.held();
        more <= self.most.saturating_sub(held)
    }

    fn is_free_to_wait(&self, client: StoreClientId) -> Result<(), StoreRefusal> {
        if self.waits.has_whole(client) || self.barriers.has_whole(client) {
            Err(StoreRefusal::new(SECOND_WAIT))
        } else {
            Ok(())
        }
    }

    fn wake(&mut self, key: &[u8], actions: &mut Vec<TableAction>) {
        actions.extend(self.waits.appeared(key).into_iter().map(stop_waiting));
    }

    fn wake_one(&mut self, key: &[u8], actions: &mut Vec<TableAction>) {
        let Some(client) = self.waits.appeared_for_one(key) else {
            return;
        };
        self.woken.insert(client, Box::from(key));
        actions.push(stop_waiting(client));
    }

    /// Wakes the next waiting client if this one was woken by a push and sends any request but the
    /// pop.
    fn pass_on(
        &mut self,
        client: StoreClientId,
        pops: Option<&[u8]>,
        actions: &mut Vec<TableAction>,
    ) {
        if self.woken.is_empty() {
            return; // nearly always: no need to hash
        }
        let Some(key) = self.woken.remove(&client) else {
            return;
        };
        if pops != Some(&*key) && self.queues.contains_key(&key) {
            self.wake_one(&key, actions);
        }
    }
}

fn stop_waiting(client: StoreClientId) -> TableAction {
    TableAction::Send(client, StoreReply::StopWaiting)
}

/// Returns a length in the type of the wire format.
fn number(length: usize) -> i64 {
    i64::try_from(length).expect("memory has fewer than 2^63 entries")
}

/// Parses the number at the start of a text as C's `strtoll` does: leading blanks and a sign are
/// allowed, and anything may follow.
fn leading_number(text: &[u8]) -> Option<i64> {
    let text = &text[text
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b)
        .count()..];
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text[sign..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    std::str::from_utf8(&text[..sign + digits])
        .ok()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
