//! The video of one environment: its cameras side by side, its episodes one after the other. On
//! request, a second file for each episode takes the same encoded images.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::env::Frame;
use crate::record::video::film::{Fault, Film};
use crate::record::video::h264::{Rate, Sample};
use crate::record::video::mp4::Mp4;
use crate::record::video::tile::Tiling;
use crate::record::{CameraSize, VideoPlan, VideoSpan};

/// The video of one environment. The file is created with the first image, which determines the
/// size.
pub(super) struct Track {
    source: Source,
    open: Option<Open>,
    fault: Option<Fault>,
    episode: Episode,
    notes: Vec<String>,
    /// Warning that the video is lost, until it is reported.
    warning: Option<String>,
}

/// The part of the plan for one environment.
#[derive(Clone, Debug)]
struct Source {
    dir: PathBuf,
    stem: String,
    cameras: Vec<String>,
    size: CameraSize,
    rate: Rate,
    per_episode: bool,
}

/// Everything that depends on the size of the images.
struct Open {
    tiling: Tiling,
    canvas: Vec<u8>,
    film: Film,
}

/// The current episode.
#[derive(Default)]
struct Episode {
    number: u64,
    first_frame: u64,
    file: Option<Mp4>,
}

/// The files of an episode.
#[derive(Debug, Default)]
pub(super) struct Ended {
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
        let source = Source {
            dir: plan.dir.clone(),
            stem: stem.to_owned(),
            cameras: plan.cameras.clone(),
            size: plan.size,
            rate: plan.rate(1),
            per_episode: plan.per_episode,
        };
        Self {
            source,
            open: None,
            fault: None,
            episode: Episode::default(),
            notes: Vec::new(),
            warning: None,
        }
    }

    /// Begins an episode with a key frame, to which players can seek.
    pub(super) fn begin(&mut self, number: u64) {
        self.episode = Episode {
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
    pub(super) fn end(&mut self, success: bool) -> Result<Ended, String> {
        let flushed = self
            .file()
            .map_or(Ok(()), Mp4::end_of_episode)
            .map_err(Fault::file);
        let file = flushed
            .and_then(|()| self.close_episode(success))
            .unwrap_or_else(|fault| {
                self.fail(fault);
                None
            });
        match &self.fault {
            Some(Fault::File(reason)) => Err(reason.clone()),
            Some(Fault::Picture(_)) | None => Ok(Ended {
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
            self.fail(Fault::file(err));
        }
    }

    /// Closes the file. Returns messages for the user.
    pub(super) fn finish(mut self) -> (Vec<String>, Result<(), String>) {
        self.discard();
        self.notes.extend(
            self.warning
                .take()
                .map(|warning| format!("warning: {warning}")),
        );
        let closed = self.open.take().map_or(Ok(None), |open| open.film.close());
        match closed {
            Ok(note) => (self.notes.into_iter().chain(note).collect(), Ok(())),
            Err(reason) => (self.notes, Err(reason)),
        }
    }

    fn try_push(&mut self, pictures: &BTreeMap<String, Frame>) -> Result<(), Fault> {
        let (dir, stem) = (&self.source.dir, &self.source.stem);
        let open = match &mut self.open {
            Some(open) => open,
            None => self
                .open
                .insert(Open::new(&self.source, pictures).map_err(Fault::Picture)?),
        };
        open.tiling
            .draw(pictures, &mut open.canvas)
            .map_err(Fault::Picture)?;
        let sample = open.film.push(&open.canvas, dir, stem)?;
        if self.source.per_episode {
            self.push_episode(&sample)
        } else {
            Ok(())
        }
    }

    fn push_episode(&mut self, sample: &Sample) -> Result<(), Fault> {
        let file = match (&mut self.episode.file, &self.open) {
            (Some(file), _) => file,
            (None, None) => return Ok(()),
            (None, Some(open)) => {
                let path = self
                    .source
                    .dir
                    .join(format!("{}_unfinished.mp4", self.episode_stem()));
                let made = Mp4::replace(path, open.film.picture(), sample).map_err(Fault::file)?;
                self.episode.file.insert(made)
            }
        };
        file.push(sample).map_err(Fault::file)
    }

    fn close_episode(&mut self, success: bool) -> Result<Option<PathBuf>, Fault> {
        let Some(file) = self.episode.file.take() else {
            return Ok(None);
        };
        let outcome = if success { "success" } else { "failure" };
        let name = format!("{}_{outcome}.mp4", self.episode_stem());
        let (path, note) = file.close(Some(&name)).map_err(Fault::file)?;
        self.notes.extend(note);
        Ok(Some(path))
    }

    fn episode_stem(&self) -> String {
        format!("{}_episode{}", self.source.stem, self.episode.number)
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
    fn fail(&mut self, fault: Fault) {
        let path = self
            .open
            .as_ref()
            .and_then(|open| open.film.path().map(ToOwned::to_owned));
        let path =
            path.unwrap_or_else(|| self.source.dir.join(format!("{}.mp4", self.source.stem)));
        match self.open.take().map(|open| open.film.close()) {
            Some(Err(err)) => {
                tracing::debug!(err, "the frames before a fault are not all in the video")
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
        let path = path.display();
        self.fault = Some(match fault {
            Fault::File(reason) => Fault::File(format!("`{path}`: {reason}")),
            Fault::Picture(reason) => {
                let episode = self.episode.number;
                self.warning = Some(format!(
                    "`{path}` has nothing from episode {episode} on: {reason}"
                ));
                Fault::Picture(reason)
            }
        });
    }
}

impl Open {
    fn new(source: &Source, pictures: &BTreeMap<String, Frame>) -> Result<Self, String> {
        let tiling = Tiling::of(&source.cameras, pictures, |from| source.size.of(from))?;
        let film = Film::new(tiling.height, tiling.width, source.rate)?;
        Ok(Self {
            tiling,
            canvas: Vec::new(),
            film,
        })
    }
}
