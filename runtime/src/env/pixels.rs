//! The bytes of an image, copied out of memory that a simulator shares when somebody looks at them.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

type Copy = Box<dyn FnOnce() -> Bytes + Send>;

/// The bytes of an image. Clones share them.
#[derive(Clone)]
pub struct Pixels {
    len: usize,
    bytes: Arc<LazyLock<Bytes, Copy>>,
}

impl Pixels {
    /// Returns `len` bytes that are copied by the thread that first looks at them.
    pub(super) fn copied(len: usize, copy: impl FnOnce() -> Bytes + Send + 'static) -> Self {
        let bytes = Arc::new(LazyLock::new(Box::new(copy) as Copy));
        Self { len, bytes }
    }

    /// Returns the number of bytes, without a look at them.
    #[expect(clippy::len_without_is_empty, reason = "an image has pixels")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns whether there is no clone of it.
    pub(super) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.bytes) == 1
    }
}

impl Deref for Pixels {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B: Into<Bytes>> From<B> for Pixels {
    fn from(bytes: B) -> Self {
        let bytes = bytes.into();
        Self::copied(bytes.len(), move || bytes)
    }
}

impl PartialEq for Pixels {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Pixels {}

impl fmt::Debug for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}
