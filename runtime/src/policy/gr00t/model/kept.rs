//! Values that are made once for a key and then kept.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

/// At most `limit` values by key; when it is full, all are forgotten.
#[derive(Debug)]
pub(super) struct Kept<K, V> {
    values: RefCell<HashMap<K, V>>,
    limit: usize,
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    /// Nothing yet.
    pub fn new(limit: usize) -> Self {
        Self { values: RefCell::new(HashMap::new()), limit }
    }

    /// The value of `key`, made by `make` the first time.
    pub fn get_or(&self, key: K, make: impl FnOnce(&K) -> V) -> V {
        self.get_or_try(key, |key| Ok::<_, std::convert::Infallible>(make(key))).unwrap_or_else(|never| match never {})
    }

    /// As [`Self::get_or`]; an error is not kept.
    pub fn get_or_try<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.values.borrow().get(&key) {
            return Ok(value.clone());
        }
        let value = make(&key)?;
        let mut values = self.values.borrow_mut();
        if values.len() >= self.limit {
            values.clear();
        }
        values.insert(key, value.clone());
        Ok(value)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.values.get_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once() {
        let kept = Kept::new(2);
        assert_eq!((kept.get_or(1, |_| "a"), kept.get_or(1, |_| "b")), ("a", "a"));
    }

    #[test]
    fn a_full_store_starts_anew() {
        let kept = Kept::new(1);
        kept.get_or(1, |_| "a");
        kept.get_or(2, |_| "b");
        assert_eq!(kept.get_or(1, |_| "c"), "c");
    }

    #[test]
    fn an_error_is_not_kept() {
        let kept = Kept::new(1);
        assert_eq!(kept.get_or_try(1, |_| Err::<i32, _>("no")), Err("no"));
        assert_eq!(kept.get_or_try(1, |_| Ok::<_, &str>(7)), Ok(7));
    }
}
