//! An LRU cache with a limit on the total size of its values. It has no side effects.

use std::convert::Infallible;

/// Values by key, of at most a given size in total.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    /// The entries, the most recently used one last.
    entries: Vec<(K, V, u64)>,
    cap: u64,
}

impl<K: PartialEq, V> Cache<K, V> {
    /// Creates an empty cache for values of at most `cap` bytes in total, or for `cap` values if
    /// each counts as 1.
    pub fn new(cap: u64) -> Self {
        Self {
            entries: Vec::new(),
            cap,
        }
    }

    /// Returns the maximum total size.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the total size of the values.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|(.., bytes)| bytes).sum()
    }

    /// Returns the value of `key` and marks it as the most recently used.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        let at = self.entries.iter().position(|(found, ..)| found == key)?;
        let entry = self.entries.remove(at);
        self.entries.push(entry);
        self.entries.last().map(|(_, value, _)| value)
    }

    /// Inserts a value, replacing another one with the same key, and returns the evicted values:
    /// the new one itself if it is too large alone, else the least recently used ones.
    pub fn insert(&mut self, key: K, value: V, bytes: u64) -> Vec<(K, V)> {
        let mut gone = Vec::new();
        if let Some(at) = self.entries.iter().position(|(found, ..)| *found == key) {
            let (key, value, _) = self.entries.remove(at);
            gone.push((key, value));
        }
        if bytes > self.cap {
            gone.push((key, value));
            return gone;
        }
        while self.bytes() > self.cap - bytes {
            let (key, value, _) = self.entries.remove(0);
            gone.push((key, value));
        }
        self.entries.push((key, value, bytes));
        gone
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

impl<K: PartialEq, V: Clone> Cache<K, V> {
    /// Returns the value of `key`, which counts as 1; `make` computes it if there is none.
    pub fn get_or(&mut self, key: K, make: impl FnOnce() -> V) -> V {
        let Ok(value) = self.get_or_try(key, || Ok::<_, Infallible>((make(), 1)));
        value
    }

    /// Returns the value of `key`; `make` computes it and its size if there is none. An error is
    /// not kept.
    pub fn get_or_try<E>(
        &mut self,
        key: K,
        make: impl FnOnce() -> Result<(V, u64), E>,
    ) -> Result<V, E> {
        if let Some(value) = self.get(&key) {
            return Ok(value.clone());
        }
        let (value, bytes) = make()?;
        self.insert(key, value.clone(), bytes);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_longest_unused_goes_first() {
        let mut cache = Cache::new(10);
        assert!(cache.insert("a", 1, 4).is_empty() && cache.insert("b", 2, 4).is_empty());
        assert_eq!(cache.get(&"a"), Some(&1));
        assert_eq!(cache.insert("c", 3, 4), [("b", 2)]);
        assert_eq!((cache.len(), cache.bytes(), cache.get(&"b")), (2, 8, None));
    }

    #[test]
    fn what_is_too_heavy_alone_takes_no_other_place() {
        let mut cache = Cache::new(10);
        cache.insert("a", 1, 10);
        assert_eq!(cache.insert("b", 2, 11), [("b", 2)]);
        assert_eq!(cache.get(&"a"), Some(&1));
    }

    #[test]
    fn a_key_is_there_once() {
        let mut cache = Cache::new(10);
        cache.insert("a", 1, 6);
        assert_eq!(cache.insert("a", 2, 6), [("a", 1)]);
        assert_eq!(cache.get(&"a"), Some(&2));
    }

    #[test]
    fn a_value_is_made_once_and_an_error_is_not_kept() {
        let mut cache = Cache::new(1);
        assert_eq!(
            cache.get_or_try("a", || Err::<(i32, u64), _>("no")),
            Err("no")
        );
        assert_eq!([1, 2].map(|value| cache.get_or("a", || value)), [1, 1]);
        assert_eq!(["b", "a"].map(|key| cache.get_or(key, || 3)), [3, 3]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_cap_holds(puts in prop::collection::vec((0u8..8, 0u64..12), 0..60), cap in 0u64..30) {
            let mut cache = Cache::new(cap);
            let mut gone = 0;
            for (number, (key, bytes)) in puts.iter().enumerate() {
                gone += cache.insert(*key, number, *bytes).len();
                prop_assert!(cache.bytes() <= cap);
                prop_assert_eq!(cache.len() + gone, number + 1);
            }
        }
    }
}
