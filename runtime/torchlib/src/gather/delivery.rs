//! Transfers one rank's part through the store: first the pieces, then a label that marks them as
//! complete.
//!
//! ```text
//! part/<rank>/0 … part/<rank>/<n-1>    at most 4 MiB each
//! label/<rank>                          "<bytes> <pieces> <crc32c> <gpu>"
//! ```

use crc32c::crc32c;
use std::fmt;
use std::time::Duration;
use tcpstore::{Store, StoreError};

/// Size of a piece in bytes: half of the server's maximum for one value (8 MiB, torch 2.11).
const PIECE_BYTES: usize = 4 << 20;

/// Key that is set when rank 0 stops waiting for missing ranks.
pub const CLOSED: &str = "closed";

/// Timeout for a label that was just set: this only guards against a broken connection.
const LABEL_WAIT: Duration = Duration::from_secs(10);

/// The description of a rank's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartLabel {
    pub bytes: usize,
    pub pieces: usize,
    pub checksum: u32,
    /// Host and UUID of the GPU that only this rank uses; `None` rules out NCCL.
    pub gpu: Option<String>,
}

impl PartLabel {
    pub fn of(part: &[u8], gpu: Option<String>) -> Self {
        Self {
            bytes: part.len(),
            pieces: part.len().div_ceil(PIECE_BYTES),
            checksum: crc32c(part),
            gpu,
        }
    }

    pub fn read(text: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(text).ok()?.splitn(4, ' ');
        let bytes = words.next()?.parse().ok()?;
        let pieces = words.next()?.parse().ok()?;
        let checksum = u32::from_str_radix(words.next()?, 16).ok()?;
        let gpu = words.next()?;
        let gpu = (gpu != "-").then(|| gpu.to_owned());
        (pieces == usize::div_ceil(bytes, PIECE_BYTES)).then_some(Self {
            bytes,
            pieces,
            checksum,
            gpu,
        })
    }

    pub fn fits(&self, part: &[u8]) -> bool {
        self.bytes == part.len() && self.checksum == crc32c(part)
    }
}

impl fmt::Display for PartLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {:08x} {}",
            self.bytes,
            self.pieces,
            self.checksum,
            self.gpu.as_deref().unwrap_or("-")
        )
    }
}

/// Stores `part`; when this returns, the server has received all of it.
pub fn deliver(
    store: &Store,
    rank: usize,
    part: &[u8],
    label: &PartLabel,
) -> Result<(), StoreError> {
    for (i, piece) in part.chunks(PIECE_BYTES).enumerate() {
        store.set(&piece_key(rank, i), piece)?;
    }
    store.set(&label_key(rank), label.to_string().as_bytes())?;
    // The server does not acknowledge writes, but handles requests in order: once it answers this
    // one, it has the values.
    store.wait(&label_key(rank), LABEL_WAIT)
}

/// Returns the key of a piece of a part.
pub fn piece_key(rank: usize, i: usize) -> String {
    format!("part/{rank}/{i}")
}

/// Returns the key of the label of a part.
pub fn label_key(rank: usize) -> String {
    format!("label/{rank}")
}

/// Returns the key that a rank sets in its last call after its delivery.
pub fn left_key(rank: usize) -> String {
    format!("left/{rank}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_part_has_no_pieces_and_one_byte_more_than_a_piece_has_two() {
        assert_eq!(PartLabel::of(b"", None).pieces, 0);
        assert_eq!(PartLabel::of(&vec![0; PIECE_BYTES], None).pieces, 1);
        assert_eq!(PartLabel::of(&vec![0; PIECE_BYTES + 1], None).pieces, 2);
    }

    #[test]
    fn a_label_of_another_protocol_is_not_read() {
        assert_eq!(PartLabel::read(b""), None);
        assert_eq!(PartLabel::read(b"5 1"), None);
        assert_eq!(PartLabel::read(b"5 1 0000002a"), None);
        assert_eq!(
            PartLabel::read(b"5 99999999999 0000002a -"),
            None,
            "pieces beyond the bytes"
        );
        assert_eq!(PartLabel::read(b"\xff 1 0 -"), None);
    }

    proptest! {
        #[test]
        fn a_label_reads_back(part: Vec<u8>, gpu in proptest::option::of("[a-z]{1,9}/GPU-[0-9a-f]{8}")) {
            let label = PartLabel::of(&part, gpu);
            prop_assert!(label.fits(&part));
            prop_assert_eq!(PartLabel::read(label.to_string().as_bytes()), Some(label));
        }

        #[test]
        fn reading_never_panics(text: Vec<u8>) {
            let _ = PartLabel::read(&text);
        }

        #[test]
        fn a_changed_byte_does_not_fit(mut part in proptest::collection::vec(any::<u8>(), 1..50), at: usize) {
            let label = PartLabel::of(&part, None);
            let at = at % part.len();
            part[at] ^= 1;
            prop_assert!(!label.fits(&part));
        }
    }
}
