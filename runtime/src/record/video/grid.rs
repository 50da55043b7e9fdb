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
use crate::record::video::film::{Fault, Film};
use crate::record::{GridPlan, VideoPlan};

/// Maximum height and width of a grid: environments are scaled down rather than exceed what players
/// decode.
const LARGEST: ImageSize = ImageSize {
    height: 1080,
    width: 1920,
};

/// The grid video of one worker.
pub(super) struct GridVideo {
    film: Film,
    /// The environment in each cell.
    envs: Vec<usize>,
    /// For each cell, whether it has an image that no frame has shown.
    fresh: Vec<bool>,
    fault: Option<Fault>,
}

impl GridVideo {
    /// Creates the grid that `grid` describes, without a file.
    pub(super) fn new(plan: &VideoPlan, grid: &GridPlan) -> Self {
        let envs = grid.envs.len();
        let mut film = plan.film(&grid.stem, envs);
        (film.grid, film.limit) = (shape(envs), LARGEST);
        Self {
            film,
            envs: grid.envs.clone(),
            fresh: vec![false; envs],
            fault: None,
        }
    }

    /// Sets the new images of an environment, if it is in the grid.
    pub(super) fn push(&mut self, env: usize, pictures: &BTreeMap<String, Frame>) {
        let cell = self.envs.iter().position(|other| *other == env);
        if let (Some(cell), None) = (cell, &self.fault) {
            self.fault = self.try_push(cell, pictures).err();
        }
    }

    fn try_push(&mut self, cell: usize, pictures: &BTreeMap<String, Frame>) -> Result<(), Fault> {
        if self.fresh[cell] {
            self.fresh.fill(false);
            self.film.show()?;
        }
        self.film.draw(cell, pictures)?;
        self.fresh[cell] = true;
        Ok(())
    }

    /// Shows the remaining images and closes the file.
    pub(super) fn finish(mut self) -> Closed {
        if self.fault.is_none() && self.fresh.contains(&true) {
            self.fault = self.film.show().err();
        }
        let mut closed = Closed::of(self.film.close());
        match self.fault {
            Some(Fault::File(err)) => closed.result = Err(err),
            Some(Fault::Images(reason)) => {
                let path = self.film.path.display();
                let note = format!("warning: `{path}` ends early: {reason}");
                closed.notes.push(note);
            }
            None => {}
        }
        closed
    }
}

/// Returns the rows and columns of a grid, which is at least as wide as high.
fn shape(envs: usize) -> (usize, usize) {
    let rows = envs.isqrt().max(1);
    (rows, envs.div_ceil(rows).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_as_wide_as_high_or_wider() {
        assert_eq!(
            [1, 2, 3, 4, 5, 8, 9].map(shape),
            [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (3, 3)]
        );
    }
}
