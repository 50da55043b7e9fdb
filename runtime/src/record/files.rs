//! The recorder thread: owns the files, takes what the recorder sends, answers for each ended episode.

use std::sync::mpsc::{Receiver, Sender};

use super::dataset::Dataset;
use super::episode::{Episode, StepRow};
use super::snapshot::Snapshot;
use super::video::Video;
use super::{EpisodeEnd, EpisodeMeta, RecordError, Recorded};
use crate::env::EnvIndex;

/// What the recorder sends.
#[derive(Debug)]
pub(super) enum Message {
    /// An episode begins.
    Begin {
        /// Where.
        env: EnvIndex,
        /// Which.
        meta: EpisodeMeta,
        /// After the reset.
        first: Snapshot,
    },
    /// A step was taken.
    Step {
        /// Where.
        env: EnvIndex,
        /// What it adds.
        row: StepRow,
    },
    /// The episode ended and becomes a demo.
    End {
        /// Where.
        env: EnvIndex,
        /// How.
        end: EpisodeEnd,
    },
    /// The episode ended and does not count.
    Discard {
        /// Where.
        env: EnvIndex,
    },
}

/// All that the thread owns.
pub(super) struct Files {
    /// The dataset file, when one is wanted.
    pub(super) dataset: Option<Dataset>,
    /// Pictures go to the dataset as well.
    pub(super) cameras: bool,
    /// One an environment, or none at all.
    pub(super) videos: Vec<Video>,
    /// One an environment.
    pub(super) slots: Vec<Slot>,
}

/// The episode that one environment is in.
#[derive(Default)]
pub(super) struct Slot {
    meta: Option<EpisodeMeta>,
    episode: Option<Episode>,
    fault: Option<String>,
}

impl Files {
    /// Works until the recorder hangs up, then closes the files.
    pub(super) fn run(mut self, messages: &Receiver<Message>, answers: &Sender<Recorded>) -> Result<(), RecordError> {
        for message in messages {
            match message {
                Message::Begin { env, meta, first } => self.begin(env, meta, first),
                Message::Step { env, row } => self.step(env, row),
                Message::Discard { env } => self.discard(env),
                Message::End { env, end } => {
                    if let Some(recorded) = self.end(env, end) {
                        // A recorder that hung up no longer wants to know.
                        answers.send(recorded).ok();
                    }
                }
            }
        }
        self.close()
    }

    fn begin(&mut self, env: EnvIndex, meta: EpisodeMeta, first: Snapshot) {
        if let Some(video) = self.videos.get_mut(env.0) {
            video.begin();
            video.push(&first.video);
        }
        let wanted = self.dataset.is_some();
        let episode = wanted.then(|| Episode::begin(env, meta.clone(), first, self.cameras));
        self.slots[env.0] = Slot { meta: Some(meta), episode, fault: None };
    }

    fn step(&mut self, env: EnvIndex, row: StepRow) {
        if let Some(video) = self.videos.get_mut(env.0) {
            video.push(&row.after.video);
        }
        let slot = &mut self.slots[env.0];
        if let (Some(episode), None) = (&mut slot.episode, &slot.fault) {
            slot.fault = episode.push(row).err();
        }
    }

    fn end(&mut self, env: EnvIndex, end: EpisodeEnd) -> Option<Recorded> {
        let slot = std::mem::take(&mut self.slots[env.0]);
        let episode = slot.meta?.episode;
        let (demo, demo_error) = match (&mut self.dataset, slot.episode, slot.fault) {
            (Some(dataset), Some(data), None) => split(dataset.append(&data, end).map_err(|err| err.to_string())),
            (_, _, fault) => (None, fault),
        };
        let (video, video_error) = match self.videos.get_mut(env.0).map(Video::end) {
            None => (None, None),
            Some(ended) => {
                let (span, error) = split(ended);
                (span.flatten(), error)
            }
        };
        let errors: Vec<String> = demo_error.into_iter().chain(video_error).collect();
        let error = (!errors.is_empty()).then(|| errors.join("; "));
        Some(Recorded { env, episode, demo, video, error })
    }

    fn discard(&mut self, env: EnvIndex) {
        self.slots[env.0] = Slot::default();
        if let Some(Err(reason)) = self.videos.get_mut(env.0).map(Video::end) {
            // The next episode that ends here answers with it.
            tracing::debug!(reason, "video of a discarded episode");
        }
    }

    /// Closes all files, also after one of them refused; answers with the first refusal.
    fn close(self) -> Result<(), RecordError> {
        let dataset = self.dataset.map_or(Ok(()), |mut dataset| dataset.finish());
        self.videos.into_iter().map(|video| video.finish().map_err(RecordError::Video)).fold(dataset, Result::and)
    }
}

fn split<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(reason) => (None, Some(reason)),
    }
}
