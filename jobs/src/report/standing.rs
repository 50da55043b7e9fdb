//! Determines the status of a job: which of its ends are current, and whether all of it has ended.

use std::ops::Range;

use crate::job::Job;
use crate::journal::JobEnd;
use crate::placement::Share;

/// Returns the ends that determine the status of a job, the latest first; `ends` must be in order
/// of time. If several ranks share the job, the last end of each counts. An end is outdated if all
/// its environments have a later one.
pub(super) fn standing<'a>(ends: impl DoubleEndedIterator<Item = &'a JobEnd>) -> Vec<&'a JobEnd> {
    let (mut standing, mut covered) = (Vec::new(), Vec::new());
    for end in ends.rev() {
        let Some(share) = end.share else {
            // This end is about all environments, so earlier ends are outdated.
            if standing.is_empty() {
                standing.push(end);
            }
            break;
        };
        if !is_covered(share.envs(), &covered) {
            standing.push(end);
            covered.push(share.envs());
        }
    }
    standing
}

/// Returns whether every environment in `share` has ended; `None` stands for all environments of
/// the job.
pub(super) fn has_ended(standing: &[&JobEnd], job: &Job, share: Option<Share>) -> bool {
    let total = job.sharing.map_or(1, |sharing| sharing.total_num_envs);
    let envs = share.map_or(0..total, |share| share.envs());
    let ended: Vec<_> = standing
        .iter()
        .map(|end| end.share.map_or(0..usize::MAX, |share| share.envs()))
        .collect();
    is_covered(envs, &ended)
}

/// Returns whether all of `envs` are covered by other ranges. It does not iterate over
/// environments: a journal from another user may have shares of any size in each line.
fn is_covered(envs: Range<usize>, by: &[Range<usize>]) -> bool {
    let mut left = vec![envs];
    left.retain(|part| !part.is_empty());
    for other in by {
        if left.is_empty() {
            break;
        }
        let without = |part: Range<usize>| {
            let before = part.start..part.end.min(other.start);
            let behind = part.start.max(other.end)..part.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        };
        left = left.into_iter().flat_map(without).collect();
    }
    left.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_covered_is_what_a_look_at_each_says(
            envs in (0usize..12, 0usize..12), by in proptest::collection::vec((0usize..12, 0usize..12), 0..5)
        ) {
            let (envs, by) = (envs.0..envs.1, by.into_iter().map(|(first, end)| first..end).collect::<Vec<_>>());
            let wanted = envs.clone().all(|env| by.iter().any(|other| other.contains(&env)));
            prop_assert_eq!(is_covered(envs, &by), wanted);
        }
    }
}
