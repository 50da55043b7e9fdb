//! A list in the store: any rank appends to it, and a reader gets what is new with a few requests,
//! however many ranks append.
//!
//! ```text
//! append   n = add(<name>, 1), set(<name>/<n>, entry)
//! read     add(<name>, 0) ─► the new <name>/<n>: check, multi_get
//! ```
//! The number is taken before its entry is there. A rank that dies between the two leaves a number
//! without an entry for good, so a reader leaves that number out and looks for it again later.

use std::collections::BTreeSet;
use std::fmt::Display;

use tcpstore::{Store, StoreError};

/// Entries in one request.
const AT_ONCE: usize = 1024;

/// Entries that one call of [`ListReader::read`] looks for, at most: anybody may write the counter.
const MOST: i64 = 1 << 20;

/// Appends an entry to the list `name`.
///
/// # Errors
/// Returns an error if the store is lost. The entry may be in the list nevertheless.
pub fn append(store: &Store, name: &str, entry: &[u8]) -> Result<(), StoreError> {
    let number = store.add(name, 1)?;
    store.set(&entry_key(name, number), entry)
}

/// What a reader has seen of a list.
#[derive(Debug)]
pub struct ListReader {
    name: &'static str,
    /// Numbers up to this one have been read or are in `absent`.
    known: i64,
    /// Numbers that were taken and had no entry.
    absent: BTreeSet<i64>,
}

impl ListReader {
    /// Returns a reader that has seen nothing of the list `name`.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            known: 0,
            absent: BTreeSet::new(),
        }
    }

    /// Calls `on` with each entry that is new, once.
    ///
    /// # Errors
    /// Returns an error if the store does not answer; what is left is read by the next call.
    pub fn read(&mut self, store: &Store, mut on: impl FnMut(Vec<u8>)) -> Result<(), StoreError> {
        let count = store
            .add(self.name, 0)?
            .min(self.known.saturating_add(MOST));
        let late: Vec<i64> = self.absent.iter().copied().collect();
        let new: Vec<i64> = (self.known + 1..=count).collect();
        self.known = self.known.max(count);
        self.absent.extend(&new);
        for part in late.chunks(AT_ONCE).chain(new.chunks(AT_ONCE)) {
            self.take(store, part, &mut on)?;
        }
        Ok(())
    }

    /// Reads the entries that are there.
    fn take(
        &mut self,
        store: &Store,
        numbers: &[i64],
        on: &mut impl FnMut(Vec<u8>),
    ) -> Result<(), StoreError> {
        let key = |number: &i64| entry_key(self.name, *number);
        let keys: Vec<_> = numbers.iter().map(key).collect();
        for (number, entry) in numbers.iter().zip(store.find(&keys)?) {
            if let Some(entry) = entry {
                self.absent.remove(number);
                on(entry);
            }
        }
        Ok(())
    }
}

fn entry_key(name: &str, number: impl Display) -> String {
    format!("{name}/{number}")
}

#[cfg(test)]
mod tests;
