//! The journals of a run whose jobs have changed: lines of the jobs that stay, under the positions that these have now.

use std::collections::HashMap;

use super::difference::{Compared, Difference};
use crate::job::JobIndex;
use crate::journal::Line;

/// Where the lines of a job go.
struct Place {
    after: JobIndex,
    /// Episodes from here on are not counted any more.
    end: Option<u64>,
}

/// What is carried over.
pub(super) struct Carry(HashMap<JobIndex, Place>);

impl Carry {
    pub(super) fn new(difference: &Difference) -> Self {
        let place = |job: &Compared| Some((job.before, Place { after: job.after?, end: job.episodes }));
        Self(difference.jobs.iter().filter(|job| job.stays()).filter_map(place).collect())
    }

    /// The line as it is to stand, `None` if it is about what does not stay.
    pub(super) fn line(&self, line: &Line) -> Option<Line> {
        let mut line = line.clone();
        let (index, episode) = match &mut line {
            Line::Rank(_) | Line::RankEnd(_) | Line::PolicyFiles(_) => return Some(line),
            Line::JobStart(start) => (&mut start.job_index, None),
            Line::JobEnd(end) => (&mut end.job_index, None),
            Line::EpisodeStart(start) => (&mut start.job_index, Some(start.episode)),
            Line::EnvLost(lost) => (&mut lost.job_index, Some(lost.episode)),
            Line::Episode(episode) => (&mut episode.job_index, Some(episode.episode)),
        };
        let place = self.0.get(index)?;
        if episode.zip(place.end).is_some_and(|(episode, end)| episode >= end) {
            return None;
        }
        *index = place.after;
        Some(line)
    }
}
