//! The report: a pure merge of plan and journals.
//!
//! Coverage comes first: which episodes were expected, which were found, which are missing or there twice. An error
//! (a crash of the simulator) is told apart from a failure of the policy, and both rates are given: `success_rate`
//! counts an errored episode as not solved, `completion_only_rate` leaves it out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::episode::Episode;
use crate::job::{Job, JobIndex, Length, Status};
use crate::journal::{JobEnd, JobStart, Line, Quantiles, RankEnd, RankStart};
use crate::plan::RunPlan;
use crate::stats::{mean, wilson95};

mod write;

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

/// Everything that came out of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `rrun/report/1`.
    pub schema: String,
    /// Something is missing: an episode, a rank, a job.
    pub partial: bool,
    /// When, where, by what.
    pub run: Run,
    /// What was asked for.
    pub config: Config,
    /// Over all jobs.
    pub overall: Rates,
    /// Unweighted mean of the jobs' success rates.
    pub mean_task_success_rate: Option<f64>,
    /// One entry a job, in file order.
    pub per_job: Vec<JobReport>,
    /// By environment and by policy.
    pub per_group: Vec<GroupReport>,
    /// One entry a rank.
    pub per_rank: Vec<RankReport>,
    /// Expected and not found.
    pub missing: Vec<EpisodeId>,
    /// Found more than once; the first is counted.
    pub duplicates: Vec<EpisodeId>,
    /// Errors of episodes and jobs.
    pub failures: Vec<Failure>,
}

/// When, where, by what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// UTC: first line of any journal.
    pub started: Option<String>,
    /// UTC: when the report was made.
    pub ended: String,
    /// Command line.
    pub argv: Vec<String>,
    /// Ranks of the launch that made the report.
    pub world_size: usize,
    /// Machines.
    pub hosts: Vec<String>,
    /// How the ranks' lines came together.
    pub gathered_by: String,
    /// Ranks that did not deliver.
    pub missing_ranks: Vec<usize>,
    /// Why it ended early.
    pub stopped: Option<String>,
    /// Version of `rrun`.
    pub rrun: String,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Jobs file.
    pub jobs_file: String,
    /// Identity of its bytes.
    pub sha256: String,
    /// Base seed.
    pub seed: u64,
    /// Ranks when the run was begun.
    pub world_size_at_start: usize,
}

/// Counts and rates of a set of episodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Expected; `null` while a job has not said how many it has.
    pub expected: Option<u64>,
    /// Found, each once.
    pub episodes: u64,
    /// Found without an error.
    pub scored: u64,
    /// Solved.
    pub successes: u64,
    /// Broken by an error.
    pub errors: u64,
    /// `successes / episodes`.
    pub success_rate: Option<f64>,
    /// Wilson interval of it at 95 %.
    pub wilson95: Option<[f64; 2]>,
    /// `successes / scored`.
    pub completion_only_rate: Option<f64>,
    /// Mean sum of rewards of the scored.
    pub mean_return: Option<f64>,
    /// Mean steps of the scored.
    pub mean_length: Option<f64>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Name.
    pub name: String,
    /// Position in the file.
    pub index: JobIndex,
    /// Environment.
    pub environment: String,
    /// Policy.
    pub policy_type: String,
    /// Copies of the environment.
    pub num_envs: usize,
    /// Ranks that ran episodes of it.
    pub ranks: Vec<usize>,
    /// How it stands.
    pub status: Status,
    /// Why it failed.
    pub error: Option<String>,
    /// How often it was begun.
    pub attempts: u64,
    /// Counts and rates.
    #[serde(flatten)]
    pub rates: Rates,
    /// Seconds, over all attempts that ended.
    pub wall_s: f64,
    /// Steps of all environments.
    pub env_steps: u64,
    /// Steps a second.
    pub steps_per_s: Option<f64>,
    /// Frames rendered.
    pub frames: u64,
    /// Calls of the policy.
    pub policy_calls: u64,
    /// Milliseconds of a policy call, last attempt.
    pub infer_ms: Quantiles,
    /// Milliseconds of a step of all due environments, last attempt.
    pub sim_ms: Quantiles,
    /// Highest resident memory of a rank up to its end.
    pub peak_rss_bytes: u64,
    /// Dataset files, relative to the run folder.
    pub datasets: Vec<String>,
    /// Video files, relative to the run folder.
    pub videos: Vec<String>,
}

/// A set of jobs with something in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// `task` or `policy`.
    pub by: String,
    /// Its value.
    pub value: String,
    /// Counts and rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// Which.
    pub rank: usize,
    /// Machine.
    pub host: String,
    /// Device and why.
    pub device: String,
    /// Why that one.
    pub device_reason: String,
    /// How often it was begun.
    pub starts: u64,
    /// Seconds in jobs.
    pub busy_s: f64,
    /// Seconds elsewhere: start, waiting for the others.
    pub idle_s: f64,
    /// Episodes it ran.
    pub episodes: u64,
}

/// Names one episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodeId {
    /// Job.
    pub job: String,
    /// Number within it.
    pub episode: u64,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Job.
    pub job: String,
    /// Number within it; `null` when the job itself failed.
    pub episode: Option<u64>,
    /// What happened.
    pub reason: String,
}

/// Journal lines in groups.
#[derive(Default)]
struct Merged<'a> {
    episodes: BTreeMap<(JobIndex, u64), Vec<&'a Episode>>,
    job_starts: BTreeMap<JobIndex, Vec<&'a JobStart>>,
    job_ends: BTreeMap<JobIndex, Vec<&'a JobEnd>>,
    rank_starts: BTreeMap<usize, Vec<&'a RankStart>>,
    rank_ends: BTreeMap<usize, Vec<&'a RankEnd>>,
}

impl<'a> Merged<'a> {
    fn new(lines: impl IntoIterator<Item = &'a Line>) -> Self {
        let mut merged = Self::default();
        for line in lines {
            match line {
                Line::Rank(line) => add(&mut merged.rank_starts, line.rank, line),
                Line::RankEnd(line) => add(&mut merged.rank_ends, line.rank, line),
                Line::JobStart(line) => add(&mut merged.job_starts, line.job_index, line),
                Line::JobEnd(line) => add(&mut merged.job_ends, line.job_index, line),
                Line::Episode(line) => add(&mut merged.episodes, (line.job_index, line.episode), &**line),
            }
        }
        merged.in_time();
        merged
    }

    /// Journals come rank by rank, and a job may have moved to another rank: what is last goes by the clock. Moments
    /// of [`crate::time::rfc3339`] sort as texts.
    fn in_time(&mut self) {
        self.episodes.values_mut().for_each(|lines| lines.sort_by(|a, b| a.ended.cmp(&b.ended)));
        self.job_starts.values_mut().for_each(|lines| lines.sort_by(|a, b| a.started.cmp(&b.started)));
        self.job_ends.values_mut().for_each(|lines| lines.sort_by(|a, b| a.ended.cmp(&b.ended)));
        self.rank_starts.values_mut().for_each(|lines| lines.sort_by(|a, b| a.started.cmp(&b.started)));
    }

    /// The line that counts: the first that was scored, else the last error.
    fn counted(&self, job: JobIndex) -> Vec<&'a Episode> {
        let range = (job, 0)..=(job, u64::MAX);
        let pick = |lines: &Vec<&'a Episode>| lines.iter().find(|line| line.error.is_none()).or(lines.last()).copied();
        self.episodes.range(range).filter_map(|(_, lines)| pick(lines)).collect()
    }

    fn expected(&self, job: &Job) -> Option<u64> {
        let said = self.job_starts.get(&job.index).and_then(|starts| starts.iter().rev().find_map(|s| s.episodes));
        match (job.status, job.length) {
            (Status::Pending, Length::Episodes(count)) => Some(count),
            (Status::Pending, Length::Steps(_)) => Some(self.counted(job.index).len() as u64),
            (Status::Pending, Length::Policy) => said,
            _ => Some(0),
        }
    }
}

/// A line that is there already (a journal and its copy from the gather) is the same event.
fn add<'a, K: Ord, T: PartialEq>(groups: &mut BTreeMap<K, Vec<&'a T>>, key: K, line: &'a T) {
    let group = groups.entry(key).or_default();
    if !group.contains(&line) {
        group.push(line);
    }
}

/// Episodes that are done, by job: what a resumed run leaves out. An errored one is done again.
pub fn done<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<JobIndex, Vec<u64>> {
    let mut done: BTreeMap<JobIndex, Vec<u64>> = BTreeMap::new();
    for line in lines {
        if let Line::Episode(episode) = line
            && episode.error.is_none()
        {
            done.entry(episode.job_index).or_default().push(episode.episode);
        }
    }
    for episodes in done.values_mut() {
        episodes.sort_unstable();
        episodes.dedup();
    }
    done
}

/// The lines about one job.
pub fn about(lines: &[Line], job: JobIndex) -> Vec<&Line> {
    let of = |line: &Line| match line {
        Line::Rank(_) | Line::RankEnd(_) => None,
        Line::JobStart(start) => Some(start.job_index),
        Line::Episode(episode) => Some(episode.job_index),
        Line::JobEnd(end) => Some(end.job_index),
    };
    lines.iter().filter(|line| of(line) == Some(job)).collect()
}

/// Of the episodes of a job that are done, those that were solved.
pub fn solved<'a>(lines: impl IntoIterator<Item = &'a Line>, job: JobIndex) -> u64 {
    Merged::new(lines).counted(job).iter().filter(|episode| episode.success == Some(true)).count() as u64
}

/// Whether a job has run to its end before, so that there is nothing left to do: its last attempt did not fail, and
/// every episode is there without an error.
pub fn finished<'a>(lines: impl IntoIterator<Item = &'a Line>, job: &Job) -> bool {
    let merged = Merged::new(lines);
    let last = merged.job_ends.get(&job.index).and_then(|ends| ends.last());
    let episodes = merged.counted(job.index);
    let scored = episodes.iter().filter(|episode| episode.error.is_none()).count() as u64;
    let all = scored == episodes.len() as u64 && merged.expected(job).is_some_and(|expected| scored >= expected);
    match job.length {
        Length::Episodes(_) => all && last.is_none_or(|end| end.error.is_none()),
        Length::Steps(_) | Length::Policy => all && last.is_some_and(|end| end.error.is_none()),
    }
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
        mean_return: mean(scored.iter().map(|episode| episode.return_)),
        mean_length: mean(scored.iter().map(|episode| episode.length as f64)),
    }
}

fn job_report(merged: &Merged, job: &Job) -> JobReport {
    let episodes = merged.counted(job.index);
    let starts = merged.job_starts.get(&job.index).map_or(0, Vec::len);
    let ends = merged.job_ends.get(&job.index).map_or(&[][..], Vec::as_slice);
    let rates = rates(merged.expected(job), &episodes);
    let error = ends.last().and_then(|end| end.error.clone());
    let sum = |part: fn(&JobEnd) -> u64| ends.iter().map(|end| part(end)).sum::<u64>();
    let (wall_s, env_steps) = (ends.iter().map(|end| end.wall_s).sum(), sum(|end| end.env_steps));
    let quantiles = |part: fn(&JobEnd) -> Quantiles| ends.last().map(|end| part(end)).unwrap_or_default();
    JobReport {
        name: job.name.clone(),
        index: job.index,
        environment: job.environment.clone(),
        policy_type: job.policy_type.clone(),
        num_envs: job.num_envs,
        ranks: sorted(episodes.iter().map(|episode| episode.rank)),
        status: status(job, &rates, starts, ends),
        error,
        attempts: starts as u64,
        rates,
        wall_s,
        env_steps,
        steps_per_s: (wall_s > 0.0).then(|| env_steps as f64 / wall_s),
        frames: sum(|end| end.frames),
        policy_calls: sum(|end| end.policy_calls),
        infer_ms: quantiles(|end| end.infer_ms),
        sim_ms: quantiles(|end| end.sim_ms),
        peak_rss_bytes: ends.iter().map(|end| end.peak_rss_bytes).max().unwrap_or(0),
        datasets: sorted(episodes.iter().filter_map(|episode| Some(episode.dataset.as_ref()?.file.clone()))),
        videos: sorted(episodes.iter().filter_map(|episode| Some(episode.video.as_ref()?.file.clone()))),
    }
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<_> = values.collect();
    values.sort();
    values.dedup();
    values
}

fn status(job: &Job, rates: &Rates, starts: usize, ends: &[&JobEnd]) -> Status {
    let all_found = rates.expected.is_some_and(|expected| rates.episodes >= expected);
    match (job.status, ends.last()) {
        (Status::Pending, Some(end)) if end.error.is_some() => Status::Failed,
        (Status::Pending, Some(_)) if all_found => Status::Completed,
        (Status::Pending, None) if all_found && rates.episodes > 0 => Status::Completed,
        (Status::Pending, _) if starts > 0 => Status::Running,
        (status, _) => status,
    }
}

fn missing<'a>(merged: &Merged, job: &'a Job) -> impl Iterator<Item = EpisodeId> + use<'a> {
    let found: Vec<_> = merged.counted(job.index).iter().map(|episode| episode.episode).collect();
    // Those of a job in steps are not known beforehand.
    let expected = if matches!(job.length, Length::Steps(_)) { 0 } else { merged.expected(job).unwrap_or(0) };
    (0..expected)
        .filter(move |episode| found.binary_search(episode).is_err())
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
