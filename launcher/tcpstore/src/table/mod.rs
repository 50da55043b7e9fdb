//! The contents of the store: values, queues and waits. It answers requests. Pure.
//!
//! Two differences from torch 2.11: a `COMPARE_SET` that stores nothing wakes no client, and a key
//! that has appeared counts for a wait for good, even if it is deleted before the others appear.
//!
//! A wait that is dropped is over for its client. Its entries stay in the lists of its keys until a
//! list would grow, or lists of such entries alone may outnumber the others; then they are swept. A
//! client that disconnects therefore costs no search through the keys that it has waited for.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::error::StoreRefusal;
use crate::limits::{
    Budget, Charge, Charged, ENTRY, MAX_APPENDED, MAX_HELD, StoreValue, WAIT_ENTRY,
};
use crate::reply::StoreReply;
use crate::wire::StoreRequest;

/// Least number of lists that are worth a sweep.
const SWEEP: usize = 1024;

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
        self.make_room(missing.iter().map(|key| cost(key)).sum());
        self.waits.begin(&missing, &self.budget).map(Answer::Wait)
    }

    fn barrier(&mut self, key: &[u8], world: i64) -> Result<Answer, StoreRefusal> {
        if self.add(key, 1)? < world {
            self.make_room(cost(key));
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

/// A client's wait for keys; dropping it cancels it.
#[derive(Debug)]
pub struct Wait(Arc<Missing>);

/// The keys of a wait that have not appeared.
#[derive(Debug)]
struct Missing {
    count: AtomicUsize,
    appeared: Notify,
}

/// The waits for one key, in the order in which they began, and their memory.
type Waiters = (VecDeque<Weak<Missing>>, Charge);

/// All waits that are not over.
#[derive(Debug, Default)]
struct Waits {
    /// No list is empty.
    waiters: HashMap<Box<[u8]>, Waiters>,
    /// Number of lists after the last sweep.
    left: usize,
}

impl Wait {
    /// Returns when all keys have appeared.
    pub async fn over(&self) {
        self.0.appeared.notified().await;
    }

    /// Returns whether all keys have appeared.
    #[cfg(test)]
    pub fn is_over(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) == 0
    }
}

impl Waits {
    /// Begins a wait for these keys, of which none exists.
    fn begin(&mut self, keys: &[&[u8]], budget: &Budget) -> Result<Wait, StoreRefusal> {
        if self.waiters.len() > SWEEP + 2 * self.left {
            self.sweep();
        }
        let wait = Wait(Arc::new(Missing {
            count: AtomicUsize::new(keys.len()),
            appeared: Notify::new(),
        }));
        for &key in keys {
            let (waiters, charge) = match self.waiters.get_mut(key) {
                Some(waiters) => waiters,
                None => {
                    let charge = budget.take(cost(key) - WAIT_ENTRY)?;
                    let waiters = self.waiters.entry(Box::from(key));
                    waiters.or_insert((VecDeque::new(), charge))
                }
            };
            if waiters.len() == waiters.capacity() {
                waiters.retain(is_awaited);
            }
            charge.resize(cost(key) + waiters.len() * WAIT_ENTRY)?;
            waiters.push_back(Arc::downgrade(&wait.0));
        }
        Ok(wait)
    }

    /// Handles a key that exists from now on.
    fn appeared(&mut self, key: &[u8]) {
        if self.waiters.is_empty() {
            return; // nearly always: no need to hash
        }
        if let Some((waiters, _)) = self.waiters.remove(key) {
            waiters.iter().for_each(|waiter| {
                is_last(waiter);
            });
        }
    }

    /// Handles a value that only one client can take: ends the first wait that ends by it. The key
    /// also counts as seen for those before it that wait for more keys.
    fn appeared_for_one(&mut self, key: &[u8]) {
        let Some((waiters, _)) = self.waiters.get_mut(key) else {
            return;
        };
        while let Some(waiter) = waiters.pop_front()
            && !is_last(&waiter)
        {}
        if waiters.is_empty() {
            self.waiters.remove(key);
        }
    }

    /// Forgets the waits that were given up.
    fn sweep(&mut self) {
        self.waiters.retain(|key, (waiters, charge)| {
            waiters.retain(is_awaited);
            // Giving memory back is never refused.
            let _ = charge.resize(cost(key) - WAIT_ENTRY + waiters.len() * WAIT_ENTRY);
            !waiters.is_empty()
        });
        self.left = self.waiters.len();
    }

    /// Returns whether no client waits.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
}

/// Returns the memory of a wait for one key.
fn cost(key: &[u8]) -> usize {
    2 * ENTRY + key.len() + WAIT_ENTRY
}

fn is_awaited(waiter: &Weak<Missing>) -> bool {
    waiter.strong_count() > 0
}

/// Counts a key as seen. Returns whether the wait is over by that.
fn is_last(waiter: &Weak<Missing>) -> bool {
    let Some(missing) = waiter.upgrade() else {
        return false;
    };
    let is_last = missing.count.fetch_sub(1, Ordering::Relaxed) == 1;
    if is_last {
        missing.appeared.notify_one();
    }
    is_last
}

#[cfg(test)]
mod tests;
