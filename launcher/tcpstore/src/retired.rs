//! Values that have left the table while replies that share them are still queued.
//!
//! A client that asks for everything and reads nothing keeps deleted values alive, so their memory
//! counts until the replies are gone.

use std::sync::{Arc, Weak};

use crate::outbox::SHARE;
use crate::value::StoreValue;

/// Least number of values that are worth a sweep.
const SWEEP: usize = 256;

/// The values that queued replies keep alive.
#[derive(Debug, Default)]
pub struct Retired {
    values: Vec<(Weak<Vec<u8>>, usize)>,
    held: usize,
    /// Number of values that the last sweep kept.
    left: usize,
}

impl Retired {
    /// Adds a value that has just left the table.
    pub fn add(&mut self, value: StoreValue) {
        if Arc::strong_count(&value) > 1 {
            self.add_sent(&value);
        }
    }

    /// Adds a value that is about to be sent to a client. Short values are copied, and count as
    /// that client's buffer.
    pub fn add_sent(&mut self, value: &StoreValue) {
        if value.len() < SHARE {
            return;
        }
        self.held += value.len();
        self.values.push((Arc::downgrade(value), value.len()));
        if self.values.len() > SWEEP.max(2 * self.left) {
            self.sweep();
        }
    }

    /// Returns the memory that these values take, in bytes.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Forgets the values that no reply shares any more.
    pub fn sweep(&mut self) {
        self.values.retain(|(value, _)| value.strong_count() > 0);
        self.held = self.values.iter().map(|(_, length)| length).sum();
        self.left = self.values.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_until_the_last_reply_with_it_is_sent() {
        let mut retired = Retired::default();
        let reply = StoreValue::new(vec![0; SHARE]);
        retired.add(Arc::clone(&reply));
        retired.sweep();
        assert_eq!(retired.held(), SHARE);
        drop(reply);
        retired.sweep();
        assert_eq!(retired.held(), 0);
    }

    #[test]
    fn values_that_nobody_is_sent_are_not_kept() {
        let mut retired = Retired::default();
        (0..10_000).for_each(|_| retired.add(StoreValue::new(vec![0; SHARE])));
        assert_eq!(retired.held(), 0);
        (0..10_000).for_each(|_| retired.add_sent(&StoreValue::new(vec![0; SHARE])));
        assert!(retired.held() <= SWEEP * SHARE && retired.values.len() <= SWEEP);
    }
}
