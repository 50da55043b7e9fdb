//! One video per environment: its cameras beside each other, its episodes one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::h264::{H264, LEAST_BITRATE, Rate};
use super::mp4::{Mp4, Picture};
use super::tile::Tiling;
use super::yuv::Planes;
use crate::env::{EnvSpec, Frame};
use crate::record::{RecordError, VideoPlan, VideoSpan};

impl VideoPlan {
    /// Puts names and rate where the plan left them to the environment, and makes the folder.
    pub(in crate::record) fn resolve(mut self, env: &EnvSpec, num_envs: usize) -> Result<Self, RecordError> {
        self.check_stems(num_envs)?;
        let known: Vec<String> = env.cameras.iter().map(|camera| camera.name.clone()).collect();
        if let Some(unknown) = self.cameras.iter().find(|camera| !known.contains(camera)) {
            let known = known.join(", ");
            return Err(RecordError::Plan(format!("`{}` has no camera `{unknown}`: known are {known}", env.name)));
        }
        if known.is_empty() {
            return Err(RecordError::Plan(format!("`{}` has no camera to make a video of", env.name)));
        }
        if self.bitrate < LEAST_BITRATE {
            let found = self.bitrate;
            return Err(RecordError::Plan(format!(
                "the video bit rate is {found}, at least {LEAST_BITRATE} is needed"
            )));
        }
        if self.cameras.is_empty() {
            self.cameras = known;
        }
        if self.fps == 0 {
            self.fps = env.control_hz.max(1);
        }
        fs::create_dir_all(&self.dir).map_err(|err| RecordError::file(&self.dir, err))?;
        Ok(self)
    }

    fn check_stems(&self, num_envs: usize) -> Result<(), RecordError> {
        if self.stems.len() != num_envs {
            let found = self.stems.len();
            return Err(RecordError::Plan(format!("{found} names of videos are given for {num_envs} environments")));
        }
        let mut seen = BTreeSet::new();
        match self.stems.iter().find(|stem| !seen.insert(stem.as_str())) {
            Some(twice) => Err(RecordError::Plan(format!("two environments have a video called `{twice}`"))),
            None => Ok(()),
        }
    }
}

/// The video of one environment. Nothing is made before the first picture, which fixes the size.
pub(in crate::record) struct Video {
    plan: Source,
    open: Option<Open>,
    fault: Option<String>,
    episode_start: u64,
}

/// What the plan says about one environment.
#[derive(Clone, Debug)]
struct Source {
    dir: PathBuf,
    stem: String,
    cameras: Vec<String>,
    scale: Option<(u32, u32)>,
    rate: Rate,
}

/// Everything that depends on the size of the pictures.
struct Open {
    tiling: Tiling,
    canvas: Vec<u8>,
    planes: Planes,
    encoder: H264,
    file: Option<Mp4>,
}

impl Video {
    /// The video called `stem`; no file yet. `plan` names its cameras and its frame rate.
    pub(in crate::record) fn new(plan: &VideoPlan, stem: &str) -> Self {
        let rate = Rate { fps: plan.fps.max(1), bitrate: plan.bitrate };
        let cameras = plan.cameras.clone();
        let plan = Source { dir: plan.dir.clone(), stem: stem.to_owned(), cameras, scale: plan.scale, rate };
        Self { plan, open: None, fault: None, episode_start: 0 }
    }

    /// An episode begins: its first picture can be jumped to.
    pub(in crate::record) fn begin(&mut self) {
        self.episode_start = self.frames();
        if let Some(open) = &mut self.open {
            open.encoder.want_keyframe();
        }
    }

    /// Adds the pictures of one step as one frame; none when there are none. After a fault it does nothing.
    pub(in crate::record) fn push(&mut self, pictures: &BTreeMap<String, Frame>) {
        if pictures.is_empty() || self.fault.is_some() {
            return;
        }
        if let Err(reason) = self.try_push(pictures) {
            self.fail(reason);
        }
    }

    /// The episode ended: where it is, or why it is not all there.
    pub(in crate::record) fn end(&mut self) -> Result<Option<VideoSpan>, String> {
        let ended = self.file().map_or(Ok(()), Mp4::end_of_episode);
        if let Err(err) = ended {
            self.fail(err.to_string());
        }
        match &self.fault {
            Some(reason) => Err(reason.clone()),
            None => Ok(self.span()),
        }
    }

    /// Writes what is left and closes the file.
    pub(in crate::record) fn finish(mut self) -> Result<(), String> {
        let finished = self.file().map_or(Ok(()), Mp4::finish).map_err(|err| err.to_string());
        finished.map_err(|reason| self.named(&reason))
    }

    fn try_push(&mut self, pictures: &BTreeMap<String, Frame>) -> Result<(), String> {
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(Open::new(&self.plan, pictures)?),
        };
        open.tiling.draw(pictures, &mut open.canvas)?;
        open.planes.fill(&open.canvas);
        let sample = open.encoder.encode(&open.planes)?;
        let file = match &mut open.file {
            Some(file) => file,
            None => {
                let (width, height) = (open.planes.width as u32, open.planes.height as u32);
                let picture = Picture { width, height, fps: self.plan.rate.fps };
                let made = Mp4::create(&self.plan.dir, &self.plan.stem, picture, &sample);
                open.file.insert(made.map_err(|err| err.to_string())?)
            }
        };
        file.push(&sample).map_err(|err| err.to_string())
    }

    fn span(&self) -> Option<VideoSpan> {
        let file = self.open.as_ref()?.file.as_ref()?;
        let frames = file.frames() - self.episode_start;
        (frames > 0).then(|| VideoSpan { path: file.path().to_path_buf(), first_frame: self.episode_start, frames })
    }

    fn frames(&self) -> u64 {
        self.open.as_ref().and_then(|open| open.file.as_ref()).map_or(0, Mp4::frames)
    }

    fn file(&mut self) -> Option<&mut Mp4> {
        self.open.as_mut()?.file.as_mut()
    }

    /// Keeps the reason, and the frames so far; no more are added, for a gap would shift all later ones.
    fn fail(&mut self, reason: String) {
        let reason = self.named(&reason);
        if let Some(Err(err)) = self.file().map(Mp4::finish) {
            tracing::debug!(%err, "the frames before a fault are not all in the video");
        }
        self.open = None;
        self.fault.get_or_insert(reason);
    }

    fn named(&self, reason: &str) -> String {
        let file = self.open.as_ref().and_then(|open| open.file.as_ref());
        let path =
            file.map_or_else(|| self.plan.dir.join(format!("{}.mp4", self.plan.stem)), |f| f.path().to_path_buf());
        format!("`{}`: {reason}", path.display())
    }
}

impl Open {
    fn new(plan: &Source, pictures: &BTreeMap<String, Frame>) -> Result<Self, String> {
        let tiling = Tiling::of(&plan.cameras, pictures, plan.scale)?;
        let planes = Planes::new(tiling.height, tiling.width);
        Ok(Self { tiling, canvas: Vec::new(), planes, encoder: H264::new(plan.rate)?, file: None })
    }
}
