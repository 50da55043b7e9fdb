//! How a job stands: which of its ends say so, and whether all of it has come to one.

use std::collections::BTreeSet;

use crate::job::Job;
use crate::journal::JobEnd;
use crate::placement::Share;

/// Ends that say how a job stands, the latest first; `ends` are in time. Of several ranks that share it, the last one of
/// each; an end is of the past when all its environments have a later one.
pub(super) fn standing<'a>(ends: impl DoubleEndedIterator<Item = &'a JobEnd>) -> Vec<&'a JobEnd> {
    let (mut standing, mut covered) = (Vec::new(), BTreeSet::new());
    for end in ends.rev() {
        let Some(share) = end.share else {
            // All environments: what was before it does not stand any more.
            if standing.is_empty() {
                standing.push(end);
            }
            break;
        };
        if share.envs().any(|env| !covered.contains(&env)) {
            standing.push(end);
            covered.extend(share.envs());
        }
    }
    standing
}

/// Whether every environment in `share` (`None`: every one of the job) has come to an end.
pub(super) fn has_ended(standing: &[&JobEnd], job: &Job, share: Option<Share>) -> bool {
    let total = job.sharing.map_or(1, |sharing| sharing.total_num_envs);
    let mut envs = share.map_or(0..total, |share| share.envs());
    let covers = |end: &JobEnd, env: usize| end.share.is_none_or(|share| share.envs().contains(&env));
    envs.all(|env| standing.iter().any(|end| covers(end, env)))
}
