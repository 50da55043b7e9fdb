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
pub(crate) struct EpisodeCache {
    episodes: Mutex<HashMap<(u32, u64), Arc<Episode>>>,
    most: usize,
}

impl Default for EpisodeCache {
    fn default() -> Self {
        Self::of_size(MOST)
    }
}

impl EpisodeCache {
    /// Creates a cache of at most this many episodes.
    fn of_size(most: usize) -> Self {
        Self {
            episodes: Mutex::default(),
            most,
        }
    }

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
        if episodes.len() < self.most {
            episodes.insert(key, Arc::clone(&found));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use jobs::journal::Line;
    use jobs::samples;

    use super::*;
    use crate::Journals;

    #[test]
    fn episodes_that_find_no_place_are_read_each_time() {
        let lines: Vec<_> = (0..3)
            .map(|number| Line::from(samples::episode(0, "a", number)))
            .collect();
        let journals = Journals::of_lines(&lines);
        let mut offset = 0;
        let place = |line: &Line| {
            let len = u32::try_from(serde_json::to_string(line).unwrap().len()).unwrap();
            let place = LinePosition {
                source: 0,
                len,
                offset,
            };
            offset += u64::from(len) + 1;
            place
        };
        let places: Vec<_> = lines.iter().map(place).collect();
        let cache = EpisodeCache::of_size(2);
        let mut reader = journals.reader();
        let mut look = |index: usize| cache.episode(&mut reader, places[index]).unwrap();
        let first: Vec<_> = (0..3).map(&mut look).collect();
        let again: Vec<_> = (0..3).map(&mut look).collect();
        let same = |(a, b): (&Arc<Episode>, &Arc<Episode>)| Arc::ptr_eq(a, b);
        let kept: Vec<_> = first.iter().zip(&again).map(same).collect();
        assert_eq!(kept, [true, true, false]);
        assert_eq!(first, again);
        assert_eq!(again[2].episode, 2);
    }
}
