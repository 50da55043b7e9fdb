//! Drops the episodes of abandoned attempts. An interrupted job in steps starts again from its
//! first step, because each of its episodes continues the one before. Episodes of the earlier
//! attempt no longer count, and are no duplicates.

use jobs::journal::JobStart;
use jobs::time::Moment;

use crate::merged::record::EpisodeRecord;

/// Removes the episodes of attempts that were started again; `starts` must be in order of time.
pub(crate) fn forget_earlier(starts: &[JobStart], episodes: &mut Vec<EpisodeRecord>) {
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
