//! The layout of the memory that is shared with one child.
//!
//! ```text
//! copy now, call now | copy 0: action, state, images | copy 1 …
//! ```
//!
//! The process counts the places in the same way (`rrun_worker.py`).

use std::ops::Range;

use crate::env::python::hello::Hello;
use crate::python::memory::Places;

/// Maximum bytes of shared memory of one child.
const MOST_BYTES: usize = 64 << 30;
/// Maximum bytes of one observation, which is read at once: five images of the largest size.
const LARGEST_OBSERVATION: usize = 1 << 30;

/// Byte range of the copy that the child is working on and of the call that it is in, each a `u32`.
pub const CALL_NOW: Range<usize> = 0..8;

/// Bytes before the first copy.
const LINE: usize = 64;

/// Byte ranges in the memory of one child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLayout {
    /// Size of the memory in bytes.
    pub bytes: usize,
    /// Size of a copy, and of its numbers, which precede its images.
    copy: usize,
    numbers: usize,
    /// Byte range within a copy, like the two fields below.
    action: Range<usize>,
    cameras: Vec<Range<usize>>,
    states: Vec<Range<usize>>,
    /// The first observation of an episode that the copy has begun by itself.
    next_states: Vec<Range<usize>>,
}

impl MemoryLayout {
    /// Computes the layout of `copies` copies.
    ///
    /// # Errors
    /// Returns the required size, as a clause about the child, if it exceeds a limit.
    pub fn new(hello: &Hello, copies: usize) -> Result<Self, String> {
        let mut free = Places::default();
        let pixels = |height: u32, width: u32| height as usize * width as usize * 3;
        let action = free.take(hello.action.names.len() * 4);
        let mut states = || -> Vec<_> {
            let lengths = hello.state.iter().map(|(_, length)| length * 4);
            lengths.map(|bytes| free.take(bytes)).collect()
        };
        let (states, next_states) = (states(), states());
        let numbers = free.0;
        let cameras = hello
            .cameras
            .iter()
            .map(|&(_, height, width)| free.take(pixels(height, width)))
            .collect();
        let copy = free.0;
        if copy > LARGEST_OBSERVATION {
            return Err(format!(
                "shows {copy} bytes at once, expected at most {LARGEST_OBSERVATION}"
            ));
        }
        let needed = copy as u128 * copies as u128 + LINE as u128;
        if needed > MOST_BYTES as u128 {
            let found = format!("needs {needed} bytes of shared memory for {copies} copies");
            return Err(format!("{found}, expected at most {MOST_BYTES}"));
        }
        Ok(Self {
            bytes: LINE + copy * copies,
            copy,
            numbers,
            action,
            cameras,
            states,
            next_states,
        })
    }

    /// Returns the byte range of a copy, which begins with its action; without its images unless
    /// `pictures`.
    pub fn copy(&self, local: usize, pictures: bool) -> Range<usize> {
        let begin = LINE + self.copy * local;
        begin..begin + if pictures { self.copy } else { self.numbers }
    }

    /// Returns the byte range of the action within a copy.
    pub fn action(&self) -> Range<usize> {
        self.action.clone()
    }

    /// Returns the byte ranges of the images within a copy, in the order of the cameras.
    pub fn cameras(&self) -> impl Iterator<Item = Range<usize>> {
        self.cameras.iter().cloned()
    }

    /// Returns the byte ranges of the state vectors within a copy, in order.
    pub fn states(&self) -> &[Range<usize>] {
        &self.states
    }

    /// Like [`MemoryLayout::states`], for the first observation of an episode that the copy has
    /// begun by itself.
    pub fn next_states(&self) -> &[Range<usize>] {
        &self.next_states
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::env::python::hello::{Hello, tests::hello};

    fn shows(cameras: &[(u32, u32)], states: &[usize], dim: usize) -> Hello {
        let cameras = cameras
            .iter()
            .enumerate()
            .map(|(index, (h, w))| (format!("c{index}"), *h, *w))
            .collect();
        let state = states
            .iter()
            .enumerate()
            .map(|(index, length)| (format!("s{index}"), *length))
            .collect();
        let mut hello = Hello {
            cameras,
            state,
            ..Hello::new(hello().to_string().as_bytes()).unwrap()
        };
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
            let layout = MemoryLayout::new(&shows(&cameras, &states, dim), copies).unwrap();
            let words = 0..8;
            let mut ranges = vec![words];
            for copy in 0..copies {
                let (whole, numbers) = (layout.copy(copy, true), layout.copy(copy, false));
                prop_assert_eq!(layout.action(), 0..dim * 4);
                let vectors = layout.states().iter().chain(layout.next_states()).cloned();
                let parts = vectors.chain([layout.action()]).chain(layout.cameras());
                ranges.extend(parts.map(|part| whole.start + part.start..whole.start + part.end));
                prop_assert!(layout.next_states().iter().all(|part| part.end <= numbers.len()));
                prop_assert!(layout.cameras().all(|part| part.end <= whole.len()));
            }
            ranges.sort_by_key(|range| range.start);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(ranges.iter().all(|range| range.start % 64 == 0 && range.end <= layout.bytes));
        }
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let reason = MemoryLayout::new(&shows(&[(8192, 8192); 5], &[], 1), 4096).unwrap_err();
        assert!(
            reason.contains("for 4096 copies, expected at most"),
            "{reason}"
        );
        let reason = MemoryLayout::new(&shows(&[(8192, 8192); 6], &[], 1), 1).unwrap_err();
        assert_eq!(
            reason,
            "shows 1207959616 bytes at once, expected at most 1073741824"
        );
    }
}
