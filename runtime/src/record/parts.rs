//! Combines the answers of several threads about one episode.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::record::{Recorded, VideoSpan};

/// One thread's answer about a finished episode.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The ticket that `expect` returned for the episode.
    pub(super) ticket: u64,
    /// File and name of the demo.
    pub(super) demo: Option<(PathBuf, String)>,
    /// Its part of the environment's video.
    pub(super) video: Option<VideoSpan>,
    /// Path of its own video.
    pub(super) episode_video: Option<PathBuf>,
    /// What is not recorded, and why.
    pub(super) warning: Option<String>,
    /// Why a required part is missing.
    pub(super) error: Option<String>,
}

/// Finished episodes that still lack the answer of a thread.
#[derive(Debug, Default)]
pub(super) struct Parts {
    next: u64,
    waiting: BTreeMap<u64, (usize, Recorded)>,
    ready: BTreeMap<u64, Recorded>,
}

impl Parts {
    /// Registers an episode about which `threads` threads will answer; returns its ticket.
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

    /// Adds the answer of a thread.
    pub(super) fn add(&mut self, part: Part) {
        let Some((missing, recorded)) = self.waiting.get_mut(&part.ticket) else {
            return;
        };
        if let Some((file, demo)) = part.demo {
            recorded.dataset = Some(file);
            recorded.demo = Some(demo);
        }
        recorded.video = part.video.or(recorded.video.take());
        recorded.episode_video = part.episode_video.or(recorded.episode_video.take());
        recorded.warning = part.warning.or(recorded.warning.take());
        let errors: Vec<String> = recorded
            .error
            .take()
            .into_iter()
            .chain(part.error)
            .collect();
        recorded.error = (!errors.is_empty()).then(|| errors.join("; "));
        *missing -= 1;
        if *missing == 0
            && let Some((_, recorded)) = self.waiting.remove(&part.ticket)
        {
            self.ready.insert(part.ticket, recorded);
        }
    }

    /// Returns the complete episodes, each once, in the order of their ends.
    pub(super) fn take(&mut self) -> Vec<Recorded> {
        std::mem::take(&mut self.ready).into_values().collect()
    }
}
