//! Carries journal lines over to a run whose jobs have changed: it keeps the lines of the jobs that
//! stay, and renumbers them to the new positions of these jobs.

use std::collections::HashMap;

use crate::job::JobIndex;
use crate::journal::Line;
use crate::plan::difference::{ComparedJob, Difference};

/// New position of a job, and how many of its episodes are kept.
struct NewPosition {
    after: JobIndex,
    /// Episodes from this number on are dropped; `None` keeps all.
    end: Option<u64>,
}

/// The jobs that stay, by their old position.
pub(super) struct Carry(HashMap<JobIndex, NewPosition>);

impl Carry {
    pub(super) fn new(difference: &Difference) -> Self {
        let place = |job: &ComparedJob| {
            Some((
                job.before,
                NewPosition {
                    after: job.after?,
                    end: job.episodes,
                },
            ))
        };
        Self(
            difference
                .jobs
                .iter()
                .filter(|job| job.stays())
                .filter_map(place)
                .collect(),
        )
    }

    /// Returns the line with its new job position, or `None` if its job or episode does not stay.
    pub(super) fn line(&self, line: &Line) -> Option<Line> {
        let mut line = line.clone();
        let (index, episode) = match &mut line {
            Line::Rank(_) | Line::RankEnd(_) => return Some(line),
            // They were about the jobs as they were. Files are hashed again at the next start.
            Line::Decision(_) | Line::PolicyFiles(_) => return None,
            Line::JobStart(start) => (&mut start.job_index, None),
            Line::JobEnd(end) => (&mut end.job_index, None),
            Line::EpisodeStart(start) => (&mut start.job_index, Some(start.episode)),
            Line::EnvLost(lost) => (&mut lost.job_index, Some(lost.episode)),
            Line::Episode(episode) => (&mut episode.job_index, Some(episode.episode)),
        };
        let place = self.0.get(index)?;
        if episode
            .zip(place.end)
            .is_some_and(|(episode, end)| episode >= end)
        {
            return None;
        }
        *index = place.after;
        Some(line)
    }
}
