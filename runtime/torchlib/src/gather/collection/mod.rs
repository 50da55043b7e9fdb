//! How rank 0 collects what the other ranks have delivered: with few requests for each thousand of
//! them.
//!
//! ```text
//! for each 1 024 ranks       wait for their labels, get them
//! for each 16 MiB of parts   get the pieces, empty them
//! for each 1 024 ranks       wait until they have left
//! ```

use crate::gather::delivery::{CLOSED, PartLabel, label_key, left_key, piece_key};
use std::ops::Range;
use tcpstore::{Deadline, Store, StoreError};

/// Ranks in one request.
const AT_ONCE: usize = 1024;

/// Pieces of a part that is read together with others, at most.
const PIECES_AT_ONCE: usize = 4;

/// Bytes in one request, at most.
const BYTES_AT_ONCE: usize = 16 << 20;

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
    let found = store.find(&keys)?.into_iter();
    let others = found.map(|text| text.and_then(|text| PartLabel::read(&text)));
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
            Some(label) if label.pieces > PIECES_AT_ONCE => {
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
        let (size, pieces) = label
            .as_ref()
            .map_or((0, 0), |label| (label.bytes, label.pieces));
        bytes += size.min(BYTES_AT_ONCE);
        let has_room = bytes <= BYTES_AT_ONCE && pieces <= PIECES_AT_ONCE;
        if end > first && !has_room {
            break;
        }
        end += 1;
        if !has_room {
            break;
        }
    }
    first..end
}

fn small(
    store: &Store,
    labels: &[Option<PartLabel>],
    ranks: Range<usize>,
) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
    let pieces = |rank: usize| labels[rank].as_ref().map_or(0, |label| label.pieces);
    let keys = |rank| (0..pieces(rank)).map(move |i| piece_key(rank, i));
    let keys: Vec<_> = ranks.clone().flat_map(keys).collect();
    let mut found = store.find(&keys)?.into_iter();
    let part = |rank: usize| {
        let pieces: Vec<_> = found.by_ref().take(pieces(rank)).collect();
        let label = labels[rank].as_ref()?;
        let pieces: Vec<Vec<u8>> = pieces.into_iter().collect::<Option<_>>()?;
        let part = pieces.concat();
        label.fits(&part).then_some(part)
    };
    Ok(ranks.map(part).collect())
}

/// Reads a part piece by piece.
fn large(store: &Store, rank: usize, label: &PartLabel) -> Result<Option<Vec<u8>>, StoreError> {
    let mut part = Vec::new();
    for i in 0..label.pieces {
        let Some(Some(piece)) = store.find(&[piece_key(rank, i)])?.pop() else {
            return Ok(None);
        };
        part.extend(piece);
    }
    Ok(label.fits(&part).then_some(part))
}

/// Frees the memory of a part that has arrived. Unlike a deletion, this does not wait for an
/// answer.
pub fn empty(store: &Store, rank: usize, label: &Option<PartLabel>) -> Result<(), StoreError> {
    let pieces = label.as_ref().map_or(0, |label| label.pieces);
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
