//! The encoder threads: each owns some of the videos and handles the recorder's events in order.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

use jobs::layout::RunFolder;

use crate::env::EnvSpec;
use crate::record::RecordError;
use crate::record::lane::Closed;
use crate::record::recorder::{Answer, Event, EventKind, Route};
use crate::record::video::grid::GridVideo;
use crate::record::video::plan::VideoPlan;
use crate::record::video::track::Track;

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
