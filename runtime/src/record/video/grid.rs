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

use crate::env::{Frame, ImageSize};
use crate::record::lane::Closed;
use crate::record::video::film::{Fault, Film, Place};
use crate::record::video::h264::Rate;
use crate::record::video::plan::fit;
use crate::record::video::tile::Tiling;
use crate::record::{CameraSize, GridPlan, VideoPlan};

/// Maximum height and width of a grid: environments are scaled down rather than exceed what players
/// decode.
const LARGEST: ImageSize = ImageSize {
    height: 1080,
    width: 1920,
};

/// The grid video of one worker.
pub(super) struct GridVideo {
    place: Place,
    cameras: Vec<String>,
    size: CameraSize,
    rate: Rate,
    /// For each cell, whether it has an image that no frame has shown.
    fresh: Vec<bool>,
    open: Option<OpenGrid>,
    fault: Option<Fault>,
}

struct OpenGrid {
    tiling: Tiling,
    canvas: Vec<u8>,
    /// Bytes in a row of the canvas.
    stride: usize,
    film: Film,
}

impl GridVideo {
    /// Creates the grid that `grid` describes, without a file.
    pub(super) fn new(plan: &VideoPlan, grid: &GridPlan) -> Self {
        Self {
            place: plan.place(&grid.stem),
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

    /// Shows the remaining images and closes the file.
    pub(super) fn finish(mut self) -> Closed {
        if self.fault.is_none() && self.fresh.contains(&true) {
            self.fault = self.show().err();
        }
        let closed = self.open.map_or(Ok(()), |open| open.film.close());
        let path = self.place.path();
        match self.fault {
            Some(Fault::File(err)) => Closed::of(Err(err)),
            Some(Fault::Images(reason)) => Closed {
                notes: vec![format!(
                    "warning: `{}` ends early: {reason}",
                    path.display()
                )],
                result: closed,
            },
            None => Closed::of(closed),
        }
    }

    fn try_push(&mut self, cell: usize, pictures: &BTreeMap<String, Frame>) -> Result<(), Fault> {
        if self.fresh[cell] {
            self.show()?;
        }
        if self.open.is_none() {
            self.open = Some(self.begin(pictures)?);
        }
        let columns = GridShape::of(self.fresh.len()).columns;
        if let Some(OpenGrid {
            tiling,
            canvas,
            stride,
            ..
        }) = &mut self.open
        {
            let at = cell / columns * tiling.height * *stride + cell % columns * tiling.width * 3;
            let drawn = tiling.draw_at(pictures, &mut canvas[at..], *stride);
            drawn.map_err(Fault::Images)?;
        }
        self.fresh[cell] = true;
        Ok(())
    }

    fn show(&mut self) -> Result<(), Fault> {
        self.fresh.fill(false);
        match &mut self.open {
            Some(open) => open.film.push(&open.canvas).map(drop),
            None => Ok(()),
        }
    }

    fn begin(&self, pictures: &BTreeMap<String, Frame>) -> Result<OpenGrid, Fault> {
        let GridShape { rows, columns } = GridShape::of(self.fresh.len());
        let tiling = |size: &dyn Fn(ImageSize) -> ImageSize| {
            let tiling = Tiling::of(&self.cameras, pictures, |from| size(self.size.of(from)));
            tiling.map_err(Fault::Images)
        };
        let whole = tiling(&|size| size)?;
        let all = ImageSize {
            height: u32::try_from(whole.height * rows).unwrap_or(u32::MAX),
            width: u32::try_from(whole.width * columns).unwrap_or(u32::MAX),
        };
        let tiling = tiling(&|size| fit(size, all, LARGEST))?;
        let (height, stride) = (tiling.height * rows, tiling.width * columns * 3);
        let size = (height, tiling.width * columns);
        let film = Film::new(size, self.rate, self.place.clone())?;
        Ok(OpenGrid {
            tiling,
            canvas: vec![0; height * stride],
            stride,
            film,
        })
    }
}

/// The number of rows and columns of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GridShape {
    rows: usize,
    columns: usize,
}

impl GridShape {
    /// Returns the shape for `count` environments, at least as wide as high.
    fn of(count: usize) -> Self {
        let rows = count.isqrt().max(1);
        Self {
            rows,
            columns: count.div_ceil(rows).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_as_wide_as_high_or_wider() {
        assert_eq!(
            [1, 2, 3, 4, 5, 8, 9].map(GridShape::of),
            [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (3, 3)]
                .map(|(rows, columns)| GridShape { rows, columns })
        );
    }
}
