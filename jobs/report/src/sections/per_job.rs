//! Computes the report of each job.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use jobs::costs::Costs;
use jobs::job::{Job, Length, Status};
use jobs::journal::{JobEnd, Quantiles};
use jobs::progress;

use crate::merged::Merged;
use crate::merged::lives::{Events, busy, busy_share};
use crate::merged::record::{EpisodeRecord, Name};
use crate::schema::{JobReport, Rates};
use crate::sections::latency;
use crate::sections::rates::JobEpisodes;

/// Returns the report of one job.
pub(crate) fn job(merged: &Merged, of: &JobEpisodes) -> io::Result<JobReport> {
    let (job, episodes, lines) = (of.job, of.records, merged.lines(of.job.index));
    let (starts, ends) = (&lines.starts, &lines.ends);
    let standing = merged.standing(job.index);
    let rates = Rates::of([of]);
    let costs: Costs = ends.iter().map(|end| &end.costs).collect();
    let wall_s = by_rank(job, ends, |end| end.rank, |end| end.wall_s);
    let ranks: BTreeSet<usize> = episodes.iter().map(|record| record.rank as usize).collect();
    let places = || {
        let events = merged.state.events.iter();
        let own = events.filter(|events| ranks.contains(&events.rank));
        own.filter_map(Events::place)
    };
    let status = status(merged, job, &rates, &standing);
    let failed = standing
        .iter()
        .find(|end| end.error.is_some())
        .filter(|_| status != Status::Completed);
    Ok(JobReport {
        name: job.name.clone(),
        index: job.index,
        variant_of: job.variant.as_ref().map(|variant| variant.of.clone()),
        environment: job.environment.clone(),
        policy_type: job.policy_type.clone(),
        instruction: instruction(merged, episodes),
        num_envs: job.num_envs,
        nodes: distinct(places().map(|start| start.node)),
        devices: distinct(places().map(|start| start.device.clone())),
        ranks: ranks.iter().copied().collect(),
        status,
        error: failed.and_then(|end| end.error.clone()),
        attempts: by_rank(job, starts, |start| start.rank, |_| 1.0) as u64,
        log: failed.and_then(|end| end.log.clone()),
        settings: merged.settings_of(job).last().cloned().unwrap_or_default(),
        metrics: metrics(merged, job, &rates)?,
        rates,
        latency: latency::of_job(merged, job)?,
        wall_s,
        steps_per_s: (wall_s > 0.0).then(|| costs.env_steps as f64 / wall_s),
        costs,
        infer_busy_s: by_rank(job, ends, |end| end.rank, |end| end.infer_busy_s),
        sim_busy_s: by_rank(job, ends, |end| end.rank, |end| end.sim_busy_s),
        infer_ms: slowest(standing.iter().map(|end| end.infer_ms)),
        sim_ms: slowest(standing.iter().map(|end| end.sim_ms)),
        gpu_busy: busy_share(ends.iter().filter_map(busy)),
        datasets: names(merged, episodes, |record| record.dataset),
        videos: names(merged, episodes, |record| record.video),
    })
}

/// Sums `value` over the attempts in each rank, and returns the largest sum: attempts follow one
/// another, but ranks that share a job work at the same time.
fn by_rank<T>(job: &Job, lines: &[T], rank: fn(&T) -> usize, value: fn(&T) -> f64) -> f64 {
    let mut ranks: BTreeMap<usize, f64> = BTreeMap::new();
    lines
        .iter()
        .for_each(|line| *ranks.entry(rank(line)).or_default() += value(line));
    match job.total_num_envs {
        None => ranks.into_values().sum(),
        Some(_) => ranks.into_values().fold(0.0, f64::max),
    }
}

/// Returns the largest quantiles, those of the slowest rank, because quantiles cannot be merged.
fn slowest(quantiles: impl Iterator<Item = Quantiles>) -> Quantiles {
    let most = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    quantiles.fold(Quantiles::default(), |a, b| Quantiles {
        p50: most(a.p50, b.p50),
        p95: most(a.p95, b.p95),
    })
}

fn names(
    merged: &Merged,
    episodes: &[EpisodeRecord],
    file: fn(&EpisodeRecord) -> Option<Name>,
) -> Vec<String> {
    let names = distinct(episodes.iter().filter_map(file)).into_iter();
    distinct(names.map(|name| merged.name(name).to_owned()))
}

fn instruction(merged: &Merged, episodes: &[EpisodeRecord]) -> Option<String> {
    let first = episodes.first()?.instruction;
    let are_equal = episodes.iter().all(|record| record.instruction == first);
    are_equal.then(|| merged.name(first).to_owned())
}

/// Returns the distinct values in ascending order.
pub(crate) fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect::<BTreeSet<T>>().into_iter().collect()
}

fn status(merged: &Merged, job: &Job, rates: &Rates, standing: &[&JobEnd]) -> Status {
    if job.status != Status::Pending {
        return job.status;
    }
    let all = |count: u64| rates.expected.is_some_and(|expected| count >= expected);
    let is_whole = match job.length {
        // The number of episodes of a job in steps is known once all its ranks have ended.
        Length::Steps(_) => progress::has_ended(standing, job, None),
        Length::Episodes(_) | Length::Policy => {
            let is_there = all(rates.episodes) || merged.has_all_needed(job);
            is_there && (rates.episodes > 0 || !standing.is_empty())
        }
    };
    let has_failed = |end: &&JobEnd| end.error.is_some() && !end.retried;
    match job.length {
        // No matter which ranks ran the episodes, or how earlier attempts ended.
        Length::Episodes(_) if is_whole && rates.errors == 0 => Status::Completed,
        _ if standing.iter().any(has_failed) => Status::Failed,
        _ if is_whole => Status::Completed,
        _ if !merged.lines(job.index).starts.is_empty() => Status::Running,
        _ => Status::Pending,
    }
}

/// Returns the metrics of `rrun`, and the means of those that the policy reports itself
/// (`Episode::metrics`), each over the scored episodes that have it. Ours have their own meaning,
/// so a policy's metric of the same name does not replace one. If the first episode of a job has
/// none, the job has none, so that the lines of most jobs are not read again.
fn metrics(merged: &Merged, job: &Job, rates: &Rates) -> io::Result<BTreeMap<String, f64>> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut reader = merged.journals.reader();
    let episodes = merged.episodes(job.index).iter();
    for record in episodes.filter(|record| record.is_scored()) {
        let episode = merged.episode(&mut reader, record)?;
        if episode.metrics.is_empty() && sums.is_empty() {
            break;
        }
        for (name, value) in &episode.metrics {
            let (sum, count) = sums.entry(name.clone()).or_default();
            (*sum, *count) = (*sum + value, *count + 1.0);
        }
    }
    let theirs = sums.into_iter();
    let theirs = theirs.map(|(name, (sum, count))| (name, sum / count));
    let ours = rates.metrics().into_iter();
    let ours = ours.map(|(name, value)| (name.to_owned(), value));
    Ok(theirs.chain(ours).collect())
}
