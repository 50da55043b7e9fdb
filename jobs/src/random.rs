//! Random unique ids.

use std::fs::File;
use std::io::{self, Read as _};

use crate::sha256;

/// Returns `BYTES` random bytes as hex digits.
///
/// # Errors
/// Returns an error if `/dev/urandom` cannot be read.
pub fn hex<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(sha256::hex(bytes))
}
