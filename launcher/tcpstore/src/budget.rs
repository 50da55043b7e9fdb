//! The memory of a store: what takes some of it holds a [`Charge`], which gives it back when it
//! is dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::StoreRefusal;

/// A number of bytes of which no more than a limit is held at a time.
#[derive(Clone, Debug)]
pub struct Budget(Arc<(AtomicUsize, usize)>);

impl Budget {
    /// Returns a budget of `most` bytes.
    pub fn new(most: usize) -> Budget {
        Budget(Arc::new((AtomicUsize::new(0), most)))
    }

    /// Returns the bytes that are held.
    pub fn held(&self) -> usize {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Returns whether so many bytes can be taken.
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.0.1.saturating_sub(self.held())
    }

    /// Takes some bytes.
    pub fn take(&self, bytes: usize) -> Result<Charge, StoreRefusal> {
        let mut charge = self.charge();
        charge.resize(bytes)?;
        Ok(charge)
    }

    /// Takes nothing yet.
    pub fn charge(&self) -> Charge {
        Charge {
            budget: Some(self.clone()),
            bytes: 0,
        }
    }
}

/// Bytes of a budget; of none by default.
#[derive(Debug, Default)]
pub struct Charge {
    budget: Option<Budget>,
    bytes: usize,
}

impl Charge {
    /// Returns the bytes that are taken.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more bytes, or fewer; unless there is room for them, nothing changes.
    pub fn resize(&mut self, bytes: usize) -> Result<(), StoreRefusal> {
        let more = bytes.saturating_sub(self.bytes);
        if let Some(budget) = &self.budget {
            if more > 0 && !budget.has_room(more) {
                return Err(StoreRefusal::new(format!(
                    "the store holds {} of at most {} bytes, and has no room for more",
                    budget.held(),
                    budget.0.1
                )));
            }
            budget.0.0.fetch_add(more, Ordering::Relaxed);
            let fewer = self.bytes.saturating_sub(bytes);
            budget.0.0.fetch_sub(fewer, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(Budget(budget)) = &self.budget {
            budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A value, which counts until the last reply with it has been sent.
pub type StoreValue = Arc<Charged>;

/// The bytes of a value, and what they take.
#[derive(Debug, Default)]
pub struct Charged {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What they take.
    pub charge: Charge,
}

impl From<Vec<u8>> for Charged {
    fn from(bytes: Vec<u8>) -> Charged {
        Charged {
            bytes,
            charge: Charge::default(),
        }
    }
}

impl Deref for Charged {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Charged {
    fn eq(&self, other: &Charged) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Charged {}
