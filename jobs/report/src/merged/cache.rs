//! Lines of episodes that were looked up before, for a run that is watched: its report is made again
//! and again, and few lines are read twice.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use jobs::episode::Episode;

use crate::journals::reader::{LinePosition, LineReader};
use crate::merged::episode;

/// Maximum number of episodes that are kept: about 16 MiB. Those beyond are read for each report, so
/// that whoever watches a long run needs no more memory than for a short one.
const MOST: usize = 16_384;

/// Parsed lines of episodes. A report looks up few of them: some of each job, those with errors, and
/// all of jobs that have metrics or a latency.
#[derive(Default)]
pub(crate) struct EpisodeCache {
    episodes: Mutex<HashMap<(u32, u64), Arc<Episode>>>,
}

impl EpisodeCache {
    /// Returns the episode at `place`, which is read if it was not before.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(crate) fn episode(
        &self,
        reader: &mut LineReader,
        place: LinePosition,
    ) -> io::Result<Arc<Episode>> {
        let key = (place.source, place.offset);
        let mut episodes = self.episodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = episodes.get(&key) {
            return Ok(Arc::clone(found));
        }
        let found = Arc::new(episode(reader.line(place)?)?);
        if episodes.len() < MOST {
            episodes.insert(key, Arc::clone(&found));
        }
        Ok(found)
    }
}
