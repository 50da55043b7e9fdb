//! A memo: values that are computed once per key and then kept.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

/// At most `limit` values by key, with at most `max_bytes` in total. When it is full, all values
/// are dropped.
#[derive(Debug)]
pub(crate) struct Memo<K, V> {
    values: RefCell<MemoValues<K, V>>,
    limit: usize,
    max_bytes: usize,
    size_of: fn(&K, &V) -> usize,
}

#[derive(Debug)]
struct MemoValues<K, V> {
    by_key: HashMap<K, V>,
    bytes: usize,
}

impl<K: Eq + Hash, V: Clone> Memo<K, V> {
    /// Creates an empty memo for values whose sizes are bounded.
    pub fn new(limit: usize) -> Self {
        Self::bounded(limit, usize::MAX, |_, _| 0)
    }

    /// Creates an empty memo for values whose sizes depend on outside input; `size_of` returns the
    /// bytes of one.
    pub fn bounded(limit: usize, max_bytes: usize, size_of: fn(&K, &V) -> usize) -> Self {
        let values = MemoValues {
            by_key: HashMap::new(),
            bytes: 0,
        };
        Self {
            values: RefCell::new(values),
            limit,
            max_bytes,
            size_of,
        }
    }

    /// Returns the value of `key`; `make` computes it the first time.
    pub fn get_or(&self, key: K, make: impl FnOnce(&K) -> V) -> V {
        self.get_or_try(key, |key| Ok::<_, std::convert::Infallible>(make(key)))
            .unwrap_or_else(|never| match never {})
    }

    /// As [`Self::get_or`], with a `make` that can fail; an error is not kept.
    pub fn get_or_try<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.values.borrow().by_key.get(&key) {
            return Ok(value.clone());
        }
        let value = make(&key)?;
        let bytes = (self.size_of)(&key, &value);
        if bytes > self.max_bytes {
            return Ok(value);
        }
        let mut values = self.values.borrow_mut();
        if values.by_key.len() >= self.limit || values.bytes.saturating_add(bytes) > self.max_bytes
        {
            values.clear();
        }
        values.bytes += bytes;
        values.by_key.insert(key, value.clone());
        Ok(value)
    }
}

impl<K, V> MemoValues<K, V> {
    fn clear(&mut self) {
        self.by_key.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once() {
        let kept = Memo::new(2);
        assert_eq!(
            (kept.get_or(1, |_| "a"), kept.get_or(1, |_| "b")),
            ("a", "a")
        );
    }

    #[test]
    fn a_full_store_starts_anew() {
        let kept = Memo::new(1);
        kept.get_or(1, |_| "a");
        kept.get_or(2, |_| "b");
        assert_eq!(kept.get_or(1, |_| "c"), "c");
    }

    #[test]
    fn values_take_no_more_bytes_than_they_may() {
        let kept = Memo::bounded(100, 10, |_, value: &&str| value.len());
        kept.get_or(1, |_| "12345");
        kept.get_or(2, |_| "12345");
        assert_eq!(kept.get_or(1, |_| "new"), "12345");
        kept.get_or(3, |_| "1");
        assert_eq!(
            kept.get_or(1, |_| "new"),
            "new",
            "the third one did not fit beside the others"
        );
        kept.get_or(4, |_| "12345678901");
        assert_eq!(
            kept.get_or(4, |_| "again"),
            "again",
            "larger than all may be"
        );
        assert_eq!(kept.get_or(3, |_| "other"), "1");
    }

    #[test]
    fn an_error_is_not_kept() {
        let kept = Memo::new(1);
        assert_eq!(kept.get_or_try(1, |_| Err::<i32, _>("no")), Err("no"));
        assert_eq!(kept.get_or_try(1, |_| Ok::<_, &str>(7)), Ok(7));
    }
}
