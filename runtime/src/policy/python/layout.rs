//! Where observations and actions of a call are in shared memory: each camera and each state has a
//! block `[rows, …]`, so that the worker sees the batch as one array. The row of a policy that looks
//! back has an observation for each step, the oldest first.
//!
//! ```text
//! camera [rows, steps, height, width, 3] uint8 │ … │ state [rows, steps, n] float32 │ … ║ actions [rows, horizon, action] float32
//! ```
//! The worker counts the places in the same way, and maps the part before `║` for reading only.
//! Pages that no call has used take no memory.

use std::ops::Range;

use crate::env::{EnvSpec, ImageSize};
use crate::python::memory::Places;

/// Most rows of one call; more are asked for in several calls.
const MAX_ROWS: usize = 256;
/// Most bytes of all blocks.
const MAX_BYTES: usize = 1 << 30;
/// Alignment of a block.
const LINE: usize = 64;
/// Alignment of the actions: the largest page of Linux on any machine of today.
const PAGE: usize = 1 << 16;

/// The observations of one camera or state: where they begin, and the bytes of each.
#[derive(Clone, Copy)]
pub(super) struct BatchBlock {
    begin: usize,
    bytes: usize,
}

impl BatchBlock {
    /// Returns the offset of the `index`-th observation of all rows.
    pub(super) fn at(self, index: usize) -> usize {
        self.begin + index * self.bytes
    }
}

/// The places of all blocks.
pub(super) struct BatchLayout {
    /// Most rows of one call.
    pub(super) rows: usize,
    /// Number of observations of a row: the current one, and those that the policy looks back to.
    pub(super) steps: usize,
    /// Size of the memory.
    pub(super) bytes: usize,
    pub(super) cameras: Vec<BatchBlock>,
    pub(super) states: Vec<BatchBlock>,
    /// The chunks of the rows.
    chunks: BatchBlock,
}

impl BatchLayout {
    /// Computes the layout for chunks of `horizon` actions, and `steps` observations of each row.
    ///
    /// # Errors
    /// Returns the size of a row of which not even one has room.
    pub(super) fn new(
        env: &EnvSpec,
        needs_video: bool,
        horizon: usize,
        steps: usize,
    ) -> Result<Self, String> {
        let pictures = env.cameras.iter().filter(|_| needs_video).map(|camera| {
            let (height, width) = (camera.height, camera.width);
            ImageSize { height, width }.rgb_bytes()
        });
        let pictures: Vec<usize> = pictures.collect();
        let lengths = env.state.iter().map(|(_, length)| length);
        let vectors: Vec<usize> = lengths.map(|length| length * size_of::<f32>()).collect();
        let chunk = horizon * env.action.names.len() * size_of::<f32>();
        let row = steps * pictures.iter().chain(&vectors).sum::<usize>() + chunk;
        let padding = PAGE + LINE * (pictures.len() + vectors.len());
        let rows = (MAX_BYTES - padding.min(MAX_BYTES)) / row.max(1);
        if rows == 0 {
            return Err(format!(
                "a row takes {row} bytes, at most {MAX_BYTES} are possible"
            ));
        }
        let rows = rows.min(MAX_ROWS);
        let mut places = Places::default();
        let mut take = |bytes: usize| {
            let begin = places.take(rows * steps * bytes).start;
            BatchBlock { begin, bytes }
        };
        let cameras = pictures.into_iter().map(&mut take).collect();
        let states = vectors.into_iter().map(&mut take).collect();
        // An environment may show nothing, and an empty part cannot be mapped.
        let begin = places.0.max(1).next_multiple_of(PAGE);
        Ok(Self {
            rows,
            steps,
            bytes: begin + rows * chunk,
            cameras,
            states,
            chunks: BatchBlock {
                begin,
                bytes: chunk,
            },
        })
    }

    /// Returns the place of the actions of the first `rows` rows.
    pub(super) fn actions(&self, rows: usize) -> Range<usize> {
        self.chunks.begin..self.chunks.at(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::CameraSpec;
    use crate::policy::tests::env_spec;

    fn env(sizes: &[(u32, u32)]) -> EnvSpec {
        let camera = |(index, size): (usize, &(u32, u32))| CameraSpec {
            name: format!("c{index}"),
            height: size.0,
            width: size.1,
        };
        let mut env = env_spec();
        env.cameras = sizes.iter().enumerate().map(camera).collect();
        env
    }

    #[test]
    fn nothing_overlaps_and_all_is_aligned_and_inside() {
        for (sizes, horizon, steps) in [(&[(5, 7), (224, 224)][..], 3, 2), (&[][..], 4096, 1)] {
            let layout = BatchLayout::new(&env(sizes), true, horizon, steps).unwrap();
            let blocks = layout.cameras.iter().chain(&layout.states);
            let ranges = blocks.flat_map(|block| {
                (0..layout.rows * steps).map(|index| block.at(index)..block.at(index + 1))
            });
            let mut ranges: Vec<_> = ranges.collect();
            ranges.push(layout.actions(layout.rows));
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert_eq!(ranges.last().unwrap().end, layout.bytes);
            assert_eq!(layout.actions(1).start % PAGE, 0);
            assert!(
                layout
                    .states
                    .iter()
                    .all(|block| block.begin.is_multiple_of(LINE))
            );
        }
    }

    #[test]
    fn there_are_fewer_rows_of_large_pictures_and_no_room_for_huge_ones() {
        let layout = BatchLayout::new(&env(&[(2048, 2048)]), true, 1, 1).unwrap();
        assert!(
            layout.rows < MAX_ROWS && layout.bytes <= MAX_BYTES,
            "{}",
            layout.rows
        );
        let refusal = BatchLayout::new(&env(&[(30_000, 30_000)]), true, 1, 1)
            .err()
            .unwrap();
        assert!(refusal.starts_with("a row takes 2700000"), "{refusal}");
        assert!(BatchLayout::new(&env(&[(30_000, 30_000)]), false, 1, 1).is_ok());
    }
}
