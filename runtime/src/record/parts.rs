//! Combines the answers of several threads about one episode.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::record::{Recorded, VideoSpan};

/// Where an episode is in a dataset.
#[derive(Debug)]
pub(super) struct EpisodeLocation {
    /// Path of the dataset.
    pub(super) dataset: PathBuf,
    /// Its name in the dataset.
    pub(super) name: String,
}

/// One thread's answer about a finished episode.
#[derive(Debug, Default)]
pub(super) struct EpisodePart {
    /// The ticket that `expect` returned for the episode.
    pub(super) ticket: u64,
    /// The demo in the dataset.
    pub(super) demo: Option<EpisodeLocation>,
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
    waiting: BTreeMap<u64, Unanswered>,
    ready: BTreeMap<u64, Recorded>,
}

/// A finished episode that lacks answers.
#[derive(Debug)]
struct Unanswered {
    /// Number of threads that have not answered yet.
    missing: usize,
    recorded: Recorded,
}

impl Parts {
    /// Registers an episode about which `threads` threads will answer; returns its ticket.
    pub(super) fn expect(&mut self, recorded: Recorded, threads: usize) -> u64 {
        let ticket = self.next;
        self.next += 1;
        if threads == 0 {
            self.ready.insert(ticket, recorded);
        } else {
            let unanswered = Unanswered {
                missing: threads,
                recorded,
            };
            self.waiting.insert(ticket, unanswered);
        }
        ticket
    }

    /// Adds the answer of a thread.
    pub(super) fn add(&mut self, part: EpisodePart) {
        let Some(Unanswered { missing, recorded }) = self.waiting.get_mut(&part.ticket) else {
            return;
        };
        if let Some(demo) = part.demo {
            recorded.dataset = Some(demo.dataset);
            recorded.demo = Some(demo.name);
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
            && let Some(Unanswered { recorded, .. }) = self.waiting.remove(&part.ticket)
        {
            self.ready.insert(part.ticket, recorded);
        }
    }

    /// Returns the complete episodes, each once, in the order of their ends. One that lacks an answer
    /// holds back those behind it: a dataset has them in the same order, so that after a kill only
    /// its last ones have no line in the journal.
    pub(super) fn take(&mut self) -> Vec<Recorded> {
        let held_back = match self.waiting.keys().next() {
            Some(first) => self.ready.split_off(first),
            None => BTreeMap::new(),
        };
        std::mem::replace(&mut self.ready, held_back)
            .into_values()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::EnvIndex;

    #[test]
    fn an_episode_that_lacks_an_answer_holds_back_those_behind_it() {
        let mut parts = Parts::default();
        let tickets: Vec<_> = (0..3)
            .map(|episode| {
                let recorded = Recorded {
                    env: EnvIndex(0),
                    episode,
                    dataset: None,
                    demo: None,
                    video: None,
                    episode_video: None,
                    warning: None,
                    error: None,
                };
                parts.expect(recorded, 1)
            })
            .collect();
        let answer = |parts: &mut Parts, at: usize| {
            parts.add(EpisodePart {
                ticket: tickets[at],
                ..EpisodePart::default()
            });
            let taken = parts.take().into_iter();
            taken.map(|recorded| recorded.episode).collect::<Vec<_>>()
        };
        assert_eq!(answer(&mut parts, 1), [0; 0]);
        assert_eq!(answer(&mut parts, 0), [0, 1]);
        assert_eq!(answer(&mut parts, 2), [2]);
    }
}
