//! The lines of one job: in order of time, and of each episode the one that counts.

use std::io;

use jobs::episode::counts_instead;
use jobs::job::Length;
use jobs::journal::{EnvLost, JobEnd, JobStart};
use jobs::time::Moment;

use crate::journals::LineReader;
use crate::merged::episode;
use crate::merged::record::{EpisodeRecord, Repetition};

/// Lines of one job.
#[derive(Default)]
pub(crate) struct JobLines {
    /// Episodes by ascending number, each once.
    pub(crate) episodes: Vec<EpisodeRecord>,
    /// Starts of the job, in order of time.
    pub(crate) starts: Vec<JobStart>,
    /// Ends of the job, in order of time.
    pub(crate) ends: Vec<JobEnd>,
    /// Lost environment processes, in order of time.
    pub(crate) losses: Vec<EnvLost>,
    /// Whether the lines are in order, and each counted once.
    pub(super) is_settled: bool,
}

impl JobLines {
    /// Sorts the lines by time and keeps each episode once.
    pub(super) fn settle(&mut self, length: Length, reader: &mut LineReader) -> io::Result<()> {
        if std::mem::replace(&mut self.is_settled, true) {
            return Ok(());
        }
        self.starts
            .sort_by(|a, b| (&a.started, a.rank).cmp(&(&b.started, b.rank)));
        self.starts.dedup();
        self.ends
            .sort_by(|a, b| (&a.ended, a.rank).cmp(&(&b.ended, b.rank)));
        self.ends.dedup();
        let key = |lost: &EnvLost| (lost.at.clone(), lost.rank, lost.env, lost.episode);
        self.losses.sort_by_cached_key(key);
        self.losses.dedup();
        if matches!(length, Length::Steps(_)) {
            forget_earlier(&self.starts, &mut self.episodes);
        }
        self.episodes.sort_unstable_by_key(|record| {
            (record.episode, record.place.source, record.place.offset)
        });
        let mut read = Ok(());
        self.episodes.dedup_by(|next, kept| {
            let is_same = next.episode == kept.episode;
            if is_same {
                match counted([kept, next], reader) {
                    Ok(counts) => *kept = counts,
                    Err(err) => read = Err(err),
                }
            }
            is_same
        });
        self.episodes.shrink_to_fit();
        read
    }
}

/// Returns which of two records of an episode counts, see [`counts_instead`]; identical lines are
/// one record. If the times are equal, the texts decide, so that the order in which journals are
/// read does not matter.
fn counted([a, b]: [&EpisodeRecord; 2], reader: &mut LineReader) -> io::Result<EpisodeRecord> {
    let a_line = reader.line(a.place)?.to_vec();
    let b_line = reader.line(b.place)?;
    if a_line == b_line {
        return Ok(a.clone());
    }
    let of_a = (a.is_scored(), (a.ended, &*a_line));
    let of_b = (b.is_scored(), (b.ended, b_line));
    let (counts, other) = match counts_instead(of_b, of_a) {
        true => (b, a),
        false => (a, b),
    };
    let mut counts = counts.clone();
    if other.is_scored() {
        let again = match episode(&a_line)?.outcome() == episode(b_line)?.outcome() {
            true => Repetition::Agreeing,
            false => Repetition::Differing,
        };
        counts.again = again.max(counts.again).max(other.again);
    }
    Ok(counts)
}

/// Drops the episodes of abandoned attempts; `starts` must be in order of time. An interrupted job
/// in steps starts again from its first step, because each of its episodes continues the one
/// before. Episodes of the earlier attempt no longer count, and are no duplicates.
fn forget_earlier(starts: &[JobStart], episodes: &mut Vec<EpisodeRecord>) {
    let last_first: Vec<_> = starts
        .iter()
        .rev()
        .map(|start| (start.share, Moment::parse(&start.started)))
        .collect();
    if last_first.len() < 2 {
        return;
    }
    episodes.retain(|record| {
        let mut starts = last_first.iter();
        // The last start whose share has the environment of the episode.
        let own = starts
            .find(|(share, _)| share.is_none_or(|share| share.slot(record.episode).is_some()));
        own.is_none_or(|(_, began)| record.ended >= *began)
    });
}
