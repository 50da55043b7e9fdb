//! Values that the table holds no longer while replies with them are still under way.
//!
//! A client that asks for all there is and reads nothing keeps what was deleted meanwhile alive, so that it has to count
//! as long as it lives.

use std::sync::{Arc, Weak};

use crate::store::outbox::SHARE;
use crate::store::reply::Value;

/// Fewer values than this are not worth a sweep.
const SWEEP: usize = 256;

/// What is still on its way.
#[derive(Debug, Default)]
pub struct Retired {
    values: Vec<(Weak<Vec<u8>>, usize)>,
    held: usize,
    /// Values that the last sweep left.
    left: usize,
}

impl Retired {
    /// Lets go of a value that was in the table.
    pub fn add(&mut self, value: Value) {
        if Arc::strong_count(&value) > 1 {
            self.add_sent(&value);
        }
    }

    /// A value that is about to be sent to a client. Short ones are copied, and count with what the client buffers.
    pub fn add_sent(&mut self, value: &Value) {
        if value.len() < SHARE {
            return;
        }
        self.held += value.len();
        self.values.push((Arc::downgrade(value), value.len()));
        if self.values.len() > SWEEP.max(2 * self.left) {
            self.sweep();
        }
    }

    /// What they take. Bytes.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Forgets those that have arrived.
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
        let reply = Value::new(vec![0; SHARE]);
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
        (0..10_000).for_each(|_| retired.add(Value::new(vec![0; SHARE])));
        assert_eq!(retired.held(), 0);
        (0..10_000).for_each(|_| retired.add_sent(&Value::new(vec![0; SHARE])));
        assert!(retired.held() <= SWEEP * SHARE && retired.values.len() <= SWEEP);
    }
}
