//! The parts of the ranks in the store: how a rank delivers its own, and how rank 0 collects all
//! with few requests for each thousand of them.
//!
//! ```text
//! part/<rank>/0 … part/<rank>/<n-1>    at most 4 MiB each
//! label/<rank>                         a label: they are complete
//!
//! for each 1 024 ranks       wait for their labels, get them
//! for each 16 MiB of parts   get the pieces, empty them
//! for each 1 024 ranks       wait until they have left
//! ```

use std::ops::Range;
use std::time::Duration;

use crc32c::crc32c;
use serde::{Deserialize, Serialize};
use tcpstore::{Deadline, Store, StoreError};

/// Size of a piece in bytes: half of the server's maximum for one value (8 MiB, torch 2.11).
const PIECE_BYTES: usize = 4 << 20;

/// Key that is set when rank 0 stops waiting for missing ranks.
pub const CLOSED: &str = "closed";

/// Timeout for a label that was just set: this only guards against a broken connection.
const LABEL_WAIT: Duration = Duration::from_secs(10);

/// Ranks in one request.
const AT_ONCE: usize = 1024;

/// Bytes in one request, at most; a larger part is read piece by piece.
const BYTES_AT_ONCE: usize = 16 << 20;

/// The description of a rank's part, as JSON in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartLabel {
    pub bytes: usize,
    /// CRC-32C.
    pub checksum: u32,
    /// Host and UUID of the GPU that only this rank uses; `None` rules out NCCL.
    pub gpu: Option<String>,
}

impl PartLabel {
    pub fn of(part: &[u8], gpu: Option<String>) -> Self {
        Self {
            bytes: part.len(),
            checksum: crc32c(part),
            gpu,
        }
    }

    /// Returns the number of pieces of the part.
    pub fn pieces(&self) -> usize {
        self.bytes.div_ceil(PIECE_BYTES)
    }

    pub fn fits(&self, part: &[u8]) -> bool {
        self.bytes == part.len() && self.checksum == crc32c(part)
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
    let label = serde_json::to_vec(label).expect("a label is an object of JSON");
    store.set(&label_key(rank), &label)?;
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

/// Returns the labels that arrive by the deadline, by rank; `own` is that of rank 0.
///
/// A late rank learns from the key `closed` that it may be missing from the report: a rank that
/// does not find the key is in the report.
pub fn labels(
    store: &Store,
    own: PartLabel,
    world: usize,
    until: Deadline,
) -> Result<Vec<Option<PartLabel>>, StoreError> {
    let keys: Vec<_> = (1..world).map(label_key).collect();
    for part in keys.chunks(AT_ONCE) {
        match store.wait_all(part, until.left()) {
            Ok(()) => {}
            Err(err) if err.is_missing() => {
                store.set(CLOSED, b"")?;
                break;
            }
            Err(err) => return Err(err),
        }
    }
    let found = store.multi_get(&keys)?.into_iter();
    let others = found.map(|text| serde_json::from_slice(&text).ok());
    Ok([Some(own)].into_iter().chain(others).collect())
}

/// Returns the parts of all ranks that have a label, as far as they match it, and empties their
/// pieces in the store.
pub fn parts(
    store: &Store,
    mine: Vec<u8>,
    labels: &[Option<PartLabel>],
) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
    let mut parts = vec![Some(mine)];
    while parts.len() < labels.len() {
        let ranks = together(labels, parts.len());
        match &labels[ranks.start] {
            Some(label) if label.bytes > BYTES_AT_ONCE => {
                parts.push(large(store, ranks.start, label)?);
            }
            _ => parts.extend(small(store, labels, ranks.clone())?),
        }
        for rank in ranks {
            if parts[rank].is_some() {
                empty(store, rank, &labels[rank])?;
            }
        }
    }
    Ok(parts)
}

/// Returns the ranks from `first` on whose parts are read together: one large part, or small ones.
fn together(labels: &[Option<PartLabel>], first: usize) -> Range<usize> {
    let (mut bytes, mut end) = (0, first);
    for label in labels[first..].iter().take(AT_ONCE) {
        bytes = usize::saturating_add(bytes, label.as_ref().map_or(0, |label| label.bytes));
        if end > first && bytes > BYTES_AT_ONCE {
            break;
        }
        end += 1;
    }
    first..end
}

fn small(
    store: &Store,
    labels: &[Option<PartLabel>],
    ranks: Range<usize>,
) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
    let pieces = |rank: usize| labels[rank].as_ref().map_or(0, PartLabel::pieces);
    let keys = |rank| (0..pieces(rank)).map(move |i| piece_key(rank, i));
    let keys: Vec<_> = ranks.clone().flat_map(keys).collect();
    let mut found = store.multi_get(&keys)?.into_iter();
    let part = |rank: usize| {
        let pieces: Vec<_> = found.by_ref().take(pieces(rank)).collect();
        let (label, part) = (labels[rank].as_ref()?, pieces.concat());
        label.fits(&part).then_some(part)
    };
    Ok(ranks.map(part).collect())
}

/// Reads a part piece by piece.
fn large(store: &Store, rank: usize, label: &PartLabel) -> Result<Option<Vec<u8>>, StoreError> {
    let mut part = Vec::new();
    for i in 0..label.pieces() {
        match store.multi_get(&[piece_key(rank, i)])?.pop() {
            Some(piece) if !piece.is_empty() => part.extend(piece),
            _ => return Ok(None),
        }
    }
    Ok(label.fits(&part).then_some(part))
}

/// Frees the memory of a part that has arrived. Unlike a deletion, this does not wait for an
/// answer.
pub fn empty(store: &Store, rank: usize, label: &Option<PartLabel>) -> Result<(), StoreError> {
    let pieces = label.as_ref().map_or(0, PartLabel::pieces);
    (0..pieces).try_for_each(|i| store.set(&piece_key(rank, i), b""))
}

/// Waits until the ranks that have delivered no longer need the store.
pub fn see_off(store: &Store, labels: &[Option<PartLabel>], until: Deadline) {
    let delivered = (1..labels.len()).filter(|rank| labels[*rank].is_some());
    let keys: Vec<_> = delivered.map(left_key).collect();
    for part in keys.chunks(AT_ONCE) {
        // The report already has the part of a rank that died after its delivery.
        drop(store.wait_all(part, until.left()));
    }
}

#[cfg(test)]
mod tests;
