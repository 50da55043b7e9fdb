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

use crate::env::EnvSpec;
use crate::policy::python::error::WorkerError;
use crate::python::memory::Places;

/// Most rows of one call; more are asked for in several calls.
const MAX_ROWS: usize = 256;
/// Most bytes of all blocks.
const MAX_BYTES: usize = 1 << 30;
/// Alignment of a block.
const LINE: usize = 64;
/// Alignment of the actions: the largest page of Linux on any machine of today.
const PAGE: usize = 1 << 16;

/// One block: its offset, and the bytes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BatchBlock {
    begin: usize,
    row_bytes: usize,
}

impl BatchBlock {
    /// Returns the place of one of the `steps` observations of a row.
    fn step(self, row: usize, step: usize, steps: usize) -> Range<usize> {
        let bytes = self.row_bytes / steps;
        let begin = self.begin + row * self.row_bytes + step * bytes;
        begin..begin + bytes
    }
}

/// The places of all blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BatchLayout {
    /// Most rows of one call.
    pub(super) rows: usize,
    /// Number of observations of a row: the current one, and those that the policy looks back to.
    steps: usize,
    /// Size of the memory.
    pub(super) bytes: usize,
    cameras: Vec<BatchBlock>,
    states: Vec<BatchBlock>,
    actions: BatchBlock,
}

impl BatchLayout {
    /// Computes the layout for chunks of `horizon` actions, and `steps` observations of each row.
    ///
    /// # Errors
    /// Returns [`WorkerError::Lost`] if not even one row has room.
    pub(super) fn new(
        env: &EnvSpec,
        needs_video: bool,
        horizon: usize,
        steps: usize,
    ) -> Result<Self, WorkerError> {
        let pictures = env.cameras.iter().filter(|_| needs_video);
        let pictures: Vec<usize> = pictures
            .map(|camera| steps * camera.height as usize * camera.width as usize * 3)
            .collect();
        let vectors: Vec<usize> = env
            .state
            .iter()
            .map(|(_, length)| steps * length * size_of::<f32>())
            .collect();
        let action = horizon * env.action.names.len() * size_of::<f32>();
        let row: usize = pictures.iter().chain(&vectors).sum::<usize>() + action;
        let padding = PAGE + LINE * (pictures.len() + vectors.len());
        let rows = (MAX_BYTES - padding.min(MAX_BYTES)) / row.max(1);
        if rows == 0 {
            return Err(WorkerError::Lost(format!(
                "a row takes {row} bytes, at most {MAX_BYTES} are possible"
            )));
        }
        let rows = rows.min(MAX_ROWS);
        let mut places = Places::default();
        let mut take = |row_bytes: usize| {
            let begin = places.take(rows * row_bytes).start;
            BatchBlock { begin, row_bytes }
        };
        let cameras = pictures.into_iter().map(&mut take).collect();
        let states = vectors.into_iter().map(&mut take).collect();
        // An environment may show nothing, and an empty part cannot be mapped.
        let begin = places.0.max(1).next_multiple_of(PAGE);
        let actions = BatchBlock {
            begin,
            row_bytes: action,
        };
        Ok(Self {
            rows,
            steps,
            bytes: begin + rows * action,
            cameras,
            states,
            actions,
        })
    }

    /// Returns the place of a row's picture of the `index`-th camera at one of its steps.
    pub(super) fn picture(&self, index: usize, row: usize, step: usize) -> Range<usize> {
        self.cameras[index].step(row, step, self.steps)
    }

    /// Returns the place of a row's vector of the `index`-th state at one of its steps.
    pub(super) fn state(&self, index: usize, row: usize, step: usize) -> Range<usize> {
        self.states[index].step(row, step, self.steps)
    }

    /// Returns the place of the actions of the first `rows` rows.
    pub(super) fn actions(&self, rows: usize) -> Range<usize> {
        let begin = self.actions.begin;
        begin..begin + rows * self.actions.row_bytes
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
            let mut ranges = Vec::new();
            for (row, step) in
                (0..layout.rows).flat_map(|row| (0..steps).map(move |step| (row, step)))
            {
                ranges.extend((0..sizes.len()).map(|index| layout.picture(index, row, step)));
                ranges.extend((0..8).map(|index| layout.state(index, row, step)));
            }
            ranges.push(layout.actions(layout.rows));
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert_eq!(ranges.last().unwrap().end, layout.bytes);
            assert_eq!(layout.actions(1).start % PAGE, 0);
            assert!((0..8).all(|index| layout.state(index, 0, 0).start.is_multiple_of(LINE)));
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
        let refusal = BatchLayout::new(&env(&[(30_000, 30_000)]), true, 1, 1).unwrap_err();
        assert!(
            refusal.to_string().starts_with("a row takes 2700000"),
            "{refusal}"
        );
        assert!(BatchLayout::new(&env(&[(30_000, 30_000)]), false, 1, 1).is_ok());
    }
}
