//! The answers of several threads about one episode, put together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Recorded, VideoSpan};

/// What one thread says about an ended episode.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Which one: counted by `end`.
    pub(super) ticket: u64,
    /// File and name of the demo.
    pub(super) demo: Option<(PathBuf, String)>,
    /// Its part of the environment's video.
    pub(super) video: Option<VideoSpan>,
    /// A video of its own.
    pub(super) episode_video: Option<PathBuf>,
    /// What it goes without, and why.
    pub(super) warning: Option<String>,
    /// Why something of it is not there.
    pub(super) error: Option<String>,
}

/// Ended episodes of which not every thread has spoken.
#[derive(Debug, Default)]
pub(super) struct Parts {
    next: u64,
    waiting: BTreeMap<u64, (usize, Recorded)>,
    ready: BTreeMap<u64, Recorded>,
}

impl Parts {
    /// An episode of which so many threads will speak; the value is its ticket.
    pub(super) fn expect(&mut self, recorded: Recorded, threads: usize) -> u64 {
        let ticket = self.next;
        self.next += 1;
        if threads == 0 {
            self.ready.insert(ticket, recorded);
        } else {
            self.waiting.insert(ticket, (threads, recorded));
        }
        ticket
    }

    /// A thread spoke.
    pub(super) fn add(&mut self, part: Part) {
        let Some((missing, recorded)) = self.waiting.get_mut(&part.ticket) else { return };
        if let Some((file, demo)) = part.demo {
            recorded.dataset = Some(file);
            recorded.demo = Some(demo);
        }
        recorded.video = part.video.or(recorded.video.take());
        recorded.episode_video = part.episode_video.or(recorded.episode_video.take());
        recorded.warning = part.warning.or(recorded.warning.take());
        let errors: Vec<String> = recorded.error.take().into_iter().chain(part.error).collect();
        recorded.error = (!errors.is_empty()).then(|| errors.join("; "));
        *missing -= 1;
        if *missing == 0
            && let Some((_, recorded)) = self.waiting.remove(&part.ticket)
        {
            self.ready.insert(part.ticket, recorded);
        }
    }

    /// Episodes of which all have spoken, each once, in the order of their ends.
    pub(super) fn take(&mut self) -> Vec<Recorded> {
        std::mem::take(&mut self.ready).into_values().collect()
    }
}
