//! The dataset thread: collects episodes row by row and hands each to the store at its end.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};

use super::closed::Closed;
use super::episode::{Episode, StepRow};
use super::parts::Part;
use super::snapshot::Snapshot;
use super::{EpisodeEnd, EpisodeMeta, RecordError};
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
        /// What the answer is known by.
        ticket: u64,
        /// How.
        end: EpisodeEnd,
    },
    /// The episode ended and does not count.
    Discard {
        /// Where.
        env: EnvIndex,
    },
}

/// A kind of dataset.
pub(super) trait Store: Send {
    /// Adds an episode and answers with the file and the name in it, once it is on disk; with neither when the plan
    /// does not want episodes that ended so.
    fn append(&mut self, episode: &Episode, end: EpisodeEnd) -> Result<Option<(PathBuf, String)>, RecordError>;

    /// All is written.
    fn finish(self: Box<Self>) -> Closed;
}

/// All that the thread owns.
pub(super) struct Writer {
    /// The dataset.
    pub(super) store: Box<dyn Store>,
    /// Pictures go to the dataset as well.
    pub(super) cameras: bool,
    /// One an environment.
    pub(super) slots: Vec<Slot>,
    /// Where answers go.
    pub(super) answers: Sender<Part>,
}

/// The episode that one environment is in.
#[derive(Default)]
pub(super) struct Slot {
    episode: Option<Episode>,
    fault: Option<String>,
}

impl Writer {
    /// Works until the recorder hangs up, then closes the files.
    pub(super) fn run(mut self, inbox: &Receiver<Message>) -> Closed {
        for message in inbox {
            match message {
                Message::Begin { env, meta, first } => {
                    let episode = Episode::begin(env, meta, first, self.cameras);
                    self.slots[env.0] = Slot { episode: Some(episode), fault: None };
                }
                Message::Step { env, row } => self.step(env, row),
                Message::Discard { env } => self.slots[env.0] = Slot::default(),
                Message::End { env, ticket, end } => {
                    let (demo, error) = match self.end(env, end) {
                        Ok(demo) => (demo, None),
                        Err(reason) => (None, Some(reason)),
                    };
                    // A recorder that hung up no longer wants to know.
                    self.answers.send(Part { ticket, demo, error, ..Part::default() }).ok();
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

    fn end(&mut self, env: EnvIndex, end: EpisodeEnd) -> Result<Option<(PathBuf, String)>, String> {
        match std::mem::take(&mut self.slots[env.0]) {
            Slot { fault: Some(reason), .. } => Err(reason),
            Slot { episode: None, .. } => Ok(None),
            Slot { episode: Some(episode), .. } => self.store.append(&episode, end).map_err(|err| err.to_string()),
        }
    }
}
