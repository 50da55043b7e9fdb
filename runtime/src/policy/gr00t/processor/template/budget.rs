//! What one rendering may make, in bytes: everything that it works on is counted, whether or not it is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Bytes of values that a rendering may work on. The public Qwen3-VL template takes some ten thousand.
pub(super) const BYTES: u64 = 4 << 20;
/// Values within values, at most. Dropping and comparing them takes stack.
const DEPTH: usize = 32;
/// Bytes of a value beside its text.
const VALUE: u64 = 32;

/// What a rendering has worked on so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// Counts a value with all that is in it, as often as it is in it.
    ///
    /// # Errors
    /// The budget is spent, or the value is too deep (one that contains itself is).
    pub(super) fn charge(&self, value: &Value) -> Result<(), Error> {
        self.charge_at(value, 0)
    }

    /// Counts bytes.
    ///
    /// # Errors
    /// The budget is spent.
    pub(super) fn spend(&self, bytes: u64) -> Result<(), Error> {
        let add = |spent: u64| spent.checked_add(bytes).filter(|sum| *sum <= BYTES);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(_) => Err(refuse(format!("the template works on more than {BYTES} bytes"))),
        }
    }

    fn charge_at(&self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH {
            return Err(refuse(format!("the template has values more than {DEPTH} deep in others")));
        }
        let text = value.as_bytes().map_or(0, <[u8]>::len);
        self.spend(VALUE + text as u64)?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                value.try_iter()?.try_for_each(|item| self.charge_at(&item, depth + 1))
            }
            ValueKind::Map => value.try_iter()?.try_for_each(|key| {
                self.charge_at(&value.get_item(&key)?, depth + 1)?;
                self.charge_at(&key, depth + 1)
            }),
            _ => Ok(()),
        }
    }
}

/// An error of the template, in words.
pub(super) fn refuse(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}
