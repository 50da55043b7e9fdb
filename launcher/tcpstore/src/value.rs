//! The values of the store.

use std::sync::Arc;

/// A stored value, shared between the table and the replies not yet sent. `APPEND` grows it in
/// place if no reply shares it.
pub type StoreValue = Arc<Vec<u8>>;
