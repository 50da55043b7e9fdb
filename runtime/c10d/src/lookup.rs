//! Finds the values of many keys with few requests, where some may be missing.

use crate::error::DistError;
use crate::store::Store;

/// Keys in one request.
const AT_ONCE: usize = 1024;

/// What a search needs of a store.
pub trait Lookup {
    /// See [`Store::check_all`].
    fn check_all(&self, keys: &[String]) -> Result<bool, DistError>;
    /// See [`Store::multi_get`].
    fn multi_get(&self, keys: &[String]) -> Result<Vec<Vec<u8>>, DistError>;

    /// Returns the values of those keys that have one now, in order of the keys. It needs two
    /// requests for each 1 024 keys, and some more around each key without a value.
    ///
    /// # Errors
    /// Returns an error if the store does not answer.
    fn find(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, DistError> {
        let mut found = Vec::with_capacity(keys.len());
        for part in keys.chunks(AT_ONCE) {
            self.halve(part, &mut found)?;
        }
        Ok(found)
    }

    /// Adds the values to `found`; halves `keys` around those that have none.
    fn halve(&self, keys: &[String], found: &mut Vec<Option<Vec<u8>>>) -> Result<(), DistError> {
        if self.check_all(keys)? {
            found.extend(self.multi_get(keys)?.into_iter().map(Some));
            return Ok(());
        }
        if keys.len() <= 1 {
            found.push(None);
            return Ok(());
        }
        let (first, rest) = keys.split_at(keys.len() / 2);
        self.halve(first, found)?;
        self.halve(rest, found)
    }
}

impl Lookup for Store {
    fn check_all(&self, keys: &[String]) -> Result<bool, DistError> {
        Self::check_all(self, keys)
    }

    fn multi_get(&self, keys: &[String]) -> Result<Vec<Vec<u8>>, DistError> {
        Self::multi_get(self, keys)
    }
}
