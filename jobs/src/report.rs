//! The report: a pure merge of plan and journals.
//!
//! Coverage comes first: which episodes were expected, which were found, which are missing or there twice. An error
//! (a crash of the simulator) is told apart from a failure of the policy, and both rates are given: `success_rate`
//! counts an errored episode as not solved, `completion_only_rate` leaves it out.

use std::collections::BTreeMap;

use crate::episode::Episode;
use crate::job::{Job, Length, Status};
use crate::journal::{EnvLost, JobEnd, Line, Quantiles, RankStart};
use crate::plan::RunPlan;
use crate::stats::{mean, wilson95};

mod merged;
mod progress;
mod schema;
mod write;

use merged::Merged;
pub use progress::{about, done, finished, solved};
pub use schema::{Config, EnvLoss, EpisodeId, Failure, GroupReport, JobReport, RankReport, Rates, Report, Run};
pub use write::write;

/// Schema of `report.json`.
const SCHEMA: &str = "rrun/report/1";

/// What plan and journals do not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Command line that made the report.
    pub argv: Vec<String>,
    /// Ranks of this launch.
    pub world_size: usize,
    /// How the ranks' lines came together: `single`, `store`, `nccl`, `journals`.
    pub route: String,
    /// Ranks that did not deliver.
    pub missing_ranks: Vec<usize>,
    /// Why the run ended early, if it did.
    pub stopped: Option<String>,
    /// UTC.
    pub created: String,
}

impl Report {
    /// Merges the lines of all journals; the same line twice (a journal and its copy from the gather) counts once.
    pub fn new(plan: &RunPlan, lines: &[Line], context: Context) -> Self {
        let merged = Merged::new(lines);
        let per_job: Vec<_> = plan.jobs.iter().map(|job| job_report(&merged, job)).collect();
        let missing: Vec<_> = plan.jobs.iter().flat_map(|job| missing(&merged, job)).collect();
        let duplicates: Vec<_> = duplicates(&merged);
        let all: Vec<_> = plan.jobs.iter().flat_map(|job| merged.counted(job.index)).collect();
        let expected = plan.jobs.iter().map(|job| merged.expected(job)).sum();
        // A job that the file says is not to run is not missing.
        let incomplete =
            |(job, report): (&Job, &JobReport)| job.status == Status::Pending && report.status != Status::Completed;
        Self {
            schema: SCHEMA.to_owned(),
            partial: !missing.is_empty()
                || !context.missing_ranks.is_empty()
                || plan.jobs.iter().zip(&per_job).any(incomplete),
            overall: rates(expected, &all),
            mean_task_success_rate: mean(per_job.iter().filter_map(|job| job.rates.success_rate)),
            per_group: groups(&merged, plan),
            per_rank: merged.rank_starts.iter().map(|(rank, starts)| rank_report(&merged, *rank, starts)).collect(),
            failures: failures(plan, &per_job, &all),
            env_losses: plan.jobs.iter().flat_map(|job| env_losses(&merged, job)).collect(),
            run: run(&merged, context),
            config: Config {
                jobs_file: plan.jobs_file.clone(),
                sha256: plan.jobs_sha256.clone(),
                seed: plan.seed,
                world_size_at_start: plan.world_size,
            },
            per_job,
            missing,
            duplicates,
        }
    }

    /// Whether every episode ran, and ran without an error.
    pub fn complete(&self) -> bool {
        !self.partial && self.failures.is_empty()
    }
}

/// Episodes in the order of jobs and numbers, each once: the lines of `episodes.jsonl`.
pub fn episodes<'a>(plan: &RunPlan, lines: &'a [Line]) -> Vec<&'a Episode> {
    let merged = Merged::new(lines);
    plan.jobs.iter().flat_map(|job| merged.counted(job.index)).collect()
}

fn rates(expected: Option<u64>, episodes: &[&Episode]) -> Rates {
    let scored: Vec<_> = episodes.iter().filter(|episode| episode.error.is_none()).collect();
    let successes = scored.iter().filter(|episode| episode.success == Some(true)).count() as u64;
    let (found, scored_count) = (episodes.len() as u64, scored.len() as u64);
    let share = |of: u64| (of > 0).then(|| successes as f64 / of as f64);
    Rates {
        expected,
        episodes: found,
        scored: scored_count,
        successes,
        errors: found - scored_count,
        success_rate: share(found),
        wilson95: wilson95(successes, found),
        completion_only_rate: share(scored_count),
        success_at_end: mean(scored.iter().filter_map(|episode| Some(f64::from(u8::from(episode.success_at_end?))))),
        mean_return: mean(scored.iter().map(|episode| episode.return_)),
        mean_length: mean(scored.iter().map(|episode| episode.length as f64)),
    }
}

fn job_report(merged: &Merged, job: &Job) -> JobReport {
    let episodes = merged.counted(job.index);
    let starts = merged.job_starts.get(&job.index).map_or(&[][..], Vec::as_slice);
    let ends = merged.job_ends.get(&job.index).map_or(&[][..], Vec::as_slice);
    let standing = merged.standing(job.index);
    let rates = rates(merged.expected(job), &episodes);
    let sum = |part: fn(&JobEnd) -> u64| ends.iter().map(|end| part(end)).sum::<u64>();
    let (wall_s, env_steps) = (wall_s(job, ends), sum(|end| end.env_steps));
    JobReport {
        name: job.name.clone(),
        index: job.index,
        environment: job.environment.clone(),
        policy_type: job.policy_type.clone(),
        num_envs: job.num_envs,
        ranks: sorted(episodes.iter().map(|episode| episode.rank)),
        status: status(merged, job, &rates, &standing),
        error: standing.iter().find_map(|end| end.error.clone()),
        attempts: by_rank(job, starts, |start| start.rank, |_| 1.0) as u64,
        rates,
        wall_s,
        env_steps,
        steps_per_s: (wall_s > 0.0).then(|| env_steps as f64 / wall_s),
        frames: sum(|end| end.frames),
        policy_calls: sum(|end| end.policy_calls),
        record_waits: sum(|end| end.record_waits),
        record_wait_s: ends.iter().map(|end| end.record_wait_s).sum(),
        infer_busy_s: by_rank(job, ends, |end| end.rank, |end| end.infer_busy_s),
        sim_busy_s: by_rank(job, ends, |end| end.rank, |end| end.sim_busy_s),
        infer_ms: slowest(standing.iter().map(|end| end.infer_ms)),
        sim_ms: slowest(standing.iter().map(|end| end.sim_ms)),
        peak_rss_bytes: ends.iter().map(|end| end.peak_rss_bytes).max().unwrap_or(0),
        datasets: sorted(episodes.iter().filter_map(|episode| Some(episode.dataset.as_ref()?.file.clone()))),
        videos: sorted(episodes.iter().filter_map(|episode| Some(episode.video.as_ref()?.file.clone()))),
    }
}

/// Attempts follow one another, but ranks that share a job work at the same time: there the busiest one counts.
fn wall_s(job: &Job, ends: &[&JobEnd]) -> f64 {
    by_rank(job, ends, |end| end.rank, |end| end.wall_s)
}

fn by_rank<T>(job: &Job, lines: &[&T], rank: fn(&T) -> usize, value: fn(&T) -> f64) -> f64 {
    if job.sharing.is_none() {
        return lines.iter().map(|line| value(line)).sum();
    }
    let mut ranks: BTreeMap<usize, f64> = BTreeMap::new();
    lines.iter().for_each(|line| *ranks.entry(rank(line)).or_default() += value(line));
    ranks.into_values().fold(0.0, f64::max)
}

/// Of several ranks the slowest, as quantiles cannot be merged.
fn slowest(quantiles: impl Iterator<Item = Quantiles>) -> Quantiles {
    let most = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    quantiles.fold(Quantiles::default(), |a, b| Quantiles { p50: most(a.p50, b.p50), p95: most(a.p95, b.p95) })
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<_> = values.collect();
    values.sort();
    values.dedup();
    values
}

fn status(merged: &Merged, job: &Job, rates: &Rates, standing: &[&JobEnd]) -> Status {
    let all_found = rates.expected.is_some_and(|expected| rates.episodes >= expected);
    // How many episodes a job in steps has is known when all its ranks have ended.
    let is_whole = match job.length {
        Length::Steps(_) => merged.has_ended(job, None),
        Length::Episodes(_) | Length::Policy => all_found && (rates.episodes > 0 || !standing.is_empty()),
    };
    match job.status {
        Status::Pending if standing.iter().any(|end| end.error.is_some()) => Status::Failed,
        Status::Pending if is_whole => Status::Completed,
        Status::Pending if merged.job_starts.contains_key(&job.index) => Status::Running,
        status => status,
    }
}

fn missing<'a>(merged: &Merged, job: &'a Job) -> impl Iterator<Item = EpisodeId> + use<'a> {
    let found: Vec<_> = merged.counted(job.index).iter().map(|episode| episode.episode).collect();
    let numbers = match (job.status, job.length) {
        (Status::Pending, Length::Episodes(count)) => count,
        // Those of a job in steps are not known beforehand.
        (_, Length::Steps(_)) => 0,
        _ => merged.expected(job).unwrap_or(0),
    };
    (0..numbers)
        .filter(move |episode| job.selects(*episode) && found.binary_search(episode).is_err())
        .map(|episode| EpisodeId { job: job.name.clone(), episode })
}

fn duplicates(merged: &Merged) -> Vec<EpisodeId> {
    let mut duplicates = Vec::new();
    for lines in merged.episodes.values() {
        let scored: Vec<_> = lines.iter().filter(|line| line.error.is_none()).collect();
        if let [first, _, ..] = scored[..] {
            duplicates.push(EpisodeId { job: first.job.clone(), episode: first.episode });
        }
    }
    duplicates
}

fn failures(plan: &RunPlan, jobs: &[JobReport], episodes: &[&Episode]) -> Vec<Failure> {
    let of_jobs = plan.jobs.iter().zip(jobs).filter_map(|(job, report)| {
        let reason = report.error.clone()?;
        Some(Failure { job: job.name.clone(), episode: None, reason })
    });
    let of_episodes = episodes.iter().filter_map(|episode| {
        let reason = episode.error.clone()?;
        Some(Failure { job: episode.job.clone(), episode: Some(episode.episode), reason })
    });
    of_jobs.chain(of_episodes).collect()
}

fn env_losses(merged: &Merged, job: &Job) -> Vec<EnvLoss> {
    let losses = merged.env_losses.get(&job.index).map_or(&[][..], Vec::as_slice);
    let loss = |lost: &&EnvLost| EnvLoss {
        job: job.name.clone(),
        episode: lost.episode,
        rank: lost.rank,
        env: lost.env,
        step: lost.step,
        reason: lost.reason.clone(),
        stderr: lost.stderr.clone(),
        at: lost.at.clone(),
    };
    losses.iter().map(loss).collect()
}

fn groups(merged: &Merged, plan: &RunPlan) -> Vec<GroupReport> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Job>> = BTreeMap::new();
    for job in &plan.jobs {
        groups.entry(("policy", &job.policy_type)).or_default().push(job);
        groups.entry(("task", &job.environment)).or_default().push(job);
    }
    let report = |((by, value), jobs): ((&str, &str), Vec<&Job>)| GroupReport {
        by: by.to_owned(),
        value: value.to_owned(),
        rates: rates(
            jobs.iter().map(|job| merged.expected(job)).sum(),
            &jobs.iter().flat_map(|job| merged.counted(job.index)).collect::<Vec<_>>(),
        ),
    };
    groups.into_iter().map(report).collect()
}

fn rank_report(merged: &Merged, rank: usize, starts: &[&RankStart]) -> RankReport {
    let ends = merged.rank_ends.get(&rank).map_or(&[][..], Vec::as_slice);
    let last = starts.last();
    let busy_s: f64 = ends.iter().map(|end| end.busy_s).sum();
    RankReport {
        rank,
        host: last.map(|start| start.host.clone()).unwrap_or_default(),
        device: last.map(|start| start.device.clone()).unwrap_or_default(),
        device_reason: last.map(|start| start.device_reason.clone()).unwrap_or_default(),
        starts: starts.len() as u64,
        busy_s,
        idle_s: ends.iter().map(|end| end.wall_s).sum::<f64>() - busy_s,
        episodes: merged.episodes.values().flatten().filter(|episode| episode.rank == rank).count() as u64,
    }
}

fn run(merged: &Merged, context: Context) -> Run {
    let starts = || merged.rank_starts.values().flatten();
    Run {
        started: starts().map(|start| start.started.clone()).min(),
        ended: context.created,
        argv: context.argv,
        world_size: context.world_size,
        hosts: sorted(starts().map(|start| start.host.clone())),
        gathered_by: context.route,
        missing_ranks: context.missing_ranks,
        stopped: context.stopped,
        rrun: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[cfg(test)]
mod tests;
