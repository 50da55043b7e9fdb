//! Recording: one HDF5 dataset a rank and one mp4 an environment.
//!
//! ```text
//!  eval loop ── begin, step, end, discard ──► bounded channel ──► recorder thread ──► dataset.hdf5, *_env<i>.mp4
//!            ◄─ poll: Recorded ───────────────────────────────────────┘
//! ```
//!
//! The loop never waits for a file, unless the thread is [`QUEUE`] messages behind. Pictures travel as shared memory.
//! An episode lives in memory until its end and is then written in one go; once its [`Recorded`] is out, a kill cannot
//! take it away. How the dataset stays whole is told in `dataset`, how a video does in `mp4`.
//!
//! Videos stay fragmented files (`moof` + `mdat` once a second): they play in browsers and in everything built on FFmpeg,
//! and a second copy of all bytes would buy only a shorter search in very long ones.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use crate::env::{EnvIndex, EnvSpec, Observation, Step};

mod dataset;
mod episode;
mod error;
mod files;
mod snapshot;
#[cfg(test)]
mod tests;
mod video;

use dataset::Dataset;
use episode::StepRow;
pub use error::RecordError;
use files::{Files, Message, Slot};
use snapshot::{Snapshot, Wanted};
use video::Video;

/// Messages that may wait for the thread. A message is a step of one environment, so two 224×224 cameras keep 20 MB.
const QUEUE: usize = 64;

/// What to record.
#[derive(Clone, Debug)]
pub struct RecordPlan {
    /// The dataset file, if one is wanted.
    pub dataset: Option<DatasetPlan>,
    /// Videos, if wanted.
    pub video: Option<VideoPlan>,
    /// Environments are `0..num_envs`.
    pub num_envs: usize,
    /// What they are.
    pub env: EnvSpec,
}

/// The dataset file of a rank.
#[derive(Clone, Debug)]
pub struct DatasetPlan {
    /// Where. An existing file is gone on with.
    pub path: PathBuf,
    /// Number of the first new demo at least: one after those that are spoken of elsewhere. A file that was lost must
    /// not give their names to other episodes.
    pub first_demo: u64,
    /// Goes to the attribute `env_args` of `data` as JSON: `{"env_name": …, "type": 2, …}`.
    pub env_args: serde_json::Value,
    /// Also keep pictures, as `obs/<camera>`.
    pub cameras: bool,
}

/// The videos of a rank: `<dir>/<stem>.mp4` of each environment, with `_part2`, … instead of writing over a file.
#[derive(Clone, Debug)]
pub struct VideoPlan {
    /// The folder.
    pub dir: PathBuf,
    /// Names without their ending, one an environment and no two the same: `<job>_video_rank<r>_gpu<g>_env<i>`.
    pub stems: Vec<String>,
    /// Cameras from left to right; empty for all.
    pub cameras: Vec<String>,
    /// Height and width of each camera on the video; as they come if not given.
    pub scale: Option<(u32, u32)>,
    /// Frames a second; 0 for the steps a second of the environment.
    pub fps: u32,
    /// Bits a second, at most about; at least 10 000.
    pub bitrate: u32,
}

/// Who an episode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpisodeMeta {
    /// Its number in the job.
    pub episode: u64,
    /// What it was reset with.
    pub seed: u64,
    /// The task in words.
    pub language: Arc<str>,
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeEnd {
    /// The success predicate held.
    pub success: bool,
    /// The task ended.
    pub terminated: bool,
    /// The time limit ended it.
    pub truncated: bool,
}

/// Where a recorded episode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Where it ran.
    pub env: EnvIndex,
    /// Its number in the job.
    pub episode: u64,
    /// Its group below `data`: `demo_12`.
    pub demo: Option<String>,
    /// Its part of a video.
    pub video: Option<VideoSpan>,
    /// Why something of it is not there; names the file.
    pub error: Option<String>,
}

/// A part of a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoSpan {
    /// The file.
    pub path: PathBuf,
    /// Frames before it.
    pub first_frame: u64,
    /// Frames of it, at least 1.
    pub frames: u64,
}

/// The caller's end.
#[derive(Debug)]
pub struct Recorder {
    messages: Option<SyncSender<Message>>,
    answers: Receiver<Recorded>,
    thread: Option<JoinHandle<Result<(), RecordError>>>,
    outcome: Result<(), RecordError>,
    warnings: Vec<String>,
    /// The open episode of each environment.
    open: Vec<Option<u64>>,
    wanted: Wanted,
    actions: usize,
}

impl Recorder {
    /// Opens the dataset and starts the thread. Videos are made at their first picture.
    pub fn start(plan: RecordPlan) -> Result<Self, RecordError> {
        let video = plan.video.map(|video| video.resolve(&plan.env, plan.num_envs)).transpose()?;
        let wanted = Wanted {
            state: plan.dataset.is_some(),
            pictures: video.is_some() || plan.dataset.as_ref().is_some_and(|dataset| dataset.cameras),
        };
        let cameras = plan.dataset.as_ref().is_some_and(|dataset| dataset.cameras);
        let (dataset, warnings) = plan.dataset.map(|dataset| Dataset::open(&dataset)).transpose()?.unzip();
        let videos = video.iter().flat_map(|video| video.stems.iter().map(|stem| Video::new(video, stem)));
        let slots = (0..plan.num_envs).map(|_| Slot::default()).collect();
        let files = Files { dataset, cameras, videos: videos.collect(), slots };
        let (messages, inbox) = mpsc::sync_channel(QUEUE);
        let (outbox, answers) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || files.run(&inbox, &outbox))
            .map_err(|err| RecordError::Plan(format!("no thread for the recorder: {err}")))?;
        Ok(Self {
            messages: Some(messages),
            answers,
            thread: Some(thread),
            outcome: Ok(()),
            warnings: warnings.unwrap_or_default(),
            open: vec![None; plan.num_envs],
            wanted,
            actions: plan.env.action.names.len(),
        })
    }

    /// What was lost or kept aside at the start, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// An episode begins with what the reset showed.
    pub fn begin(&mut self, env: EnvIndex, meta: EpisodeMeta, first: &Observation) -> Result<(), RecordError> {
        let num_envs = self.open.len();
        let slot = self.open.get_mut(env.0).ok_or(RecordError::Environment { env, num_envs })?;
        if let Some(episode) = *slot {
            return Err(RecordError::StillOpen { env, episode });
        }
        *slot = Some(meta.episode);
        let first = Snapshot::of(first, self.wanted);
        self.send(Message::Begin { env, meta, first })
    }

    /// A step was taken with `action`, of which the environment made `processed`.
    pub fn step(
        &mut self,
        env: EnvIndex,
        action: &[f32],
        processed: Option<&[f32]>,
        step: &Step,
    ) -> Result<(), RecordError> {
        self.opened(env)?;
        if action.len() != self.actions {
            return Err(RecordError::Action { env, found: action.len(), wanted: self.actions });
        }
        let row = StepRow {
            action: action.to_vec(),
            processed: processed.map(<[f32]>::to_vec),
            after: Snapshot::of(&step.observation, self.wanted),
            reward: step.reward,
            done: step.terminated || step.truncated,
        };
        self.send(Message::Step { env, row })
    }

    /// The episode ended. It is written from now on; [`Recorder::poll`] says where.
    pub fn end(&mut self, env: EnvIndex, end: EpisodeEnd) -> Result<(), RecordError> {
        self.opened(env)?;
        self.open[env.0] = None;
        self.send(Message::End { env, end })
    }

    /// The episode does not count: no demo, no answer. Its frames stay in the video.
    pub fn discard(&mut self, env: EnvIndex) -> Result<(), RecordError> {
        self.opened(env)?;
        self.open[env.0] = None;
        self.send(Message::Discard { env })
    }

    /// As [`Recorder::discard`], for an episode that may not have begun.
    pub fn forget(&mut self, env: EnvIndex) -> Result<(), RecordError> {
        if self.open.get(env.0).is_some_and(Option::is_some) { self.discard(env) } else { Ok(()) }
    }

    /// What was written since the last call. Does not wait.
    pub fn poll(&mut self) -> Vec<Recorded> {
        self.answers.try_iter().collect()
    }

    /// Waits until all is written and closed. Nothing can be recorded after it; open episodes are discarded.
    pub fn drain(&mut self) -> Vec<Recorded> {
        self.hang_up();
        self.answers.iter().collect()
    }

    /// Waits until all is written and closed. On `Err` the last answers are gone: [`Recorder::drain`] first, to have
    /// them in any case.
    pub fn finish(mut self) -> Result<Vec<Recorded>, RecordError> {
        let recorded = self.drain();
        std::mem::replace(&mut self.outcome, Ok(())).map(|()| recorded)
    }

    fn opened(&self, env: EnvIndex) -> Result<(), RecordError> {
        match self.open.get(env.0) {
            None => Err(RecordError::Environment { env, num_envs: self.open.len() }),
            Some(None) => Err(RecordError::NotBegun { env }),
            Some(Some(_)) => Ok(()),
        }
    }

    fn send(&mut self, message: Message) -> Result<(), RecordError> {
        let sent = self.messages.as_ref().is_some_and(|messages| messages.send(message).is_ok());
        if sent {
            return Ok(());
        }
        self.hang_up();
        Err(self.outcome.clone().err().unwrap_or_else(|| RecordError::Stopped("it was finished".to_owned())))
    }

    /// Ends the thread and keeps what it said last.
    fn hang_up(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            self.outcome = thread.join().unwrap_or_else(|panic| Err(RecordError::Stopped(words_of(&*panic))));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hang_up();
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}
