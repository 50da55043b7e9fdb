//! The contents of the store: values, queues and waits. It answers requests. Pure.
//!
//! Two differences from torch 2.11: a `COMPARE_SET` that stores nothing wakes no client, and a key
//! that has appeared counts for a wait for good, even if it is deleted before the others appear.

mod waits;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::budget::{Budget, Charge, Charged, StoreValue};
use crate::error::StoreRefusal;
use crate::limits::{ENTRY, MAX_APPENDED, MAX_HELD};
use crate::reply::StoreReply;
use crate::wire::StoreRequest;

pub use crate::table::waits::Wait;
use crate::table::waits::Waits;

const NOT_A_NUMBER: &str = "the value to add to is not a 64-bit number";

/// What comes of a request.
#[derive(Debug)]
pub enum Answer {
    /// It has no reply.
    None,
    /// Its reply.
    Reply(StoreReply),
    /// [`StoreReply::StopWaiting`] when this is over.
    Wait(Wait),
}

/// The contents of a store.
#[derive(Debug)]
pub struct StoreTable {
    values: HashMap<Arc<[u8]>, StoreValue>,
    /// The queues; none of them is empty.
    queues: HashMap<Box<[u8]>, VecDeque<StoreValue>>,
    waits: Waits,
    barriers: Waits,
    budget: Budget,
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
            waits: Waits::default(),
            barriers: Waits::default(),
            budget: Budget::new(most),
        }
    }

    /// Returns the memory of the store.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Answers a request.
    pub fn answer(&mut self, request: &StoreRequest<'_>) -> Result<Answer, StoreRefusal> {
        let reply = match *request {
            StoreRequest::Validate => return Ok(Answer::None),
            StoreRequest::Set { key, value } => return self.set(key, value).map(|()| Answer::None),
            StoreRequest::CompareSet {
                key,
                expected,
                desired,
            } => StoreReply::Value(self.compare_set(key, expected, desired)?),
            StoreRequest::Get { key } => StoreReply::Value(self.get(key)),
            StoreRequest::Add { key, delta } => StoreReply::Number(self.add(key, delta)?),
            StoreRequest::Check { ref keys } => {
                StoreReply::Exist(keys.iter().all(|key| self.has(key)))
            }
            StoreRequest::Wait { ref keys } => return self.wait(keys),
            StoreRequest::NumKeys => StoreReply::Number(number(self.values.len())),
            StoreRequest::Delete { key } => {
                StoreReply::Number(i64::from(self.values.remove(key).is_some()))
            }
            StoreRequest::Append { key, value } => {
                return self.append(key, value).map(|()| Answer::None);
            }
            StoreRequest::MultiGet { ref keys } => {
                StoreReply::Values(keys.iter().map(|key| self.get(key)).collect())
            }
            StoreRequest::MultiSet { ref pairs } => {
                let mut pairs = pairs.iter();
                pairs.try_for_each(|(key, value)| self.set(key, value))?;
                return Ok(Answer::None);
            }
            StoreRequest::CancelWait => StoreReply::WaitCanceled,
            StoreRequest::Ping { nonce } => StoreReply::Nonce(nonce),
            StoreRequest::QueuePush { key, value } => {
                return self.push(key, value).map(|()| Answer::None);
            }
            StoreRequest::QueuePop { key } => StoreReply::Popped(self.pop(key)),
            StoreRequest::QueueLen { key } => {
                StoreReply::Number(number(self.queues.get(key).map_or(0, VecDeque::len)))
            }
            StoreRequest::ListKeys => StoreReply::Keys(self.values.keys().cloned().collect()),
            StoreRequest::Barrier { key, world } => return self.barrier(key, world),
        };
        Ok(Answer::Reply(reply))
    }

    fn has(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    fn get(&self, key: &[u8]) -> StoreValue {
        self.values.get(key).cloned().unwrap_or_default()
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreRefusal> {
        let size = ENTRY + key.len() + value.len();
        self.make_room(size);
        let Some(place) = self.values.get_mut(key) else {
            let value = charged(self.budget.take(size)?, value);
            self.values.insert(Arc::from(key), value);
            self.waits.appeared(key);
            return Ok(());
        };
        let Some(old) = Arc::get_mut(place) else {
            *place = charged(self.budget.take(size)?, value);
            return Ok(());
        };
        old.charge.resize(size)?;
        if value.len() > old.bytes.capacity() || 2 * value.len() < old.bytes.capacity() {
            old.bytes = value.to_vec();
        } else {
            old.bytes.clear();
            old.bytes.extend_from_slice(value);
        }
        Ok(())
    }

    /// Compares and sets, and returns the value afterwards. If the key is absent and a value was
    /// expected, returns the expected value, as torch does.
    fn compare_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        desired: &[u8],
    ) -> Result<StoreValue, StoreRefusal> {
        match self.values.get(key) {
            None if !expected.is_empty() => return Ok(charged(Charge::default(), expected)),
            Some(value) if value.bytes != expected => return Ok(Arc::clone(value)),
            _ => self.set(key, desired)?,
        }
        Ok(self.get(key))
    }

    fn add(&mut self, key: &[u8], delta: i64) -> Result<i64, StoreRefusal> {
        let sum = self
            .values
            .get(key)
            .map_or(Some(0), |value| leading_number(value))
            .ok_or_else(|| StoreRefusal::new(NOT_A_NUMBER))?
            .wrapping_add(delta);
        self.set(key, sum.to_string().as_bytes())?;
        Ok(sum)
    }

    fn append(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreRefusal> {
        self.make_room(value.len());
        let Some(place) = self.values.get_mut(key) else {
            return self.set(key, value);
        };
        let length = place.len() + value.len();
        if length > MAX_APPENDED {
            return Err(StoreRefusal::new(format!(
                "a value of {length} bytes, expected at most {MAX_APPENDED} appended together"
            )));
        }
        let size = ENTRY + key.len() + length;
        if let Some(old) = Arc::get_mut(place) {
            old.charge.resize(size)?;
            old.bytes.extend_from_slice(value);
        } else {
            *place = charged(self.budget.take(size)?, &[place, value].concat());
        }
        Ok(())
    }

    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreRefusal> {
        let size = ENTRY + key.len() + value.len();
        self.make_room(size);
        let value = charged(self.budget.take(size)?, value);
        match self.queues.get_mut(key) {
            Some(queue) => queue.push_back(value),
            None => drop(self.queues.insert(Box::from(key), VecDeque::from([value]))),
        }
        self.waits.appeared_for_one(key);
        Ok(())
    }

    /// Takes the first value of a queue, and returns the length before.
    pub fn pop(&mut self, key: &[u8]) -> Option<(i64, StoreValue)> {
        let queue = self.queues.get_mut(key)?;
        let length = number(queue.len());
        let value = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(key);
        }
        Some((length, value))
    }

    fn wait(&mut self, keys: &[&[u8]]) -> Result<Answer, StoreRefusal> {
        let missing: Vec<&[u8]> = keys.iter().copied().filter(|key| !self.has(key)).collect();
        if missing.is_empty() {
            return Ok(Answer::Reply(StoreReply::StopWaiting));
        }
        self.make_room(missing.iter().map(|key| waits::cost(key)).sum());
        self.waits.begin(&missing, &self.budget).map(Answer::Wait)
    }

    fn barrier(&mut self, key: &[u8], world: i64) -> Result<Answer, StoreRefusal> {
        if self.add(key, 1)? < world {
            self.make_room(waits::cost(key));
            return self.barriers.begin(&[key], &self.budget).map(Answer::Wait);
        }
        self.barriers.appeared(key);
        Ok(Answer::Reply(StoreReply::StopWaiting))
    }

    /// Forgets the waits that were given up if there is no room for so many bytes otherwise.
    fn make_room(&mut self, bytes: usize) {
        if !self.budget.has_room(bytes) {
            self.waits.sweep();
            self.barriers.sweep();
        }
    }
}

fn charged(charge: Charge, bytes: &[u8]) -> StoreValue {
    let bytes = bytes.to_vec();
    Arc::new(Charged { bytes, charge })
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
