//! The name of a run that no other run has.

use std::fs::File;
use std::io::{self, Read as _};

use crate::sha256;

/// 128 random bits in hex.
///
/// # Errors
/// When there is no `/dev/urandom`.
pub(super) fn fresh() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(sha256::hex(bytes))
}
