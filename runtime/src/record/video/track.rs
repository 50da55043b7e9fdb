//! The video of one environment: its cameras side by side, its episodes one after the other. On
//! request, a second file for each episode takes the same encoded images.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jobs::episode::VideoRef;
use jobs::layout::RunFolder;

use crate::env::Frame;
use crate::record::lane::Closed;
use crate::record::recorder::Written;
use crate::record::video::film::{Fault, Film};
use crate::record::video::mp4::Mp4;
use crate::record::{RecordError, VideoPlan};

/// The video of one environment.
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
