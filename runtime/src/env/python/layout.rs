//! Where everything is in the memory that is shared with one child.
//!
//! ```text
//! copy now, call now | copy 0: action | slot 0: pictures, state | slot 1 … | copy 1 …
//! ```
//!
//! Every part begins at a multiple of 64 bytes: a cache line, and more than any number needs.

use std::ops::Range;

use serde_json::{Value, json};

use super::hello::Hello;

/// Slots of a copy: what a loop, a policy that looks back and the recorder's queue hold at the same time, and one that
/// is written. If all are held, pictures are copied out. A slot that is never used costs no memory.
pub const SLOTS: u8 = 6;

/// Bytes of shared memory of one child, at most.
const MOST_BYTES: usize = 64 << 30;

/// Byte offset of the copy that a child is busy with.
pub const COPY_NOW: usize = 0;
/// Byte offset of what it is calling.
pub const CALL_NOW: usize = 4;

const LINE: usize = 64;

/// Byte ranges in one child's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of the memory.
    pub bytes: usize,
    /// Size of an action, of a slot, and of a copy with both.
    action: usize,
    slot: usize,
    copy: usize,
    /// Within a slot.
    cameras: Vec<Range<usize>>,
    /// Within a slot: offset, and length in numbers.
    states: Vec<(usize, usize)>,
}

impl Layout {
    /// Lays out `copies` copies.
    ///
    /// # Errors
    /// The size that would be needed, as a clause, if it is out of proportion.
    pub fn new(hello: &Hello, copies: usize) -> Result<Self, String> {
        let mut slot = Cursor(0);
        let pixels = |height: u32, width: u32| height as usize * width as usize * 3;
        let cameras = hello.cameras.iter().map(|&(_, height, width)| slot.take(pixels(height, width))).collect();
        let states = hello.state.iter().map(|&(_, length)| (slot.take(length * 4).start, length)).collect();
        let action = (hello.action.names.len() * 4).next_multiple_of(LINE);
        let copy = slot.0 * usize::from(SLOTS) + action;
        let needed = copy as u128 * copies as u128 + LINE as u128;
        if needed > MOST_BYTES as u128 {
            return Err(format!(
                "{copies} copies need {needed} bytes of shared memory, at most {MOST_BYTES} are given"
            ));
        }
        Ok(Self { bytes: LINE + copy * copies, action, slot: slot.0, copy, cameras, states })
    }

    /// Offset of a copy's action.
    pub fn action(&self, local: usize) -> usize {
        LINE + self.copy * local
    }

    fn begin(&self, local: usize, slot: u8) -> usize {
        self.action(local) + self.action + self.slot * usize::from(slot)
    }

    /// Pictures in a slot, in the order of the cameras.
    pub fn cameras(&self, local: usize, slot: u8) -> impl Iterator<Item = Range<usize>> {
        let begin = self.begin(local, slot);
        self.cameras.iter().map(move |range| begin + range.start..begin + range.end)
    }

    /// State vectors in a slot as offset and number of numbers, in their order.
    pub fn states(&self, local: usize, slot: u8) -> impl Iterator<Item = (usize, usize)> {
        let begin = self.begin(local, slot);
        self.states.iter().map(move |(offset, length)| (begin + offset, *length))
    }

    /// As the child reads it.
    pub fn to_json(&self) -> Value {
        let cameras: Vec<_> = self.cameras.iter().map(|range| range.start).collect();
        let states: Vec<_> = self.states.iter().map(|(offset, _)| *offset).collect();
        json!({
            "bytes": self.bytes, "begin": LINE, "copy": self.copy, "action": self.action, "slot": self.slot,
            "slots": SLOTS, "cameras": cameras, "states": states,
        })
    }
}

/// The first byte that is free.
struct Cursor(usize);

impl Cursor {
    fn take(&mut self, bytes: usize) -> Range<usize> {
        let begin = self.0;
        self.0 = (begin + bytes).next_multiple_of(LINE);
        begin..begin + bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::hello::{Hello, tests::hello};
    use super::*;

    fn shows(cameras: &[(u32, u32)], states: &[usize], dim: usize) -> Hello {
        let cameras = cameras.iter().enumerate().map(|(index, (h, w))| (format!("c{index}"), *h, *w)).collect();
        let state = states.iter().enumerate().map(|(index, length)| (format!("s{index}"), *length)).collect();
        let mut hello = Hello { cameras, state, ..Hello::new(hello()).unwrap() };
        hello.action.names = vec![String::new(); dim];
        hello
    }

    proptest! {
        #[test]
        fn nothing_overlaps_and_all_is_aligned_and_inside(
            cameras in prop::collection::vec((1u32..50, 1u32..50), 0..4),
            states in prop::collection::vec(1usize..100, 0..4),
            dim in 1usize..40, copies in 1usize..6,
        ) {
            let layout = Layout::new(&shows(&cameras, &states, dim), copies).unwrap();
            let words = 0..8;
            let mut ranges = vec![words];
            for copy in 0..copies {
                ranges.push(layout.action(copy)..layout.action(copy) + dim * 4);
                for slot in 0..SLOTS {
                    ranges.extend(layout.cameras(copy, slot));
                    ranges.extend(layout.states(copy, slot).map(|(begin, length)| begin..begin + length * 4));
                }
            }
            ranges.sort_by_key(|range| range.start);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(ranges.iter().all(|range| range.start % 64 == 0 && range.end <= layout.bytes));
        }
    }

    #[test]
    fn the_child_is_told_offsets() {
        let layout = Layout::new(&shows(&[(4, 5)], &[3], 2), 1).unwrap();
        let wanted = json!({
            "bytes": 896, "begin": 64, "copy": 832, "action": 64, "slot": 128, "slots": 6, "cameras": [0], "states": [64],
        });
        assert_eq!(layout.to_json(), wanted);
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let reason = Layout::new(&shows(&[(8192, 8192); 8], &[], 1), 4096).unwrap_err();
        assert!(reason.contains("4096 copies need"), "{reason}");
    }
}
