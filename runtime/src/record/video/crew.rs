//! The encoder threads: each owns some of the videos and handles the recorder's events in order.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

use jobs::layout::RunFolder;

use crate::env::{EnvSpec, Frame, ImageSize};
use crate::record::lane::Closed;
use crate::record::recorder::{Answer, Event, EventKind, Route};
use crate::record::video::film::{Fault, Film};
use crate::record::video::track::Track;
use crate::record::{GridPlan, RecordError, VideoPlan};

/// The videos of one thread: the tracks by environment, and grids.
#[derive(Default)]
pub(in crate::record) struct Coder {
    tracks: BTreeMap<usize, Track>,
    grids: Vec<GridVideo>,
}

/// Distributes the videos to threads: one for each file, but no more than there are cores. Returns
/// them with those that each environment needs.
pub(in crate::record) fn start(
    plan: &VideoPlan,
    env: &EnvSpec,
    folder: &RunFolder,
) -> Result<(Vec<Coder>, Vec<Route>), RecordError> {
    plan.prepare(env)?;
    let num_envs = plan.stems.len();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.clamp(1, (num_envs + plan.grids.len()).max(1));
    let mut coders: Vec<_> = (0..threads).map(|_| Coder::default()).collect();
    let mut routes = Vec::new();
    for (env, stem) in plan.stems.iter().enumerate() {
        let track = Track::new(plan, stem, folder);
        coders[env % threads].tracks.insert(env, track);
        routes.push(vec![(env % threads, true)]);
    }
    for (number, grid) in plan.grids.iter().enumerate() {
        let thread = (num_envs + number) % threads;
        coders[thread].grids.push(GridVideo::new(plan, grid));
        for env in &grid.envs {
            if !routes[*env].contains(&(thread, true)) {
                routes[*env].push((thread, true));
            }
        }
    }
    Ok((coders, routes))
}

impl Coder {
    /// Runs until the recorder closes the channel, then closes the files.
    pub(in crate::record) fn run(
        mut self,
        inbox: Receiver<Event>,
        answers: &Sender<Answer>,
    ) -> Closed {
        for event in inbox {
            if let Some(answer) = self.on(event) {
                // The receiver is gone after the recorder has closed.
                answers.send(answer).ok();
            }
        }
        let tracks = self.tracks.into_values().map(Track::finish);
        let closed = tracks.chain(self.grids.into_iter().map(GridVideo::finish));
        closed.fold(Closed::default(), Closed::and)
    }

    fn on(&mut self, event: Event) -> Option<Answer> {
        let Event { env, images, what } = event;
        if !images.is_empty() {
            self.grids
                .iter_mut()
                .for_each(|grid| grid.push(env.0, &images));
        }
        let track = self.tracks.get_mut(&env.0)?;
        match what {
            EventKind::Begin(meta, _) => {
                track.begin(meta.episode);
                track.push(&images);
            }
            EventKind::Step(_) => track.push(&images),
            EventKind::Discard => track.discard(),
            EventKind::End { ticket, end } => {
                let written = track.end(end.success);
                return Some(Answer { ticket, written });
            }
        }
        None
    }
}

/// Maximum height and width of a grid: environments are scaled down rather than exceed what players
/// decode.
const LARGEST: ImageSize = ImageSize {
    height: 1080,
    width: 1920,
};

/// The grid video of one worker: all its environments in one image, row by row.
///
/// ```text
/// ┌───────┬───────┐   Every image of every environment is shown once. A frame is written when an
/// │ env 0 │ env 1 │   environment has its next image while the one before is not shown yet. The
/// ├───────┼───────┤   others keep their last image meanwhile, or black before the first. So time
/// │ env 2 │       │   runs as fast as in the fastest environment.
/// └───────┴───────┘
/// ```
struct GridVideo {
    film: Film,
    /// The environment in each cell.
    envs: Vec<usize>,
    /// For each cell, whether it has an image that no frame has shown.
    fresh: Vec<bool>,
    fault: Option<Fault>,
}

impl GridVideo {
    /// Creates the grid that `grid` describes, without a file.
    fn new(plan: &VideoPlan, grid: &GridPlan) -> Self {
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
    fn push(&mut self, env: usize, pictures: &BTreeMap<String, Frame>) {
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
    fn finish(mut self) -> Closed {
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
