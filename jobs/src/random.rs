//! Names that no two things share.

use std::fs::File;
use std::io::{self, Read as _};

use crate::sha256;

/// `BYTES` random bytes in hex.
///
/// # Errors
/// When there is no `/dev/urandom`.
pub(crate) fn hex<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(sha256::hex(bytes))
}
