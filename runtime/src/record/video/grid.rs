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

use crate::env::{Frame, ImageSize};
use crate::record::closed::ThreadResult;
use crate::record::video::film::{FilmError, VideoEncoder};
use crate::record::video::h264::Rate;
use crate::record::video::tile::Tiling;
use crate::record::{CameraSize, GridPlan, RecordError, VideoPlan};

/// Maximum height and width of a grid: environments are scaled down rather than exceed what players
/// decode.
const LARGEST: ImageSize = ImageSize {
    height: 1080,
    width: 1920,
};

/// The grid video of one worker.
pub(super) struct GridVideo {
    dir: PathBuf,
    stem: String,
    cameras: Vec<String>,
    size: CameraSize,
    rate: Rate,
    /// For each cell, whether it has an image that no frame has shown.
    fresh: Vec<bool>,
    open: Option<OpenGrid>,
    fault: Option<FilmError>,
}

struct OpenGrid {
    tiling: Tiling,
    canvas: Vec<u8>,
    /// Bytes in a row of the canvas.
    stride: usize,
    film: VideoEncoder,
}

impl GridVideo {
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

    /// Shows the remaining images and closes the file.
    pub(super) fn finish(mut self) -> ThreadResult {
        if self.fault.is_none() && self.fresh.contains(&true) {
            self.fault = self.show().err();
        }
        let path = self.path();
        let closed = self.open.map_or(Ok(None), |open| open.film.close());
        match (self.fault, closed) {
            (Some(FilmError::File { reason }), _) => {
                ThreadResult::of(Err(RecordError::file(&path, reason)))
            }
            (_, Err(err)) => ThreadResult::of(Err(err)),
            (fault, Ok(note)) => {
                let warning =
                    fault.map(|fault| format!("warning: `{}` ends early: {fault}", path.display()));
                ThreadResult {
                    notes: warning.into_iter().chain(note).collect(),
                    result: Ok(()),
                }
            }
        }
    }

    fn try_push(
        &mut self,
        cell: usize,
        pictures: &BTreeMap<String, Frame>,
    ) -> Result<(), FilmError> {
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
            tiling.draw_at(pictures, &mut canvas[at..], *stride)?;
        }
        self.fresh[cell] = true;
        Ok(())
    }

    fn show(&mut self) -> Result<(), FilmError> {
        self.fresh.fill(false);
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.film
            .push(&open.canvas, &self.dir, &self.stem)
            .map(drop)
    }

    fn begin(&self, pictures: &BTreeMap<String, Frame>) -> Result<OpenGrid, FilmError> {
        let GridShape { rows, columns } = GridShape::of(self.fresh.len());
        let whole = Tiling::of(&self.cameras, pictures, |from| self.size.of(from))?;
        let all = ImageSize {
            height: u32::try_from(whole.height * rows).unwrap_or(u32::MAX),
            width: u32::try_from(whole.width * columns).unwrap_or(u32::MAX),
        };
        let tiling = Tiling::of(&self.cameras, pictures, |from| {
            shrink(self.size.of(from), all)
        })?;
        let (height, stride) = (tiling.height * rows, tiling.width * columns * 3);
        let film = VideoEncoder::new(height, tiling.width * columns, self.rate)?;
        Ok(OpenGrid {
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

/// Returns the size of one camera at which a grid that would have the size `all` is no larger than
/// [`LARGEST`].
fn shrink(camera: ImageSize, all: ImageSize) -> ImageSize {
    if all.height <= LARGEST.height && all.width <= LARGEST.width {
        return camera;
    }
    let [height, width, tall, wide] =
        [all.height, all.width, LARGEST.height, LARGEST.width].map(u64::from);
    // The side that exceeds the limit by the larger factor decides.
    let (part, of) = if height * wide > width * tall {
        (tall, height)
    } else {
        (wide, width)
    };
    let scaled = |side: u32| (u64::from(side) * part / of).max(1) as u32;
    ImageSize {
        height: scaled(camera.height),
        width: scaled(camera.width),
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

    #[test]
    fn a_grid_that_is_too_large_keeps_its_shape() {
        let size = |height, width| ImageSize { height, width };
        assert_eq!(shrink(size(224, 224), size(448, 896)), size(224, 224));
        assert_eq!(shrink(size(960, 960), size(1920, 3840)), size(480, 480));
        assert_eq!(shrink(size(960, 960), size(2160, 960)), size(480, 480));
    }
}
