//! A job in steps that was interrupted begins again from its first step, as its episodes follow from one another. What
//! the attempt before had finished is then of the past: it does not count, and is no duplicate.

use super::record::Record;
use crate::journal::JobStart;
use crate::time::Moment;

/// Leaves out the episodes of attempts that were begun again; `starts` are in time.
pub(super) fn forget_earlier(starts: &[JobStart], episodes: &mut Vec<Record>) {
    let last_first: Vec<_> = starts.iter().rev().map(|start| (start.share, Moment::parse(&start.started))).collect();
    if last_first.len() < 2 {
        return;
    }
    episodes.retain(|record| {
        let mut starts = last_first.iter();
        // The last one that began its environment.
        let own = starts.find(|(share, _)| share.is_none_or(|share| share.slot(record.episode).is_some()));
        own.is_none_or(|(_, began)| record.ended >= *began)
    });
}
