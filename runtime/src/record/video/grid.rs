//! The grid video: all environments of one worker in one image, row by row.
//!
//! ```text
//! ┌───────┬───────┐   Every image of every environment is shown once. A frame is written when an
//! │ env 0 │ env 1 │   environment has its next image while the one before is not shown yet. The
//! ├───────┼───────┤   others keep their last image meanwhile, or black before the first. So time
//! │ env 2 │       │   runs as fast as in the fastest environment.
//! └───────┴───────┘
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::env::Frame;
use crate::record::video::film::{Fault, Film};
use crate::record::video::h264::Rate;
use crate::record::video::tile::Tiling;
use crate::record::{CameraSize, GridPlan, VideoPlan};

/// Maximum height and width of a grid: environments are scaled down rather than exceed what players
/// decode.
const LARGEST: (u32, u32) = (1080, 1920);

/// The grid video of one worker.
pub(super) struct Grid {
    dir: PathBuf,
    stem: String,
    cameras: Vec<String>,
    size: CameraSize,
    rate: Rate,
    /// For each cell, whether it has an image that no frame has shown.
    fresh: Vec<bool>,
    open: Option<Open>,
    fault: Option<Fault>,
}

struct Open {
    tiling: Tiling,
    canvas: Vec<u8>,
    /// Bytes in a row of the canvas.
    stride: usize,
    film: Film,
}

impl Grid {
    /// Creates the grid that `grid` describes, without a file.
    pub(super) fn new(plan: &VideoPlan, grid: &GridPlan) -> Self {
        Self {
            dir: plan.dir.clone(),
            stem: grid.stem.clone(),
            cameras: plan.cameras.clone(),
            size: plan.size,
            rate: plan.rate(grid.envs.len() as u32),
            fresh: vec![false; grid.envs.len()],
            open: None,
            fault: None,
        }
    }

    /// Sets the new images of the environment in `cell`.
    pub(super) fn push(&mut self, cell: usize, pictures: &BTreeMap<String, Frame>) {
        if pictures.is_empty() || self.fault.is_some() {
            return;
        }
        self.fault = self.try_push(cell, pictures).err();
    }

    /// Shows the remaining images and closes the file. Returns messages for the user.
    pub(super) fn finish(mut self) -> (Vec<String>, Result<(), String>) {
        if self.fault.is_none() && self.fresh.contains(&true) {
            self.fault = self.show().err();
        }
        let path = self.path();
        let closed = self.open.map_or(Ok(None), |open| open.film.close());
        match (self.fault, closed) {
            (Some(Fault::File(reason)), _) => {
                (Vec::new(), Err(format!("`{}`: {reason}", path.display())))
            }
            (_, Err(reason)) => (Vec::new(), Err(reason)),
            (Some(Fault::Picture(reason)), Ok(note)) => {
                let warning = format!("warning: `{}` ends early: {reason}", path.display());
                ([warning].into_iter().chain(note).collect(), Ok(()))
            }
            (None, Ok(note)) => (note.into_iter().collect(), Ok(())),
        }
    }

    fn try_push(&mut self, cell: usize, pictures: &BTreeMap<String, Frame>) -> Result<(), Fault> {
        if self.fresh[cell] {
            self.show()?;
        }
        if self.open.is_none() {
            self.open = Some(self.begin(pictures).map_err(Fault::Picture)?);
        }
        let columns = layout(self.fresh.len()).1;
        if let Some(Open {
            tiling,
            canvas,
            stride,
            ..
        }) = &mut self.open
        {
            let at = cell / columns * tiling.height * *stride + cell % columns * tiling.width * 3;
            tiling
                .draw_at(pictures, &mut canvas[at..], *stride)
                .map_err(Fault::Picture)?;
        }
        self.fresh[cell] = true;
        Ok(())
    }

    fn show(&mut self) -> Result<(), Fault> {
        self.fresh.fill(false);
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.film
            .push(&open.canvas, &self.dir, &self.stem)
            .map(drop)
    }

    fn begin(&self, pictures: &BTreeMap<String, Frame>) -> Result<Open, String> {
        let (rows, columns) = layout(self.fresh.len());
        let whole = Tiling::of(&self.cameras, pictures, |from| self.size.of(from))?;
        let all = ((whole.height * rows) as u64, (whole.width * columns) as u64);
        let tiling = Tiling::of(&self.cameras, pictures, |from| {
            shrink(self.size.of(from), all)
        })?;
        let (height, stride) = (tiling.height * rows, tiling.width * columns * 3);
        let film = Film::new(height, tiling.width * columns, self.rate)?;
        Ok(Open {
            tiling,
            canvas: vec![0; height * stride],
            stride,
            film,
        })
    }

    fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.mp4", self.stem))
    }
}

/// Returns rows and columns for `count` environments, at least as wide as high.
fn layout(count: usize) -> (usize, usize) {
    let rows = count.isqrt().max(1);
    (rows, count.div_ceil(rows).max(1))
}

/// Returns the size of one camera at which a grid of `all` rows and columns is no larger than
/// [`LARGEST`].
fn shrink((height, width): (u32, u32), all: (u64, u64)) -> (u32, u32) {
    let (tall, wide) = (u64::from(LARGEST.0), u64::from(LARGEST.1));
    if all.0 <= tall && all.1 <= wide {
        return (height, width);
    }
    // The side that exceeds the limit by the larger factor decides.
    let (part, of) = if all.0 * wide > all.1 * tall {
        (tall, all.0)
    } else {
        (wide, all.1)
    };
    let side = |side: u32| (u64::from(side) * part / of).max(1) as u32;
    (side(height), side(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_as_wide_as_high_or_wider() {
        assert_eq!(
            [1, 2, 3, 4, 5, 8, 9].map(layout),
            [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (3, 3)]
        );
    }

    #[test]
    fn a_grid_that_is_too_large_keeps_its_shape() {
        assert_eq!(shrink((224, 224), (448, 896)), (224, 224));
        assert_eq!(shrink((960, 960), (1920, 3840)), (480, 480));
        assert_eq!(shrink((960, 960), (2160, 960)), (480, 480));
    }
}
