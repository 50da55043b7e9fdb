//! Determines from journal lines which work is done, which a resumed run skips, and which ends of a
//! job are current.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::file::MAX_EPISODES;
use crate::job::{Job, JobIndex, Length, Status};
use crate::journal::{JobEnd, Line};
use crate::placement::Share;

/// Returns the finished episodes by job, which a resumed run skips. An errored episode is run
/// again.
pub fn done<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<JobIndex, Vec<u64>> {
    let mut done: BTreeMap<JobIndex, Vec<u64>> = BTreeMap::new();
    for line in lines {
        if let Line::Episode(episode) = line
            && episode.error.is_none()
        {
            done.entry(episode.job_index)
                .or_default()
                .push(episode.episode);
        }
    }
    for episodes in done.values_mut() {
        episodes.sort_unstable();
        episodes.dedup();
    }
    done
}

/// Returns how many finished episodes of a job were solved. Of several lines about an episode the
/// first scored one counts.
pub fn solved<'a>(lines: impl IntoIterator<Item = &'a Line>, job: JobIndex) -> u64 {
    let mut first: BTreeMap<u64, (&str, bool)> = BTreeMap::new();
    for line in lines {
        if let Line::Episode(episode) = line
            && episode.job_index == job
            && episode.error.is_none()
        {
            let this = (episode.ended.as_str(), episode.success == Some(true));
            let kept = first.entry(episode.episode).or_insert(this);
            if this.0 < kept.0 {
                *kept = this;
            }
        }
    }
    first.values().filter(|(_, solved)| *solved).count() as u64
}

/// Returns whether a rank's part of a job has already run to its end, so that nothing is left to
/// do. `share` is the share of the rank, or `None` for the whole job.
///
/// A job with a number of episodes is finished if all of them are there without an error, no matter
/// which ranks ran them and how its attempts ended. A job of another length must also have ended
/// without an error.
pub fn finished<'a>(
    lines: impl IntoIterator<Item = &'a Line>,
    job: &Job,
    share: Option<Share>,
) -> bool {
    let is_ours = |episode: u64| {
        job.selects(episode) && share.is_none_or(|share| share.slot(episode).is_some())
    };
    let mut episodes: BTreeMap<u64, bool> = BTreeMap::new();
    let (mut ends, mut said) = (Vec::new(), None);
    for line in lines {
        match line {
            Line::Episode(episode)
                if episode.job_index == job.index && is_ours(episode.episode) =>
            {
                *episodes.entry(episode.episode).or_default() |= episode.error.is_none();
            }
            Line::JobEnd(end) if end.job_index == job.index => ends.push(&**end),
            Line::JobStart(start) if start.job_index == job.index => {
                // The journal may come from another user; a job has at most this many episodes.
                let this = start
                    .episodes
                    .map(|count| (start.started.as_str(), count.min(MAX_EPISODES)));
                said = said.max(this);
            }
            _ => {}
        }
    }
    let scored = episodes.values().filter(|scored| **scored).count() as u64;
    let all = |count: u64| {
        let selection = job.selection(count);
        let ours = selection.iter().filter(|episode| is_ours(*episode));
        scored >= ours.count() as u64
    };
    ends.sort_by(|a, b| a.ended.cmp(&b.ended));
    let standing = standing(ends.into_iter());
    let touches = |end: &JobEnd| match (end.share, share) {
        (Some(theirs), Some(ours)) => {
            let (theirs, ours) = (theirs.envs(), ours.envs());
            theirs.start.max(ours.start) < theirs.end.min(ours.end)
        }
        _ => true,
    };
    let ended = || {
        let failed = standing
            .iter()
            .any(|end| end.error.is_some() && touches(end));
        scored == episodes.len() as u64 && has_ended(&standing, job, share) && !failed
    };
    match job.length {
        Length::Episodes(count) => all(count),
        Length::Steps(_) => ended(),
        Length::Policy => said.is_some_and(|(_, count)| all(count)) && ended(),
    }
}

/// Returns the status of a job before a launch, and how many of its episodes are done if some are:
/// `completed, 4 done`. `lines` are the lines about the job.
pub fn status_so_far(lines: &[&Line], job: &Job) -> String {
    if job.status != Status::Pending {
        return job.status.as_str().to_owned();
    }
    let done = done(lines.iter().copied())
        .remove(&job.index)
        .unwrap_or_default();
    let done = done.into_iter().filter(|episode| job.selects(*episode));
    let done = done.count() as u64;
    let is_finished = match job.length {
        Length::Episodes(count) => done >= job.selected(count),
        Length::Steps(_) | Length::Policy => finished(lines.iter().copied(), job, None),
    };
    let status = match is_finished {
        true => Status::Completed,
        false => job.status,
    };
    // An interrupted job in steps starts over, so that nothing of it is done.
    let starts_over = !is_finished && matches!(job.length, Length::Steps(_));
    match done {
        1.. if !starts_over => format!("{}, {done} done", status.as_str()),
        _ => status.as_str().to_owned(),
    }
}

/// Returns when the last episode ended, if a launch that began at the UTC time `launched` has found
/// every job done that is to run.
pub fn done_before(lines: &[Line], jobs: &[Job], launched: &str) -> Option<String> {
    let has_begun = |line: &Line| match line {
        Line::JobStart(start) => start.started.as_str() >= launched,
        _ => false,
    };
    if lines.iter().any(has_begun) {
        return None;
    }
    let mut about: BTreeMap<JobIndex, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        if let Some((_, job)) = line.job() {
            about.entry(job).or_default().push(line);
        }
    }
    let mut pending = jobs.iter().filter(|job| job.status == Status::Pending);
    let is_done = |job: &Job| {
        let about = about.get(&job.index).map_or(&[][..], Vec::as_slice);
        status_so_far(about, job).starts_with(Status::Completed.as_str())
    };
    if !pending.all(is_done) {
        return None;
    }
    let ended = |line: &Line| match line {
        Line::Episode(episode) => Some(episode.ended.clone()),
        _ => None,
    };
    lines.iter().filter_map(ended).max()
}

/// Returns the ends that determine the status of a job, the latest first; `ends` must be in order
/// of time. If several ranks share the job, the last end of each counts. An end is outdated if all
/// its environments have a later one.
pub fn standing<'a>(ends: impl DoubleEndedIterator<Item = &'a JobEnd>) -> Vec<&'a JobEnd> {
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
pub fn has_ended(standing: &[&JobEnd], job: &Job, share: Option<Share>) -> bool {
    let total = job.total_num_envs.unwrap_or(1);
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
    use serde_json::json;

    use super::*;
    use crate::journal::JobStart;
    use crate::samples;

    fn job(length: (&str, u64)) -> Job {
        let mut entry = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                               "policy_type": "scripted"});
        entry[length.0] = length.1.into();
        crate::file::parse(&json!({"jobs": [entry]}))
            .unwrap()
            .remove(0)
    }

    #[test]
    fn the_status_before_a_launch_is_what_the_journals_have() {
        let lines = [0, 1, 2, 2].map(|episode| Line::from(samples::episode(0, "a", episode)));
        let about: Vec<_> = lines.iter().collect();
        let of = |length, lines: &[&Line]| status_so_far(lines, &job(length));
        assert_eq!(of(("num_episodes", 4), &[]), "pending");
        assert_eq!(of(("num_episodes", 4), &about), "pending, 3 done");
        assert_eq!(of(("num_episodes", 3), &about), "completed, 3 done");
        assert_eq!(of(("num_steps", 90), &about), "pending");
        let end = Line::JobEnd(Box::default());
        let ended: Vec<_> = about.iter().copied().chain([&end]).collect();
        assert_eq!(of(("num_steps", 90), &ended), "completed, 3 done");
    }

    #[test]
    fn a_launch_that_finds_all_done_knows_when_the_last_episode_ended() {
        let jobs = [job(("num_episodes", 2))];
        let at = |minute: u64| format!("2026-11-21T10:{minute:02}:00.000Z");
        let episode = |number, minute| {
            let mut episode = samples::episode(0, "a", number);
            episode.ended = at(minute);
            Line::from(episode)
        };
        let start = |minute| {
            Line::JobStart(JobStart {
                started: at(minute),
                ..JobStart::default()
            })
        };
        let mut lines = vec![start(1), episode(1, 5), episode(0, 3)];
        assert_eq!(done_before(&lines, &jobs, &at(9)), Some(at(5)));
        assert_eq!(done_before(&lines[..2], &jobs, &at(9)), None, "one is left");
        assert_eq!(
            done_before(&lines, &jobs, &at(1)),
            None,
            "run by this launch"
        );
        lines.push(start(10));
        assert_eq!(
            done_before(&lines, &jobs, &at(9)),
            None,
            "another rank runs it"
        );
        assert_eq!(done_before(&[], &jobs, &at(9)), None);
    }

    #[test]
    fn a_part_that_only_selects_is_complete_without_the_rest() {
        let mut part = job(("num_episodes", 9));
        part.only = Some("1-2".parse().unwrap());
        let lines = [1, 2].map(|episode| Line::from(samples::episode(0, "a", episode)));
        let about: Vec<_> = lines.iter().collect();
        assert_eq!(status_so_far(&about, &part), "completed, 2 done");
        assert_eq!(status_so_far(&about[..1], &part), "pending, 1 done");
        part.status = Status::Failed;
        assert_eq!(status_so_far(&about, &part), "failed");
    }

    #[test]
    fn a_job_of_which_a_part_is_selected_is_finished_with_that_part() {
        let mut part = job(("num_episodes", 9));
        let lines = [1, 2].map(|episode| Line::from(samples::episode(0, "a", episode)));
        assert!(!finished(&lines, &part, None));
        part.only = Some("1-2".parse().unwrap());
        assert!(finished(&lines, &part, None));
        part.only = Some("2-3".parse().unwrap());
        assert!(
            !finished(&lines, &part, None),
            "3 is missing, and 1 does not count"
        );
    }

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
