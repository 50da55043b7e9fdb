//! The video of one environment: its cameras side by side, its episodes one after the other. On
//! request, a second file for each episode takes the same encoded images.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::env::Frame;
use crate::record::lane::Closed;
use crate::record::video::film::{Fault, Film, Place};
use crate::record::video::h264::{EncodedImage, Rate};
use crate::record::video::mp4::Mp4;
use crate::record::video::tile::Tiling;
use crate::record::{CameraSize, RecordError, VideoPlan, VideoSpan};

/// The video of one environment. The file is created with the first image, which determines the
/// size.
pub(super) struct Track {
    dir: PathBuf,
    stem: String,
    place: Place,
    cameras: Vec<String>,
    size: CameraSize,
    rate: Rate,
    per_episode: bool,
    open: Option<OpenTrack>,
    fault: Option<Fault>,
    episode: TrackEpisode,
    /// Warning that the video is lost, until it is reported.
    warning: Option<String>,
}

/// Everything that depends on the size of the images.
struct OpenTrack {
    tiling: Tiling,
    canvas: Vec<u8>,
    film: Film,
}

/// The current episode.
#[derive(Default)]
struct TrackEpisode {
    number: u64,
    first_frame: u64,
    file: Option<Mp4>,
}

/// The files of an episode.
#[derive(Debug, Default)]
pub(super) struct EpisodeFiles {
    /// Its part of the environment's video.
    pub(super) span: Option<VideoSpan>,
    /// Path of its own file.
    pub(super) file: Option<PathBuf>,
    /// The reason why the video is lost from this episode on.
    pub(super) warning: Option<String>,
}

impl Track {
    /// Creates the video `stem`, without a file. `plan` names its cameras and its frame rate.
    pub(super) fn new(plan: &VideoPlan, stem: &str) -> Self {
        Self {
            dir: plan.dir.clone(),
            stem: stem.to_owned(),
            place: plan.place(stem),
            cameras: plan.cameras.clone(),
            size: plan.size,
            rate: plan.rate(1),
            per_episode: plan.per_episode,
            open: None,
            fault: None,
            episode: TrackEpisode::default(),
            warning: None,
        }
    }

    /// Begins an episode with a key frame, to which players can seek.
    pub(super) fn begin(&mut self, number: u64) {
        self.episode = TrackEpisode {
            number,
            first_frame: self.open.as_ref().map_or(0, |open| open.film.frames()),
            file: None,
        };
        if let Some(open) = &mut self.open {
            open.film.want_keyframe();
        }
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

    /// Ends the episode. Returns its files, which is nothing after images could not be encoded, or
    /// the reason why its file is broken.
    pub(super) fn end(&mut self, success: bool) -> Result<EpisodeFiles, RecordError> {
        let closed = self.flush().and_then(|()| self.close_episode(success));
        let file = closed.unwrap_or_else(|fault| {
            self.fail(fault);
            None
        });
        match &self.fault {
            Some(Fault::File(err)) => Err(err.clone()),
            Some(Fault::Images(_)) | None => Ok(EpisodeFiles {
                span: self.span(),
                file,
                warning: self.warning.take(),
            }),
        }
    }

    /// Discards the episode. Its frames stay in the video, its own file is deleted.
    pub(super) fn discard(&mut self) {
        let flushed = self.flush();
        let own = self.episode.file.take().map_or(Ok(()), |file| {
            let path = file.path().to_owned();
            let gone = file.discard();
            gone.map_err(|err| Fault::File(RecordError::file(&path, err)))
        });
        if let Err(fault) = flushed.and(own) {
            self.fail(fault);
        }
    }

    /// Closes the file.
    pub(super) fn finish(mut self) -> Closed {
        self.discard();
        let warning = self.warning.take();
        Closed {
            notes: warning
                .map(|text| format!("warning: {text}"))
                .into_iter()
                .collect(),
            result: self.open.take().map_or(Ok(()), |open| open.film.close()),
        }
    }

    fn try_push(&mut self, pictures: &BTreeMap<String, Frame>) -> Result<(), Fault> {
        if self.open.is_none() {
            self.open = Some(self.begin_file(pictures)?);
        }
        let Some(OpenTrack {
            tiling,
            canvas,
            film,
        }) = &mut self.open
        else {
            return Ok(());
        };
        tiling.draw(pictures, canvas).map_err(Fault::Images)?;
        let sample = film.push(canvas)?;
        match self.per_episode {
            true => self.push_episode(&sample),
            false => Ok(()),
        }
    }

    fn begin_file(&self, pictures: &BTreeMap<String, Frame>) -> Result<OpenTrack, Fault> {
        let tiling = Tiling::of(&self.cameras, pictures, |from| self.size.of(from));
        let tiling = tiling.map_err(Fault::Images)?;
        let size = (tiling.height, tiling.width);
        Ok(OpenTrack {
            tiling,
            canvas: Vec::new(),
            film: Film::new(size, self.rate, self.place.clone())?,
        })
    }

    fn push_episode(&mut self, sample: &EncodedImage) -> Result<(), Fault> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let file = match &mut self.episode.file {
            Some(file) => file,
            slot => {
                let number = self.episode.number;
                let name = format!("{}_episode{number}_unfinished.mp4", self.stem);
                let place = Place::Path(self.dir.join(name));
                slot.insert(place.create(open.film.picture(), sample)?)
            }
        };
        let pushed = file.push(sample);
        pushed.map_err(|err| Fault::File(RecordError::file(file.path(), err)))
    }

    fn close_episode(&mut self, success: bool) -> Result<Option<PathBuf>, Fault> {
        let Some(file) = self.episode.file.take() else {
            return Ok(None);
        };
        let outcome = if success { "success" } else { "failure" };
        let name = format!("{}_episode{}_{outcome}.mp4", self.stem, self.episode.number);
        let path = file.path().to_owned();
        let closed = file.close(Some(&name));
        closed
            .map(Some)
            .map_err(|err| Fault::File(RecordError::file(&path, err)))
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.open.as_mut().map_or(Ok(()), |open| open.film.flush())
    }

    fn span(&self) -> Option<VideoSpan> {
        let film = &self.open.as_ref()?.film;
        let (path, first_frame) = (film.path()?.to_path_buf(), self.episode.first_frame);
        let frames = film.frames() - first_frame;
        (frames > 0).then_some(VideoSpan {
            path,
            first_frame,
            frames,
            fps: film.picture().fps,
        })
    }

    /// Keeps the reason and the frames so far. No more frames are added, because a gap would shift
    /// all later ones.
    fn fail(&mut self, fault: Fault) {
        let film = self.open.take().map(|open| open.film);
        let path = film.as_ref().and_then(|film| Some(film.path()?.to_owned()));
        let path = path.unwrap_or_else(|| self.place.path());
        if let Some(Err(err)) = film.map(Film::close) {
            tracing::debug!(%err, "the frames before a fault are not all in the video");
        }
        if let Some(Err(err)) = self.episode.file.take().map(Mp4::discard) {
            tracing::debug!(%err, "the file of an episode that is not all there stays");
        }
        if self.fault.is_some() {
            return;
        }
        if let Fault::Images(reason) = &fault {
            let (path, episode) = (path.display(), self.episode.number);
            self.warning = Some(format!(
                "`{path}` has nothing from episode {episode} on: {reason}"
            ));
        }
        self.fault = Some(fault);
    }
}
