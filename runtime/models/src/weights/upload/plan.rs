//! Plans which bytes of which file go to which place of a staging buffer.
//!
//! ```text
//! file     ▐ a │      b       │c│d│  e ▌        in file order, not in the order requested
//! buffers  [a··b······] [b·····c·d·] [e···]     large tensors split, small ones joined, aligned
//! ```

use std::ops::Range;

/// Alignment of pieces in a buffer: larger than any element, and suitable for vector copies.
pub const ALIGN: usize = 64;

/// The position of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of its file.
    pub file: usize,
    /// Byte range from the beginning of the file.
    pub bytes: Range<u64>,
}

/// A part of a tensor in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadPiece {
    /// Index of the tensor.
    pub tensor: usize,
    /// Number of bytes of the tensor before this piece.
    pub begin: u64,
    /// Index of its file.
    pub file: usize,
    /// Offset of its first byte in the file.
    pub at: u64,
    /// Byte range in the buffer; it starts at a multiple of [`ALIGN`].
    pub buffer: Range<usize>,
}

/// The contents of one buffer at one time.
pub type Load = Vec<LoadPiece>;

/// Divides tensors into buffers of `size` bytes, which must be a multiple of [`ALIGN`]; empty
/// tensors are in no buffer.
pub fn plan(extents: &[Extent], size: usize) -> Vec<Load> {
    assert!(
        size > 0 && size.is_multiple_of(ALIGN),
        "a buffer of {size} bytes"
    );
    let mut order: Vec<_> = (0..extents.len()).collect();
    order.sort_by_key(|&tensor| (extents[tensor].file, extents[tensor].bytes.start));
    let (mut loads, mut load, mut used) = (Vec::new(), Load::new(), 0usize);
    for tensor in order {
        let Extent { file, bytes } = &extents[tensor];
        let mut at = bytes.start;
        while at < bytes.end {
            let offset = used.next_multiple_of(ALIGN);
            if offset >= size {
                loads.push(std::mem::take(&mut load));
                used = 0;
                continue;
            }
            // Both bounds of the free space are multiples of `ALIGN`, so no element is split.
            let count = usize::try_from(bytes.end - at)
                .unwrap_or(usize::MAX)
                .min(size - offset);
            used = offset + count;
            load.push(LoadPiece {
                tensor,
                begin: at - bytes.start,
                file: *file,
                at,
                buffer: offset..used,
            });
            at += count as u64;
        }
    }
    loads.extend((!load.is_empty()).then_some(load));
    loads
}

/// Returns the number of pieces of each of `tensors` tensors.
pub fn pieces(loads: &[Load], tensors: usize) -> Vec<usize> {
    let mut counts = vec![0; tensors];
    loads
        .iter()
        .flatten()
        .for_each(|piece| counts[piece.tensor] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(file: usize, begin: u64, length: u64) -> Extent {
        Extent {
            file,
            bytes: begin..begin + length,
        }
    }

    /// Returns tensor, first byte in the file, and place in the buffer.
    fn told(load: &Load) -> Vec<(usize, u64, Range<usize>)> {
        load.iter()
            .map(|piece| (piece.tensor, piece.at, piece.buffer.clone()))
            .collect()
    }

    #[test]
    fn small_tensors_share_a_buffer_and_a_large_one_has_several() {
        let loads = plan(
            &[extent(0, 10, 4), extent(0, 14, 200), extent(0, 214, 8)],
            128,
        );
        let told: Vec<_> = loads.iter().map(told).collect();
        assert_eq!(
            told,
            [
                vec![(0, 10, 0..4), (1, 14, 64..128)],
                vec![(1, 78, 0..128)],
                vec![(1, 206, 0..8), (2, 214, 64..72)]
            ]
        );
        assert_eq!(loads[1][0].begin, 64);
        assert_eq!(pieces(&loads, 3), [1, 3, 1]);
    }

    #[test]
    fn files_are_read_from_their_beginning_to_their_end() {
        let loads = plan(&[extent(1, 0, 8), extent(0, 100, 8), extent(0, 0, 8)], 64);
        assert_eq!(
            loads
                .iter()
                .map(|load| (load[0].file, load[0].at))
                .collect::<Vec<_>>(),
            [(0, 0), (0, 100), (1, 0)]
        );
    }

    #[test]
    fn nothing_needs_no_buffer() {
        assert!(plan(&[], 64).is_empty() && plan(&[extent(0, 5, 0)], 64).is_empty());
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_place_and_no_element_is_cut(
            tensors in prop::collection::vec((0usize..3, 0u64..9, 0u64..700), 0..20),
            size in (1usize..6).prop_map(|count| count * ALIGN),
        ) {
            // Tensors with elements of 8 bytes, one after the other, with gaps that put them at
            // unaligned places.
            let mut end = [0; 3];
            let place = |(file, gap, elements): (usize, u64, u64)| {
                let begin = end[file] + gap;
                end[file] = begin + 8 * elements;
                extent(file, begin, 8 * elements)
            };
            let extents: Vec<_> = tensors.into_iter().map(place).collect();
            let loads = plan(&extents, size);
            let mut found = vec![0; extents.len()];
            for load in &loads {
                prop_assert!(!load.is_empty());
                let mut used = 0;
                for piece in load {
                    let extent = &extents[piece.tensor];
                    prop_assert_eq!((piece.file, piece.at), (extent.file, extent.bytes.start + piece.begin));
                    // The pieces are in order, do not overlap inside the buffer, and leave no hole
                    // in the tensor.
                    prop_assert!(piece.buffer.start >= used && piece.buffer.end <= size && !piece.buffer.is_empty());
                    prop_assert!(piece.buffer.start.is_multiple_of(ALIGN) && piece.buffer.len().is_multiple_of(8));
                    prop_assert_eq!(piece.begin, found[piece.tensor]);
                    used = piece.buffer.end;
                    found[piece.tensor] += piece.buffer.len() as u64;
                }
            }
            let lengths: Vec<_> = extents.iter().map(|extent| extent.bytes.end - extent.bytes.start).collect();
            prop_assert_eq!(found, lengths);
        }
    }
}
