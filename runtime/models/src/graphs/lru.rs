//! An LRU cache with a limit on the total size of its values. It has no side effects.

/// An LRU cache that holds values of at most a given number of bytes.
#[derive(Debug)]
pub struct LruCache<K, V> {
    /// The entries, the most recently used one last.
    entries: Vec<(K, V, u64)>,
    cap: u64,
}

impl<K: PartialEq, V> LruCache<K, V> {
    /// Creates an empty cache for values of at most `cap` bytes in total.
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

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_longest_unused_goes_first() {
        let mut lru = LruCache::new(10);
        assert!(lru.insert("a", 1, 4).is_empty() && lru.insert("b", 2, 4).is_empty());
        assert_eq!(lru.get(&"a"), Some(&1));
        assert_eq!(lru.insert("c", 3, 4), [("b", 2)]);
        assert_eq!((lru.len(), lru.bytes(), lru.get(&"b")), (2, 8, None));
    }

    #[test]
    fn what_is_too_heavy_alone_takes_no_other_place() {
        let mut lru = LruCache::new(10);
        lru.insert("a", 1, 10);
        assert_eq!(lru.insert("b", 2, 11), [("b", 2)]);
        assert_eq!(lru.get(&"a"), Some(&1));
    }

    #[test]
    fn a_key_is_there_once() {
        let mut lru = LruCache::new(10);
        lru.insert("a", 1, 6);
        assert_eq!(lru.insert("a", 2, 6), [("a", 1)]);
        assert_eq!(lru.get(&"a"), Some(&2));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_cap_holds(puts in prop::collection::vec((0u8..8, 0u64..12), 0..60), cap in 0u64..30) {
            let mut lru = LruCache::new(cap);
            let mut gone = 0;
            for (number, (key, bytes)) in puts.iter().enumerate() {
                gone += lru.insert(*key, number, *bytes).len();
                prop_assert!(lru.bytes() <= cap);
                prop_assert_eq!(lru.len() + gone, number + 1);
            }
        }
    }
}
