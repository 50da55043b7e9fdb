//! The dataset thread: collects episodes row by row and hands each to the store at its end.

use std::sync::mpsc::{Receiver, Sender};

use crate::env::EnvIndex;
use crate::record::episode::{EpisodeRows, StepRow, StepSnapshot};
use crate::record::lane::Closed;
use crate::record::parts::{EpisodeLocation, EpisodePart};
use crate::record::{EpisodeEnd, EpisodeMeta, RecordError};

/// A message from the recorder.
#[derive(Debug)]
pub(super) enum DatasetMessage {
    /// An episode begins.
    Begin {
        /// Index of the environment.
        env: EnvIndex,
        /// Number, seed and instruction of the episode.
        meta: EpisodeMeta,
        /// Observation after the reset.
        first: StepSnapshot,
    },
    /// A step was taken.
    Step {
        /// Index of the environment.
        env: EnvIndex,
        /// The data of the step.
        row: StepRow,
    },
    /// The episode ended and becomes a demo.
    End {
        /// Index of the environment.
        env: EnvIndex,
        /// Ticket of the answer.
        ticket: u64,
        /// How the episode ended.
        end: EpisodeEnd,
    },
    /// The episode is discarded.
    Discard {
        /// Index of the environment.
        env: EnvIndex,
    },
}

/// A dataset to which episodes are appended.
pub(super) trait DatasetWriter: Send {
    /// Adds an episode and returns where it is, after it is on disk. Returns `None`
    /// if the plan does not keep episodes with this end.
    fn append(
        &mut self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
    ) -> Result<Option<EpisodeLocation>, RecordError>;

    /// Closes the dataset after the last episode.
    fn finish(self: Box<Self>) -> Closed;
}

/// The state of the dataset thread.
pub(super) struct EpisodeCollector {
    /// The dataset.
    pub(super) store: Box<dyn DatasetWriter>,
    /// True if images are written to the dataset as well.
    pub(super) cameras: bool,
    /// The current episode of each environment.
    pub(super) slots: Vec<OpenEpisode>,
    /// Destination of the answers.
    pub(super) answers: Sender<EpisodePart>,
}

/// The current episode of one environment.
#[derive(Default)]
pub(super) struct OpenEpisode {
    episode: Option<EpisodeRows>,
    fault: Option<String>,
}

impl EpisodeCollector {
    /// Runs until the recorder closes the channel, then closes the files.
    pub(super) fn run(mut self, inbox: Receiver<DatasetMessage>) -> Closed {
        for message in inbox {
            match message {
                DatasetMessage::Begin { env, meta, first } => {
                    let episode = EpisodeRows::begin(env, meta, first, self.cameras);
                    self.slots[env.0] = OpenEpisode {
                        episode: Some(episode),
                        fault: None,
                    };
                }
                DatasetMessage::Step { env, row } => self.step(env, row),
                DatasetMessage::Discard { env } => self.slots[env.0] = OpenEpisode::default(),
                DatasetMessage::End { env, ticket, end } => {
                    let (demo, error) = match self.end(env, end) {
                        Ok(demo) => (demo, None),
                        Err(err) => (None, Some(err.to_string())),
                    };
                    // The receiver is gone after the recorder has closed.
                    self.answers
                        .send(EpisodePart {
                            ticket,
                            demo,
                            error,
                            ..EpisodePart::default()
                        })
                        .ok();
                }
            }
        }
        self.store.finish()
    }

    fn step(&mut self, env: EnvIndex, row: StepRow) {
        let slot = &mut self.slots[env.0];
        if let (Some(episode), None) = (&mut slot.episode, &slot.fault) {
            slot.fault = episode.push(row).err();
        }
    }

    fn end(
        &mut self,
        env: EnvIndex,
        end: EpisodeEnd,
    ) -> Result<Option<EpisodeLocation>, RecordError> {
        match std::mem::take(&mut self.slots[env.0]) {
            OpenEpisode {
                fault: Some(fault), ..
            } => Err(RecordError(fault)),
            OpenEpisode { episode: None, .. } => Ok(None),
            OpenEpisode {
                episode: Some(mut episode),
                ..
            } => {
                episode.end();
                self.store.append(&episode, end)
            }
        }
    }
}
