//! The video of one environment: its cameras side by side, its episodes one after the other. On
//! request, a second file for each episode takes the same encoded images.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::env::Frame;
use crate::record::closed::ThreadResult;
use crate::record::video::film::{FilmError, VideoEncoder};
use crate::record::video::h264::{EncodedImage, Rate};
use crate::record::video::mp4::Mp4;
use crate::record::video::tile::Tiling;
use crate::record::{CameraSize, RecordError, VideoPlan, VideoSpan};

/// The video of one environment. The file is created with the first image, which determines the
/// size.
pub(super) struct Track {
    plan: TrackPlan,
    open: Option<OpenTrack>,
    fault: Option<TrackFault>,
    episode: TrackEpisode,
    notes: Vec<String>,
    /// Warning that the video is lost, until it is reported.
    warning: Option<String>,
}

/// Why no more frames are added to a video.
enum TrackFault {
    /// The images cannot be laid out or encoded; the frames before are kept.
    Images,
    /// The file is broken.
    File(RecordError),
}

/// The part of the plan for one environment.
#[derive(Clone, Debug)]
struct TrackPlan {
    dir: PathBuf,
    stem: String,
    cameras: Vec<String>,
    size: CameraSize,
    rate: Rate,
    per_episode: bool,
}

/// Everything that depends on the size of the images.
struct OpenTrack {
    tiling: Tiling,
    canvas: Vec<u8>,
    film: VideoEncoder,
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
        let plan = TrackPlan {
            dir: plan.dir.clone(),
            stem: stem.to_owned(),
            cameras: plan.cameras.clone(),
            size: plan.size,
            rate: plan.rate(1),
            per_episode: plan.per_episode,
        };
        Self {
            plan,
            open: None,
            fault: None,
            episode: TrackEpisode::default(),
            notes: Vec::new(),
            warning: None,
        }
    }

    /// Begins an episode with a key frame, to which players can seek.
    pub(super) fn begin(&mut self, number: u64) {
        self.episode = TrackEpisode {
            number,
            first_frame: self.frames(),
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
        let flushed = self.file().map_or(Ok(()), Mp4::end_of_episode);
        let file = flushed
            .map_err(FilmError::from)
            .and_then(|()| self.close_episode(success))
            .unwrap_or_else(|fault| {
                self.fail(fault);
                None
            });
        match &self.fault {
            Some(TrackFault::File(err)) => Err(err.clone()),
            Some(TrackFault::Images) | None => Ok(EpisodeFiles {
                span: self.span(),
                file,
                warning: self.warning.take(),
            }),
        }
    }

    /// Discards the episode. Its frames stay in the video, its own file is deleted.
    pub(super) fn discard(&mut self) {
        let flushed = self.file().map_or(Ok(()), Mp4::end_of_episode);
        let gone = self.episode.file.take().map_or(Ok(()), Mp4::discard);
        if let Err(err) = flushed.and(gone) {
            self.fail(err.into());
        }
    }

    /// Closes the file.
    pub(super) fn finish(mut self) -> ThreadResult {
        self.discard();
        self.notes.extend(
            self.warning
                .take()
                .map(|warning| format!("warning: {warning}")),
        );
        let closed = self.open.take().map_or(Ok(None), |open| open.film.close());
        match closed {
            Ok(note) => ThreadResult {
                notes: self.notes.into_iter().chain(note).collect(),
                result: Ok(()),
            },
            Err(err) => ThreadResult {
                notes: self.notes,
                result: Err(err),
            },
        }
    }

    fn try_push(&mut self, pictures: &BTreeMap<String, Frame>) -> Result<(), FilmError> {
        let (dir, stem) = (&self.plan.dir, &self.plan.stem);
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(OpenTrack::new(&self.plan, pictures)?),
        };
        open.tiling.draw(pictures, &mut open.canvas)?;
        let sample = open.film.push(&open.canvas, dir, stem)?;
        if self.plan.per_episode {
            self.push_episode(&sample)
        } else {
            Ok(())
        }
    }

    fn push_episode(&mut self, sample: &EncodedImage) -> Result<(), FilmError> {
        let file = match (&mut self.episode.file, &self.open) {
            (Some(file), _) => file,
            (None, None) => return Ok(()),
            (None, Some(open)) => {
                let path = self
                    .plan
                    .dir
                    .join(format!("{}_unfinished.mp4", self.episode_stem()));
                let made = Mp4::replace(path, open.film.picture(), sample)?;
                self.episode.file.insert(made)
            }
        };
        Ok(file.push(sample)?)
    }

    fn close_episode(&mut self, success: bool) -> Result<Option<PathBuf>, FilmError> {
        let Some(file) = self.episode.file.take() else {
            return Ok(None);
        };
        let outcome = if success { "success" } else { "failure" };
        let name = format!("{}_{outcome}.mp4", self.episode_stem());
        let closed = file.close(Some(&name))?;
        self.notes.extend(closed.note);
        Ok(Some(closed.path))
    }

    fn episode_stem(&self) -> String {
        format!("{}_episode{}", self.plan.stem, self.episode.number)
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

    fn frames(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.film.frames())
    }

    fn file(&mut self) -> Option<&mut Mp4> {
        self.open.as_mut()?.film.file()
    }

    /// Keeps the reason and the frames so far. No more frames are added, because a gap would shift
    /// all later ones.
    fn fail(&mut self, fault: FilmError) {
        let path = self
            .open
            .as_ref()
            .and_then(|open| open.film.path().map(ToOwned::to_owned));
        let path = path.unwrap_or_else(|| self.plan.dir.join(format!("{}.mp4", self.plan.stem)));
        match self.open.take().map(|open| open.film.close()) {
            Some(Err(err)) => {
                tracing::debug!(%err, "the frames before a fault are not all in the video")
            }
            Some(Ok(note)) => self.notes.extend(note),
            None => {}
        }
        if let Some(Err(err)) = self.episode.file.take().map(Mp4::discard) {
            tracing::debug!(%err, "the file of an episode that is not all there stays");
        }
        if self.fault.is_some() {
            return;
        }
        self.fault = Some(match fault {
            FilmError::File { reason } => TrackFault::File(RecordError::file(&path, reason)),
            reason @ (FilmError::Image(_) | FilmError::Codec(_)) => {
                let (path, episode) = (path.display(), self.episode.number);
                self.warning = Some(format!(
                    "`{path}` has nothing from episode {episode} on: {reason}"
                ));
                TrackFault::Images
            }
        });
    }
}

impl OpenTrack {
    fn new(plan: &TrackPlan, pictures: &BTreeMap<String, Frame>) -> Result<Self, FilmError> {
        let tiling = Tiling::of(&plan.cameras, pictures, |from| plan.size.of(from))?;
        let film = VideoEncoder::new(tiling.height, tiling.width, plan.rate)?;
        Ok(Self {
            tiling,
            canvas: Vec::new(),
            film,
        })
    }
}
