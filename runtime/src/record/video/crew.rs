//! The encoder threads: each owns some of the videos, of environments and grids, and handles the
//! recorder's events in order.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

use jobs::episode::VideoRef;
use jobs::layout::RunFolder;

use crate::env::{EnvSpec, Frame, ImageSize};
use crate::record::lane::Closed;
use crate::record::recorder::{Answer, Event, EventKind, Written};
use crate::record::video::mp4::Mp4;
use crate::record::video::{Fault, Film};
use crate::record::{RecordError, VideoPlan};

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
) -> Result<(Vec<Coder>, Vec<Vec<usize>>), RecordError> {
    plan.prepare(env)?;
    let num_envs = plan.stems.len();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.clamp(1, (num_envs + plan.grids.len()).max(1));
    let mut coders: Vec<_> = (0..threads).map(|_| Coder::default()).collect();
    let mut routes = Vec::new();
    for (env, stem) in plan.stems.iter().enumerate() {
        let track = Track::new(plan, stem, folder);
        coders[env % threads].tracks.insert(env, track);
        routes.push(vec![env % threads]);
    }
    for (number, (stem, envs)) in (num_envs..).zip(&plan.grids) {
        let thread = number % threads;
        coders[thread].grids.push(GridVideo::new(plan, stem, envs));
        for env in envs {
            if !routes[*env].contains(&thread) {
                routes[*env].push(thread);
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
            EventKind::Begin(episode) => {
                track.begin(episode);
                track.push(&images);
            }
            EventKind::Step => track.push(&images),
            EventKind::Discard => track.discard(),
            EventKind::End { ticket, success } => {
                let written = track.end(success);
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
    /// Creates the grid `stem` of these environments, without a file.
    fn new(plan: &VideoPlan, stem: &str, envs: &[usize]) -> Self {
        let mut film = plan.film(stem, envs.len());
        (film.grid, film.limit) = (shape(envs.len()), LARGEST);
        Self {
            film,
            envs: envs.to_vec(),
            fresh: vec![false; envs.len()],
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

/// The video of one environment: its cameras side by side, its episodes one after the other. On
/// request, a second file for each episode takes the same encoded images.
pub(super) struct Track {
    folder: RunFolder,
    film: Film,
    stem: String,
    per_episode: bool,
    fault: Option<Fault>,
    /// Number of the current episode.
    episode: u64,
    first_frame: u64,
    /// The current episode's own file.
    own: Option<Mp4>,
    /// Warning that the video is lost, until it is reported.
    warning: Option<String>,
}

impl Track {
    /// Creates the video `stem`, without a file.
    pub(super) fn new(plan: &VideoPlan, stem: &str, folder: &RunFolder) -> Self {
        Self {
            folder: folder.clone(),
            film: plan.film(stem, 1),
            stem: stem.to_owned(),
            per_episode: plan.per_episode,
            fault: None,
            episode: 0,
            first_frame: 0,
            own: None,
            warning: None,
        }
    }

    /// Begins an episode with a key frame.
    pub(super) fn begin(&mut self, episode: u64) {
        (self.episode, self.first_frame) = (episode, self.film.frames());
        self.own = None;
        self.film.wants_keyframe = true;
    }

    /// Adds the images of one step as one frame, if there are any. Does nothing after a fault.
    pub(super) fn push(&mut self, pictures: &BTreeMap<String, Frame>) {
        if pictures.is_empty() || self.fault.is_some() {
            return;
        }
        if let Err(fault) = self.try_push(pictures) {
            self.fail(fault);
        }
    }

    fn try_push(&mut self, pictures: &BTreeMap<String, Frame>) -> Result<(), Fault> {
        self.film.draw(0, pictures)?;
        let sample = self.film.show()?;
        if let (Some(sample), Some(film), true) = (sample, &self.film.file, self.per_episode) {
            let own = match &mut self.own {
                Some(own) => own,
                None => {
                    let name = format!("{}_episode{}_unfinished.mp4", self.stem, self.episode);
                    let path = self.film.path.with_file_name(name);
                    self.own
                        .insert(Mp4::create(&path, true, film.picture, &sample)?)
                }
            };
            own.push(&sample)?;
        }
        Ok(())
    }

    /// Ends the episode. Returns its files, which is nothing after images could not be encoded, or
    /// the reason why its file is broken.
    pub(super) fn end(&mut self, success: bool) -> Result<Written, RecordError> {
        let flushed = self.film.flush();
        let closed = flushed.and_then(|()| self.close_episode(success));
        let own = closed.unwrap_or_else(|err| {
            self.fail(Fault::File(err));
            None
        });
        if let Some(Fault::File(err)) = &self.fault {
            return Err(err.clone());
        }
        Ok(Written::Video {
            video: self.shown(),
            episode_video: own.map(|path| self.folder.relative(&path)),
            warning: self.warning.take(),
        })
    }

    fn close_episode(&mut self, success: bool) -> Result<Option<PathBuf>, RecordError> {
        let Some(own) = self.own.take() else {
            return Ok(None);
        };
        let outcome = if success { "success" } else { "failure" };
        let name = format!("{}_episode{}_{outcome}.mp4", self.stem, self.episode);
        own.close(Some(&name)).map(Some)
    }

    /// Returns the part of the video that shows the current episode.
    fn shown(&self) -> Option<VideoRef> {
        let file = self.film.file.as_ref()?;
        let frames = file.frames() - self.first_frame;
        (frames > 0).then(|| VideoRef {
            file: self.folder.relative(file.path()),
            first_frame: self.first_frame,
            frames,
            fps: Some(file.picture.fps),
        })
    }

    /// Discards the episode. Its frames stay in the video, its own file is deleted.
    pub(super) fn discard(&mut self) {
        let flushed = self.film.flush();
        let own = self.own.take().map_or(Ok(()), Mp4::discard);
        if let Err(err) = flushed.and(own) {
            self.fail(Fault::File(err));
        }
    }

    /// Closes the file.
    pub(super) fn finish(mut self) -> Closed {
        self.discard();
        let warning = self.warning.take();
        let notes = warning.map(|text| format!("warning: {text}"));
        Closed {
            notes: notes.into_iter().collect(),
            result: self.film.close(),
        }
    }

    /// Keeps the reason and the frames so far. No more frames are added, because a gap would shift
    /// all later ones.
    fn fail(&mut self, fault: Fault) {
        let path = self.film.file.as_ref().map_or(&*self.film.path, Mp4::path);
        let path = path.display().to_string();
        if let Err(err) = self.film.close() {
            tracing::debug!(%err, "the frames before a fault are not all in the video");
        }
        if let Some(Err(err)) = self.own.take().map(Mp4::discard) {
            tracing::debug!(%err, "the file of an episode that is not all there stays");
        }
        if self.fault.is_some() {
            return;
        }
        if let Fault::Images(reason) = &fault {
            let episode = self.episode;
            let lost = format!("`{path}` has nothing from episode {episode} on: {reason}");
            self.warning = Some(lost);
        }
        self.fault = Some(fault);
    }
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
