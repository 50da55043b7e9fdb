//! Limits the bytes that one rendering may process: every operand is counted, whether or not it is
//! kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Maximum number of bytes that a rendering may process. The public Qwen3-VL template needs about
/// ten thousand.
pub(super) const BYTES: u64 = 4 << 20;
/// Maximum nesting depth of values. Dropping and comparing nested values takes stack.
const DEPTH: usize = 32;
/// Size of a value without its text, in bytes.
const VALUE: u64 = 32;

/// The number of bytes that a rendering has processed so far.
#[derive(Clone, Debug, Default)]
pub(super) struct RenderBudget(Arc<AtomicU64>);

impl RenderBudget {
    /// Counts a value and everything inside it, as often as it occurs.
    ///
    /// # Errors
    /// Returns an error if the budget is spent, or if the value is nested too deeply, as one that
    /// contains itself is.
    pub(super) fn charge(&self, value: &Value) -> Result<(), Error> {
        self.charge_at(value, 0)
    }

    /// Counts bytes.
    ///
    /// # Errors
    /// Returns an error if the budget is spent.
    pub(super) fn spend(&self, bytes: u64) -> Result<(), Error> {
        let add = |spent: u64| spent.checked_add(bytes).filter(|sum| *sum <= BYTES);
        match self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
        {
            Ok(_) => Ok(()),
            Err(_) => Err(refuse(format!(
                "the template works on more than {BYTES} bytes"
            ))),
        }
    }

    fn charge_at(&self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH {
            return Err(refuse(format!(
                "the template has values more than {DEPTH} deep in others"
            )));
        }
        let text = value.as_bytes().map_or(0, <[u8]>::len);
        self.spend(VALUE + text as u64)?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => value
                .try_iter()?
                .try_for_each(|item| self.charge_at(&item, depth + 1)),
            ValueKind::Map => value.try_iter()?.try_for_each(|key| {
                self.charge_at(&value.get_item(&key)?, depth + 1)?;
                self.charge_at(&key, depth + 1)
            }),
            _ => Ok(()),
        }
    }
}

/// Creates a template error with this message.
pub(super) fn refuse(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}
