//! A store in memory that counts what is asked of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use c10d::{DistError, Lookup};

use crate::eval::numbered_list::ListStore;

/// A store in memory that counts requests, and bytes of keys and values in both directions.
#[derive(Debug, Default)]
pub struct CountingStore {
    values: RefCell<BTreeMap<String, Vec<u8>>>,
    /// Requests so far.
    pub requests: Cell<u64>,
    /// Bytes so far.
    pub bytes: Cell<u64>,
}

impl CountingStore {
    fn count(&self, bytes: usize) {
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// Returns the bytes of all keys and values that it holds.
    pub fn held(&self) -> u64 {
        let size = |(key, value): (&String, &Vec<u8>)| (key.len() + value.len()) as u64;
        self.values.borrow().iter().map(size).sum()
    }

    /// Returns how many requests `act` needs.
    pub fn requests_of(&self, act: impl FnOnce(&Self)) -> u64 {
        let before = self.requests.get();
        act(self);
        self.requests.get() - before
    }
}

impl ListStore for CountingStore {
    fn add(&self, key: &str, delta: i64) -> Result<i64, DistError> {
        let mut values = self.values.borrow_mut();
        let value = values.entry(key.to_owned()).or_default();
        let sum = str::from_utf8(value).unwrap().parse().unwrap_or(0) + delta;
        *value = sum.to_string().into_bytes();
        self.count(key.len() + 16);
        Ok(sum)
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.count(key.len() + value.len());
        let mut values = self.values.borrow_mut();
        values.insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

impl Lookup for CountingStore {
    fn check_all(&self, keys: &[String]) -> Result<bool, DistError> {
        self.count(keys.iter().map(String::len).sum());
        let values = self.values.borrow();
        Ok(keys.iter().all(|key| values.contains_key(key)))
    }

    fn multi_get(&self, keys: &[String]) -> Result<Vec<Vec<u8>>, DistError> {
        let values = self.values.borrow();
        let found: Vec<_> = keys.iter().map(|key| values[key].clone()).collect();
        let sent: usize = keys.iter().map(String::len).sum();
        self.count(sent + found.iter().map(Vec::len).sum::<usize>());
        Ok(found)
    }
}
