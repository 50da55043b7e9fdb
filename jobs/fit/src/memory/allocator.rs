//! Models libtorch's caching allocator of a GPU: how much memory it has reserved after tensors were
//! allocated and freed. Only sizes are modeled.
//!
//! ```text
//! take(bytes) ─► smallest free block that is large enough, split if enough is left ─┐
//!             └► else a new segment of the GPU, split likewise ─────────────────────┴─► Allocation
//! give(tensor) ─► free, merged with free neighbours in its segment; segments stay
//! ```
//! The reserved memory is far more than the tensors take at any time: a tensor that is larger than
//! every gap needs a new segment, however much memory is free in gaps. Source:
//! c10/cuda/CUDACachingAllocator.cpp, torch 2.11 (`round_size`, `get_allocation_size`,
//! `get_free_block`, `should_split`, `try_merge_blocks`).

/// Sizes are rounded up to a multiple of this many bytes (`kMinBlockSize`).
const ROUND: u64 = 512;

/// Tensors up to this many bytes are in segments for small tensors (`kSmallSize`). A block for a
/// larger tensor is split if more than this is left.
pub(super) const SMALL: u64 = 1 << 20;

/// Size of a segment for small tensors in bytes (`kSmallBuffer`).
const SMALL_SEGMENT: u64 = 2 << 20;

/// Size of a segment for a large tensor below [`OWN_SEGMENT`], in bytes (`kLargeBuffer`).
const LARGE_SEGMENT: u64 = 20 << 20;

/// From this many bytes on, a tensor gets a segment of its own size (`kMinLargeAlloc`).
const OWN_SEGMENT: u64 = 10 << 20;

/// The sizes of such segments are rounded up to a multiple of this many bytes (`kRoundLarge`).
const ROUND_SEGMENT: u64 = 2 << 20;

/// The segments that the allocator has reserved.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Allocator {
    segments: Vec<PoolSegment>,
    /// Number of tensors so far, which gives each tensor a name.
    names: u64,
}

/// A segment of adjacent blocks.
#[derive(Clone, Debug, PartialEq)]
struct PoolSegment {
    is_small: bool,
    blocks: Vec<PoolBlock>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct PoolBlock {
    bytes: u64,
    tensor: Option<u64>,
}

/// An allocated tensor; its memory is held until it is passed to [`Allocator::give`].
#[derive(Debug)]
#[must_use = "a tensor that nobody gives back is held for good"]
pub(super) struct Allocation {
    segment: usize,
    name: u64,
}

impl Allocator {
    /// Returns the reserved bytes.
    pub(super) fn reserved(&self) -> u64 {
        self.segments
            .iter()
            .flat_map(|segment| &segment.blocks)
            .map(|block| block.bytes)
            .sum()
    }

    /// Returns segments that are entirely free to the GPU (`empty_cache`).
    pub(super) fn release(&mut self) {
        for segment in self
            .segments
            .iter_mut()
            .filter(|segment| segment.blocks.iter().all(|block| block.tensor.is_none()))
        {
            // Tensors refer to segments by index, so the empty segment stays in the list.
            segment.blocks.clear();
        }
    }

    /// Allocates a tensor of this many bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Allocation {
        let bytes = bytes.max(1).next_multiple_of(ROUND);
        let is_small = bytes <= SMALL;
        let (segment, block) = self
            .best(bytes, is_small)
            .unwrap_or_else(|| self.grow(bytes, is_small));
        self.names += 1;
        self.segments[segment].cut(block, bytes, self.names);
        Allocation {
            segment,
            name: self.names,
        }
    }

    /// Frees tensors.
    pub(super) fn give(&mut self, tensors: impl IntoIterator<Item = Allocation>) {
        for Allocation { segment, name } in tensors {
            self.segments[segment].free(name);
        }
    }

    /// Allocates a tensor and frees it at once.
    pub(super) fn touch(&mut self, bytes: u64) {
        let tensor = self.take(bytes);
        self.give([tensor]);
    }

    /// Returns the smallest free block that is large enough; of several equal ones the first.
    fn best(&self, bytes: u64, is_small: bool) -> Option<(usize, usize)> {
        let mut best: Option<(u64, usize, usize)> = None;
        for (at, segment) in self
            .segments
            .iter()
            .enumerate()
            .filter(|(_, segment)| segment.is_small == is_small)
        {
            for (
                block,
                PoolBlock {
                    bytes: found,
                    tensor,
                },
            ) in segment.blocks.iter().enumerate()
            {
                if tensor.is_none()
                    && *found >= bytes
                    && best.is_none_or(|(least, ..)| *found < least)
                {
                    best = Some((*found, at, block));
                }
            }
        }
        best.map(|(_, segment, block)| (segment, block))
    }

    fn grow(&mut self, bytes: u64, is_small: bool) -> (usize, usize) {
        let bytes = match bytes {
            _ if is_small => SMALL_SEGMENT,
            bytes if bytes < OWN_SEGMENT => LARGE_SEGMENT,
            bytes => bytes.next_multiple_of(ROUND_SEGMENT),
        };
        self.segments.push(PoolSegment {
            is_small,
            blocks: vec![PoolBlock {
                bytes,
                tensor: None,
            }],
        });
        (self.segments.len() - 1, 0)
    }
}

impl PoolSegment {
    fn cut(&mut self, block: usize, bytes: u64, name: u64) {
        let left = self.blocks[block].bytes - bytes;
        let is_cut = if self.is_small {
            left >= ROUND
        } else {
            left > SMALL
        };
        self.blocks[block].tensor = Some(name);
        if is_cut {
            self.blocks[block].bytes = bytes;
            self.blocks.insert(
                block + 1,
                PoolBlock {
                    bytes: left,
                    tensor: None,
                },
            );
        }
    }

    fn free(&mut self, name: u64) {
        let Some(mut at) = self
            .blocks
            .iter()
            .position(|block| block.tensor == Some(name))
        else {
            return;
        };
        self.blocks[at].tensor = None;
        if at > 0 && self.blocks[at - 1].tensor.is_none() {
            at -= 1;
        }
        while self
            .blocks
            .get(at + 1)
            .is_some_and(|next| next.tensor.is_none())
        {
            self.blocks[at].bytes += self.blocks.remove(at + 1).bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn segments_are_of_two_twenty_and_even_mebibytes() {
        let reserved = |bytes: u64| {
            let mut allocator = Allocator::default();
            allocator.touch(bytes);
            allocator.reserved() / MIB
        };
        let found = [1, MIB, MIB + 1, 10 * MIB - ROUND, 10 * MIB, 11 * MIB + 1].map(reserved);
        assert_eq!(found, [2, 2, 20, 20, 10, 12]);
    }

    #[test]
    fn a_block_is_cut_and_joined_again() {
        let mut allocator = Allocator::default();
        let [a, b, c] = [8, 8, 3].map(|mib| allocator.take(mib * MIB));
        let blocks = allocator.segments[0].blocks.len();
        assert_eq!(blocks, 3, "1 MiB that is left is not worth a block");
        allocator.give([a, c, b]);
        assert_eq!(allocator.segments[0].blocks.len(), 1);
        assert_eq!(allocator.reserved(), 20 * MIB);
    }

    #[test]
    fn the_smallest_gap_that_is_large_enough_is_taken() {
        let mut allocator = Allocator::default();
        allocator.touch(90 * MIB);
        let tensors = [30, 2, 12, 2, 14, 30].map(|mib| allocator.take(mib * MIB));
        let [a, _b, c, _d, e, _f] = tensors;
        allocator.give([a, c, e]);
        let _tensor = allocator.take(13 * MIB);
        assert_eq!(allocator.segments[0].blocks[4].bytes, 14 * MIB);
        assert_eq!(allocator.reserved(), 90 * MIB);
        let _tensor = allocator.take(31 * MIB);
        // No gap is large enough, though 42 MiB are free.
        assert_eq!(allocator.reserved(), 122 * MIB);
    }

    #[test]
    fn what_is_free_as_a_whole_goes_back_to_the_card() {
        let mut allocator = Allocator::default();
        let [a, b, c] = [12, 4, 4].map(|mib| allocator.take(mib * MIB));
        allocator.give([a, b]);
        allocator.release();
        assert_eq!(allocator.reserved(), 20 * MIB, "a tensor holds its segment");
        allocator.give([c]);
        allocator.release();
        assert_eq!(allocator.reserved(), 0);
    }
}
