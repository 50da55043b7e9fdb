//! The recorder: the handle of the evaluation loop.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::env::{EnvIndex, EnvSpec, Observation, Step};
use crate::record::episode::{Selection, StepRow, StepSnapshot};
use crate::record::lane::{ChannelWaits, Closed, Lane, joined};
use crate::record::parts::{EpisodePart, Parts};
use crate::record::video::Crew;
use crate::record::writer::{DatasetMessage, EpisodeCollector, OpenEpisode};
use crate::record::{EpisodeEnd, EpisodeMeta, RecordError, RecordPlan, Recorded, dataset};

/// Maximum bytes of rows in the channel to the dataset thread, so that the loop continues while a
/// long episode is compressed.
const WAITING: u64 = 256 << 20;
/// Limits of the number of messages in the channel; within them, [`WAITING`] decides.
const QUEUE: RangeInclusive<u64> = 16..=8192;
/// Size of a row without images, with its names, generously.
const ROW_BYTES: u64 = 16 << 10;

/// Records the episodes of all environments.
#[derive(Debug)]
pub struct Recorder {
    crew: Option<Crew>,
    writer: Option<Lane<DatasetMessage>>,
    pub(super) answers: Receiver<EpisodePart>,
    pub(super) parts: Parts,
    /// Number of the open episode of each environment.
    open: Vec<Option<u64>>,
    pub(super) wanted: Selection,
    closed: Closed,
    pressure: Pressure,
    over: bool,
}

/// How often and how long the loop had to wait because writing files is slower than simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Waits for the threads that encode videos.
    pub video: ChannelWaits,
    /// Waits for the dataset thread.
    pub dataset: ChannelWaits,
}

impl Recorder {
    /// Opens the dataset and starts the threads. A video is created with its first image.
    pub fn start(plan: RecordPlan) -> Result<Self, RecordError> {
        let video = plan
            .video
            .map(|video| video.resolve(&plan.env))
            .transpose()?;
        let cameras = plan.dataset.as_ref().is_some_and(|dataset| dataset.cameras);
        let wanted = Selection {
            state: plan.dataset.is_some(),
            pictures: video.is_some() || cameras,
        };
        let (outbox, answers) = mpsc::channel();
        let crew = video
            .map(|video| Crew::start(&video, &plan.env, &outbox))
            .transpose()?;
        let mut notes = Vec::new();
        let writer = match plan.dataset {
            None => None,
            Some(dataset) => {
                let store = dataset::open(&dataset, &plan.env, &mut notes)?;
                let slots = (0..plan.num_envs).map(|_| OpenEpisode::default()).collect();
                let collector = EpisodeCollector {
                    store,
                    cameras,
                    slots,
                    answers: outbox,
                };
                let depth = depth(&plan.env, cameras);
                let run = move |inbox| collector.run(inbox);
                Some(Lane::spawn("dataset".to_owned(), depth, run)?)
            }
        };
        Ok(Self {
            crew,
            writer,
            answers,
            parts: Parts::default(),
            open: vec![None; plan.num_envs],
            wanted,
            closed: Closed {
                notes,
                result: Ok(()),
            },
            pressure: Pressure::default(),
            over: false,
        })
    }

    /// Returns what was lost or kept aside at the start and, after [`Recorder::drain`], at the end;
    /// one line each.
    pub fn warnings(&self) -> &[String] {
        &self.closed.notes
    }

    /// Returns how often and how long the caller had to wait so far.
    pub fn pressure(&self) -> Pressure {
        let video = self.crew.as_ref().map_or(self.pressure.video, Crew::waits);
        let writer = self.writer.as_ref();
        let dataset = writer.map_or(self.pressure.dataset, Lane::waits);
        Pressure { video, dataset }
    }

    /// Begins an episode with the observation of the reset.
    pub fn begin(
        &mut self,
        env: EnvIndex,
        meta: EpisodeMeta,
        first: &Observation,
    ) -> Result<(), RecordError> {
        self.alive()?;
        debug_assert_eq!(self.open[env.0], None, "the episode before is still open");
        self.open[env.0] = Some(meta.episode);
        let first = StepSnapshot::of(first, self.wanted);
        let filmed = self
            .crew
            .as_mut()
            .is_none_or(|crew| crew.begin(env, meta.episode, Arc::clone(&first.video)));
        self.delivered(filmed)?;
        self.send(DatasetMessage::Begin { env, meta, first })
    }

    /// Records a step with `action`, which the environment processed to `processed`.
    pub fn step(
        &mut self,
        env: EnvIndex,
        action: &[f32],
        processed: Option<&[f32]>,
        step: &Step,
    ) -> Result<(), RecordError> {
        self.alive()?;
        let after = StepSnapshot::of(&step.observation, self.wanted);
        let filmed = self
            .crew
            .as_mut()
            .is_none_or(|crew| crew.pictures(env, Arc::clone(&after.video)));
        self.delivered(filmed)?;
        if self.writer.is_none() {
            return Ok(());
        }
        let row = StepRow {
            action: action.to_vec(),
            processed: processed.map(<[f32]>::to_vec),
            after,
            reward: step.reward,
            done: step.terminated || step.truncated,
        };
        self.send(DatasetMessage::Step { env, row })
    }

    /// Ends the episode, which is then written; [`Recorder::poll`] returns where.
    pub fn end(&mut self, env: EnvIndex, end: EpisodeEnd) -> Result<(), RecordError> {
        self.alive()?;
        let episode = self.open[env.0].take().unwrap_or_default();
        let threads = usize::from(self.crew.is_some()) + usize::from(self.writer.is_some());
        let recorded = Recorded {
            env,
            episode,
            dataset: None,
            demo: None,
            video: None,
            episode_video: None,
            warning: None,
            error: None,
        };
        let ticket = self.parts.expect(recorded, threads);
        let filmed = self
            .crew
            .as_mut()
            .is_none_or(|crew| crew.end(env, ticket, end.success));
        self.delivered(filmed)?;
        self.send(DatasetMessage::End { env, ticket, end })
    }

    /// Discards the open episode: it gets no demo and no answer. Its frames stay in the video.
    pub fn discard(&mut self, env: EnvIndex) -> Result<(), RecordError> {
        self.alive()?;
        self.open[env.0] = None;
        let filmed = self.crew.as_mut().is_none_or(|crew| crew.discard(env));
        self.delivered(filmed)?;
        self.send(DatasetMessage::Discard { env })
    }

    /// Discards the open episode, if there is one; see [`Recorder::discard`].
    pub fn forget(&mut self, env: EnvIndex) -> Result<(), RecordError> {
        match self.open[env.0] {
            Some(_) => self.discard(env),
            None => Ok(()),
        }
    }

    /// Returns the episodes that were written since the last call. Does not wait.
    pub fn poll(&mut self) -> Vec<Recorded> {
        self.answers
            .try_iter()
            .for_each(|part| self.parts.add(part));
        self.parts.take()
    }

    /// Works like [`Recorder::poll`], but first waits for the next answer, at most for `patience`;
    /// returns `None` if all threads have ended.
    pub fn poll_within(&mut self, patience: Duration) -> Option<Vec<Recorded>> {
        match self.answers.recv_timeout(patience) {
            Ok(part) => self.parts.add(part),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        Some(self.poll())
    }

    /// Waits until everything is written and closed. Open episodes are discarded, and nothing can
    /// be recorded afterwards.
    pub fn drain(&mut self) -> Vec<Recorded> {
        self.hang_up();
        self.poll()
    }

    /// Waits until everything is written and closed. An error drops the last answers; call
    /// [`Recorder::drain`] first to get them in any case.
    pub fn finish(mut self) -> Result<Vec<Recorded>, RecordError> {
        let recorded = self.drain();
        std::mem::replace(&mut self.closed.result, Ok(())).map(|()| recorded)
    }

    fn alive(&self) -> Result<(), RecordError> {
        if !self.over {
            return Ok(());
        }
        self.closed.result.clone()?;
        Err(RecordError("the recorder was finished".to_owned()))
    }

    fn send(&mut self, message: DatasetMessage) -> Result<(), RecordError> {
        let writer = self.writer.as_mut();
        let sent = writer.is_none_or(|writer| writer.send(message));
        self.delivered(sent)
    }

    /// If a message could not be sent, ends all threads and returns the first error.
    fn delivered(&mut self, sent: bool) -> Result<(), RecordError> {
        if sent {
            return Ok(());
        }
        self.hang_up();
        self.alive()
    }

    /// Ends the threads and keeps their results.
    fn hang_up(&mut self) {
        self.pressure = self.pressure();
        // Dataset and videos are closed in parallel.
        let mut threads: Vec<_> = self.writer.take().map(Lane::close).into_iter().collect();
        threads.extend(self.crew.take().into_iter().flat_map(Crew::close));
        self.closed = std::mem::take(&mut self.closed).and(joined(threads));
        self.over = true;
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// Returns the capacity of the channel in messages; each is a row.
fn depth(env: &EnvSpec, cameras: bool) -> usize {
    let sizes = env
        .cameras
        .iter()
        .map(|camera| u64::from(camera.height) * u64::from(camera.width) * 3);
    let pictures: u64 = if cameras { sizes.sum() } else { 0 };
    (WAITING / (ROW_BYTES + pictures)).clamp(*QUEUE.start(), *QUEUE.end()) as usize
}
