//! Lists the episodes that are missing, duplicated, failed with an error, or not solved. A success
//! rate is misleading if some episodes never ran, so a report begins with coverage.

use std::collections::HashMap;
use std::io;

use jobs::job::{Job, Length, Status};
use jobs::numbers::Numbers;

use crate::merged::Merged;
use crate::merged::record::{EpisodeRecord, Repetition};
use crate::schema::{Duplicate, EpisodeId, FailureReport, LISTED, Reason, Report, Unsolved};

/// Number of unsolved episodes that a report shows of one job.
const UNSOLVED_OF_A_JOB: usize = 5;

impl Merged {
    /// Returns the numbers of the expected episodes of a job that were not found. The episodes of a
    /// job in steps are not known beforehand. Time and memory depend on the episodes found, because
    /// a plan may ask for any number.
    pub fn missing_of(&self, job: &Job) -> Numbers {
        let found = self.episodes(job.index).iter();
        let wanted = job.selection(self.numbers(job));
        wanted.without(found.map(|record| record.episode))
    }

    /// Returns whether a sequential test has decided, and the job has all episodes that it needed.
    pub(crate) fn has_all_needed(&self, job: &Job) -> bool {
        self.needed_rounds().is_some() && self.missing_of(job).is_empty()
    }

    /// Returns how many episodes of a job are known beforehand to be needed; they are numbered from
    /// 0.
    fn numbers(&self, job: &Job) -> u64 {
        match (job.status, job.length) {
            (Status::Pending, Length::Episodes(count)) => {
                count.min(self.needed_rounds().unwrap_or(count))
            }
            (_, Length::Steps(_)) => 0,
            _ => self.expected(job).unwrap_or(0),
        }
    }

    /// Returns the episodes of a job that were scored by more than one line.
    pub fn duplicates_of<'m>(&'m self, job: &'m Job) -> impl Iterator<Item = Duplicate> + use<'m> {
        let records = self.episodes(job.index).iter();
        let again = records.filter(|record| record.again != Repetition::Once);
        again.map(|record| Duplicate {
            job: job.name.clone(),
            episode: record.episode,
            agree: record.again == Repetition::Agreeing,
        })
    }

    /// Returns all episodes that count, with their jobs.
    fn records(&self) -> impl Iterator<Item = (&Job, &EpisodeRecord)> {
        self.plan.jobs.iter().flat_map(|job| {
            let records = self.episodes(job.index).iter();
            records.map(move |record| (job, record))
        })
    }
}

/// Fills in the lists of a report that has its jobs: what is missing, ran twice, broke, was not
/// solved or was lost.
pub(crate) fn fill(merged: &Merged, report: &mut Report) -> io::Result<()> {
    for job in &merged.plan.jobs {
        let missing = merged.missing_of(job);
        let id = |episode| EpisodeId {
            job: job.name.clone(),
            episode,
        };
        let room = LISTED - report.missing.len();
        report.missing.extend(missing.iter().map(id).take(room));
        report.missing_count += missing.count();
    }
    let jobs = || merged.plan.jobs.iter();
    (report.duplicates, report.duplicates_count) =
        listed(jobs().flat_map(|job| merged.duplicates_of(job)));
    let losses = jobs().flat_map(|job| &merged.lines(job.index).losses);
    (report.env_losses, report.env_losses_count) = listed(losses.cloned());
    failures(merged, report)?;
    unsolved(merged, report)
}

/// Returns the first items of a list, and the number of all.
fn listed<T>(mut items: impl Iterator<Item = T>) -> (Vec<T>, u64) {
    let first: Vec<_> = items.by_ref().take(LISTED).collect();
    let count = first.len() + items.count();
    (first, count as u64)
}

/// Collects the errors of jobs, then of episodes.
fn failures(merged: &Merged, report: &mut Report) -> io::Result<()> {
    let (list, count) = (&mut report.failures, &mut report.failures_count);
    let mut reasons = HashMap::new();
    let mut add = |failure: FailureReport| {
        *count += 1;
        // If there are very many different reasons, the remaining ones are counted as one.
        let is_listed = reasons.contains_key(&failure.reason) || reasons.len() < LISTED;
        let reason = match is_listed {
            true => failure.reason.clone(),
            false => "other reasons".to_owned(),
        };
        *reasons.entry(reason).or_default() += 1;
        if list.len() < LISTED {
            list.push(failure);
        }
    };
    for (job, report) in merged.plan.jobs.iter().zip(&report.per_job) {
        let Some(reason) = report.error.clone() else {
            continue;
        };
        let standing = merged.standing(job.index);
        let failed = standing.iter().find(|end| end.error.is_some());
        add(FailureReport {
            job: job.name.clone(),
            episode: None,
            rank: failed.map(|end| end.rank),
            reason,
            log: report.log.clone(),
        });
    }
    let mut reader = merged.journals.reader();
    for (job, record) in merged.records().filter(|(_, record)| !record.is_scored()) {
        let Some(reason) = merged.episode(&mut reader, record)?.error.clone() else {
            continue;
        };
        let rank = record.rank as usize;
        let ends = merged.lines(job.index).ends.iter().rev();
        let mut own = ends.filter(|end| end.rank == rank);
        let log = own.find_map(|end| end.log.clone());
        add(FailureReport {
            job: job.name.clone(),
            episode: Some(record.episode),
            rank: Some(rank),
            reason,
            log,
        });
    }
    let reasons = reasons.into_iter();
    let mut by_reason: Vec<_> = reasons
        .map(|(reason, count)| Reason { reason, count })
        .collect();
    by_reason.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    report.failures_by_reason = by_reason;
    Ok(())
}

/// Collects episodes that were scored but not solved: a few of each job.
fn unsolved(merged: &Merged, report: &mut Report) -> io::Result<()> {
    let mut reader = merged.journals.reader();
    for job in &merged.plan.jobs {
        let records = merged.episodes(job.index).iter();
        let of_job = records.filter(|record| record.is_scored() && !record.is_solved());
        report.unsolved_count += of_job.clone().count() as u64;
        let room = LISTED - report.unsolved.len();
        for record in of_job.take(UNSOLVED_OF_A_JOB.min(room)) {
            let episode = merged.episode(&mut reader, record)?;
            report.unsolved.push(Unsolved {
                job: job.name.clone(),
                episode: episode.episode,
                seed: episode.seed,
                rank: episode.rank,
                end: episode.end,
                length: episode.length,
                return_: episode.return_,
                max_reward: episode.max_reward,
                video: episode.video.clone(),
                episode_video: episode.episode_video.clone(),
            });
        }
    }
    Ok(())
}
