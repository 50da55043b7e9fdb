//! The recorder: the handle of the evaluation loop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use jobs::episode::{DemoRef, Episode, VideoRef};

use crate::env::{EnvIndex, Frame, Observation, Step};
use crate::record::dataset::{DatasetThread, EndedEpisode};
use crate::record::disk::image_bytes;
use crate::record::episode::EpisodeRows;
use crate::record::lane::{ChannelWaits, Closed, Lane, join};
use crate::record::video::crew;
use crate::record::{EpisodeEnd, Finished, RecordError, RecordPlan};

/// Maximum bytes of episodes in the channel to the dataset thread, so that the loop continues while
/// one is compressed. It has room for one of each environment in any case: they may end together.
const DATASET_WAITING: u64 = 256 << 20;
/// Maximum bytes of images in the channel to one video thread. Below it the loop never waits for an
/// encoder.
const VIDEO_WAITING: u64 = 128 << 20;
/// Size of a row without images, with its names, generously.
const ROW_BYTES: u64 = 16 << 10;

/// The images of one step by camera, shared by all threads.
pub(super) type StepImages = Arc<BTreeMap<String, Frame>>;

/// Something that happens in an environment that is filmed.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) env: EnvIndex,
    pub(super) images: StepImages,
    pub(super) what: EventKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum EventKind {
    /// The episode with this number begins.
    Begin(u64),
    Step,
    /// The episode ends; the thread that films it answers with the ticket.
    End {
        ticket: u64,
        success: bool,
    },
    /// The episode is discarded: it gets no answer.
    Discard,
}

/// A thread's answer about an episode that has ended.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) ticket: u64,
    /// What is written of it, or why a required part is missing.
    pub(super) written: Result<Written, RecordError>,
}

#[derive(Debug)]
pub(super) enum Written {
    Demo(Option<DemoRef>),
    Video {
        video: Option<VideoRef>,
        episode_video: Option<String>,
        warning: Option<String>,
    },
}

/// Finished episodes that were not returned yet, in the order of their ends.
#[derive(Debug, Default)]
struct Pending {
    /// Ticket of the first of them.
    first: u64,
    /// Each with the number of answers that it lacks.
    episodes: VecDeque<(usize, Finished)>,
}

impl Pending {
    /// Registers an episode about which `threads` threads will answer; returns its ticket.
    fn expect(&mut self, episode: Episode, threads: usize) -> u64 {
        let finished = Finished {
            episode,
            warning: None,
            errors: Vec::new(),
        };
        self.episodes.push_back((threads, finished));
        self.first + self.episodes.len() as u64 - 1
    }

    /// Adds the answer of a thread.
    fn add(&mut self, answer: Answer) {
        let at = (answer.ticket - self.first) as usize;
        let Some((missing, finished)) = self.episodes.get_mut(at) else {
            return;
        };
        *missing -= 1;
        let episode = &mut finished.episode;
        match answer.written {
            Ok(Written::Demo(demo)) => episode.dataset = demo,
            Ok(Written::Video {
                video,
                episode_video,
                warning,
            }) => {
                (episode.video, episode.episode_video) = (video, episode_video);
                finished.warning = warning;
            }
            Err(err) => finished.errors.push(err.to_string()),
        }
    }

    /// Returns the complete episodes, each once. One that lacks an answer holds back those behind
    /// it: a dataset has them in the same order, so that after a kill only its last ones have no
    /// line in the journal.
    fn take(&mut self) -> Vec<Finished> {
        let lacking = self.episodes.iter().position(|(missing, _)| *missing > 0);
        let whole = ..lacking.unwrap_or(self.episodes.len());
        let taken: Vec<_> = self.episodes.drain(whole).map(|(_, one)| one).collect();
        self.first += taken.len() as u64;
        taken
    }
}

/// Records the episodes of all environments.
#[derive(Debug)]
pub struct Recorder {
    videos: Vec<Lane<Event>>,
    /// For each environment, the threads that film it.
    routes: Vec<Vec<usize>>,
    dataset: Option<Lane<EndedEpisode>>,
    has_dataset: bool,
    /// True if the dataset has images.
    has_pictures: bool,
    answers: Receiver<Answer>,
    pending: Pending,
    /// The open episode of each environment, with rows if there is a dataset.
    open: Vec<Option<EpisodeRows>>,
    closed: Closed,
    waits: ChannelWaits,
}

impl Recorder {
    /// Opens the dataset and starts the threads; returns what was lost or kept aside, one line
    /// each. A video is created with its first image.
    pub fn start(plan: RecordPlan) -> Result<(Self, Vec<String>), RecordError> {
        let (outbox, answers) = mpsc::channel();
        let mut notes = Vec::new();
        let mut recorder = Self {
            videos: Vec::new(),
            routes: vec![Vec::new(); plan.num_envs],
            dataset: None,
            has_dataset: plan.dataset.is_some(),
            has_pictures: plan.dataset.as_ref().is_some_and(|dataset| dataset.cameras),
            answers,
            pending: Pending::default(),
            open: vec![None; plan.num_envs],
            closed: Closed::default(),
            waits: ChannelWaits::default(),
        };
        let images = image_bytes(&plan.env);
        let depth = |most: u64, least: u64, bytes: u64| {
            (most / bytes).clamp(least, least.max(8192)) as usize
        };
        if let Some(video) = &plan.video {
            let (coders, routes) = crew::start(video, &plan.env, &plan.folder)?;
            for (number, coder) in coders.into_iter().enumerate() {
                let (name, outbox) = (format!("video-{number}"), outbox.clone());
                let run = move |inbox| coder.run(inbox, &outbox);
                let depth = depth(VIDEO_WAITING, 8, ROW_BYTES + images);
                recorder.videos.push(Lane::spawn(&name, depth, run)?);
            }
            recorder.routes = routes;
        }
        if let Some(dataset) = &plan.dataset {
            let thread = DatasetThread::open(dataset, &plan, &mut notes)?;
            let row = ROW_BYTES + if dataset.cameras { images } else { 0 };
            let rows = u64::from(plan.env.max_episode_steps.max(1));
            let run = move |inbox| thread.run(inbox, &outbox);
            let depth = depth(DATASET_WAITING, plan.num_envs as u64, rows * row);
            let lane = Lane::spawn("dataset", depth, run)?;
            recorder.dataset = Some(lane);
        }
        Ok((recorder, notes))
    }

    /// Returns how often and how long the caller had to wait so far.
    pub fn waits(&self) -> ChannelWaits {
        let mut waits = self.waits;
        self.videos.iter().for_each(|lane| waits += lane.waits);
        self.dataset.iter().for_each(|lane| waits += lane.waits);
        waits
    }

    /// Begins an episode, by its number in the job, with the observation of the reset by `seed`.
    pub fn begin(
        &mut self,
        env: EnvIndex,
        episode: u64,
        seed: u64,
        first: &Observation,
    ) -> Result<(), RecordError> {
        debug_assert!(
            self.open[env.0].is_none(),
            "the episode before is still open"
        );
        let rows = EpisodeRows::begin(env, episode, seed, first, self.has_pictures);
        self.open[env.0] = Some(rows);
        self.film(env, Some(first), EventKind::Begin(episode))
    }

    /// Records a step with `action`, as the policy gave it.
    pub fn step(&mut self, env: EnvIndex, action: &[f32], step: &Step) -> Result<(), RecordError> {
        if let (Some(rows), true) = (&mut self.open[env.0], self.has_dataset) {
            rows.push(action, step);
        }
        self.film(env, Some(&step.observation), EventKind::Step)
    }

    /// Ends the episode, which is then written; [`Recorder::poll`] returns it with its files.
    pub fn end(
        &mut self,
        env: EnvIndex,
        episode: Episode,
        end: EpisodeEnd,
    ) -> Result<(), RecordError> {
        let rows = self.open[env.0].take().filter(|_| self.has_dataset);
        let is_filmed = !self.routes[env.0].is_empty();
        let writers = usize::from(rows.is_some()) + usize::from(is_filmed);
        let ticket = self.pending.expect(episode, writers);
        if let Some(rows) = rows {
            let ended = EndedEpisode { ticket, rows, end };
            if !self.dataset.as_mut().is_some_and(|lane| lane.send(ended)) {
                return Err(self.ended());
            }
        }
        let success = end.success;
        self.film(env, None, EventKind::End { ticket, success })
    }

    /// Discards the open episode, if there is one: it gets no demo and no answer. Its frames stay
    /// in the video.
    pub fn forget(&mut self, env: EnvIndex) -> Result<(), RecordError> {
        match self.open[env.0].take() {
            Some(_) => self.film(env, None, EventKind::Discard),
            None => Ok(()),
        }
    }

    /// Returns the episodes that were written since the last call. Does not wait.
    pub fn poll(&mut self) -> Vec<Finished> {
        let answers = self.answers.try_iter();
        answers.for_each(|answer| self.pending.add(answer));
        self.pending.take()
    }

    /// Works like [`Recorder::poll`], but first waits for the next answer, at most for `patience`;
    /// returns `None` if no episode is being written, or all threads have ended.
    pub fn poll_within(&mut self, patience: Duration) -> Option<Vec<Finished>> {
        if self.pending.episodes.is_empty() {
            return None;
        }
        match self.answers.recv_timeout(patience) {
            Ok(answer) => self.pending.add(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        Some(self.poll())
    }

    /// Waits until everything is written and closed; returns the last episodes, and what came of
    /// closing the files. Open episodes are discarded.
    pub fn finish(mut self) -> (Vec<Finished>, Closed) {
        self.hang_up();
        (self.poll(), std::mem::take(&mut self.closed))
    }

    /// Sends an event to all threads that film the environment.
    fn film(
        &mut self,
        env: EnvIndex,
        seen: Option<&Observation>,
        what: EventKind,
    ) -> Result<(), RecordError> {
        if self.routes[env.0].is_empty() {
            return Ok(());
        }
        let all = StepImages::new(seen.map(|seen| seen.video.clone()).unwrap_or_default());
        for lane in &self.routes[env.0] {
            let images = Arc::clone(&all);
            let lane = self.videos.get_mut(*lane);
            if !lane.is_some_and(|lane| lane.send(Event { env, images, what })) {
                return Err(self.ended());
            }
        }
        Ok(())
    }

    /// Ends all threads because one has ended; returns the first error.
    fn ended(&mut self) -> RecordError {
        self.hang_up();
        let ended = || RecordError("a thread of the recorder has ended".to_owned());
        self.closed.result.clone().err().unwrap_or_else(ended)
    }

    /// Ends the threads and keeps their results.
    fn hang_up(&mut self) {
        self.waits = self.waits();
        let videos = self.videos.drain(..).map(Lane::hang_up);
        let threads: Vec<_> = videos
            .chain(self.dataset.take().map(Lane::hang_up))
            .collect();
        self.closed = std::mem::take(&mut self.closed).and(join(threads));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hang_up();
    }
}

#[cfg(test)]
mod tests {
    use jobs::samples;

    use super::*;

    #[test]
    fn an_episode_that_lacks_an_answer_holds_back_those_behind_it() {
        let mut pending = Pending::default();
        let tickets: Vec<_> = (0..3)
            .map(|episode| pending.expect(samples::episode(0, "a", episode), 1))
            .collect();
        let answer = |pending: &mut Pending, at: usize| {
            let (ticket, written) = (tickets[at], Ok(Written::Demo(None)));
            pending.add(Answer { ticket, written });
            let taken = pending.take().into_iter();
            taken.map(|one| one.episode.episode).collect::<Vec<_>>()
        };
        assert_eq!(answer(&mut pending, 1), [0; 0]);
        assert_eq!(answer(&mut pending, 0), [0, 1]);
        assert_eq!(answer(&mut pending, 2), [2]);
    }
}
