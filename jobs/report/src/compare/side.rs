//! Reads one side of a comparison: a run folder, or the files of a report.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use jobs::episode::{Episode, EpisodeOutcome, counts_instead};
use jobs::files::{self, MAX_DOCUMENT_BYTES};
use jobs::job::Job;
use jobs::journal::read_line;
use jobs::layout::RunFolder;
use jobs::plan::Identity;
use jobs::refusal::Refusal;
use jobs::time::Moment;
use serde_json::Value;

use crate::certificate::{self, Certificate};
use crate::compare::ComparedRun;
use crate::{Merged, Report};

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// The path, as the command line named it.
    pub path: PathBuf,
    pub(super) jobs: SideJobs,
}

/// Jobs by name.
type SideJobs = BTreeMap<String, SideJob>;

/// One job of a side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SideJob {
    /// The environment of the job, or its name if only episodes are known.
    pub(super) task: String,
    pub(super) policy: String,
    /// Whether the job is a variant, as far as plan or report say so.
    pub(super) is_variant: bool,
    /// The identity of the job; `None` if its plan is unknown.
    pub(super) identity: Option<Identity>,
    pub(super) settings: BTreeMap<String, Value>,
    /// Episodes by number.
    pub(super) episodes: BTreeMap<u64, SideEpisode>,
}

/// The result of an episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SideEpisode {
    pub(super) outcome: EpisodeOutcome,
    /// Certificates do not have it.
    pub(super) max_reward: Option<f64>,
    /// When the episode ended, of several lines about it.
    ended: Moment,
}

impl From<EpisodeOutcome> for SideEpisode {
    fn from(outcome: EpisodeOutcome) -> Self {
        Self {
            outcome,
            max_reward: None,
            ended: Moment::default(),
        }
    }
}

impl SideEpisode {
    fn of(episode: &Episode) -> Self {
        Self {
            max_reward: episode.max_reward,
            ended: Moment::parse(&episode.ended),
            ..episode.outcome().into()
        }
    }

    /// Returns what [`counts_instead`] compares.
    fn key(&self) -> (bool, Moment) {
        (self.outcome.success.is_some(), self.ended)
    }
}

impl Side {
    /// Reads a run folder, a `report.json` with its `episodes.jsonl`, an `episodes.jsonl` alone, or a
    /// certificate.
    ///
    /// # Errors
    /// Refuses what cannot be read, with the file and the line.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let folder = RunFolder::new(path);
        let ending = path.extension().and_then(|ending| ending.to_str());
        let jobs = match ending {
            _ if folder.plan().exists() => of_run(path, &folder),
            Some("jsonl") if path.is_file() => episodes(path),
            _ if path.is_file() && certificate::is_certificate(path) => of_certificate(path),
            Some("json") if path.is_file() => of_report(path),
            _ if folder.report().is_file() => of_report(&folder.report()),
            _ => Err(Refusal::new(format_args!(
                "`{}` is neither a run folder (with plan.json) nor a report or episodes.jsonl",
                path.display()
            ))),
        }?;
        Ok(Self {
            path: path.to_owned(),
            jobs,
        })
    }

    /// Returns whether both sides are the same files.
    pub(super) fn is_also(&self, other: &Self) -> bool {
        let place = |side: &Self| std::fs::canonicalize(&side.path).ok();
        place(self).is_some_and(|here| Some(here) == place(other))
    }

    /// Returns whether the side has a job of this name.
    pub fn has(&self, job: &str) -> bool {
        self.jobs.contains_key(job)
    }

    pub(super) fn about(&self) -> ComparedRun {
        let jobs = self.jobs.values();
        let named = jobs.clone().filter(|job| !job.policy.is_empty());
        let policies: BTreeSet<_> = named.map(|job| job.policy.clone()).collect();
        ComparedRun {
            path: self.path.clone(),
            policies: policies.into_iter().collect(),
            episodes: jobs.map(|job| job.episodes.len() as u64).sum(),
        }
    }
}

impl SideJob {
    fn of(job: &Job, seed: u64) -> Self {
        Self {
            task: job.environment.clone(),
            policy: job.policy_type.clone(),
            is_variant: job.variant.is_some(),
            identity: Some(Identity::of(job, seed)),
            ..Self::default()
        }
    }
}

fn of_run(path: &Path, folder: &RunFolder) -> Result<SideJobs, Refusal> {
    let merged = Merged::open(folder)?;
    let mut jobs = SideJobs::new();
    for job in &merged.plan.jobs {
        let mut side = SideJob::of(job, merged.plan.seed);
        side.settings = merged.settings_of(job).last().cloned().unwrap_or_default();
        let mut add = |episode: Episode| {
            side.episodes
                .insert(episode.episode, SideEpisode::of(&episode));
        };
        let read = merged.each_episode_of(job, &mut add);
        read.map_err(|err| unreadable(path, err))?;
        jobs.insert(job.name.clone(), side);
    }
    Ok(jobs)
}

fn of_report(path: &Path) -> Result<SideJobs, Refusal> {
    let text = files::read(path, MAX_DOCUMENT_BYTES).map_err(|err| unreadable(path, err))?;
    let place = format!("`{}`", path.display());
    let report: Report = serde_json::from_slice(&text)
        .map_err(|err| Refusal::at(format_args!("{place} is not a report"), err))?;
    let beside = path.with_file_name("episodes.jsonl");
    if !beside.is_file() {
        return Err(Refusal::new(format_args!(
            "{place} has no episodes.jsonl beside it, so no episodes can be paired"
        )));
    }
    let mut jobs = episodes(&beside)?;
    for job in report.per_job {
        let side = jobs.entry(job.name).or_default();
        (side.task, side.policy, side.settings) = (job.environment, job.policy_type, job.settings);
        side.is_variant = job.variant_of.is_some();
    }
    Ok(jobs)
}

fn of_certificate(path: &Path) -> Result<SideJobs, Refusal> {
    let place = format!("`{}`", path.display());
    let found = Certificate::read(path).map_err(|err| err.inside(&place))?;
    let plan = certificate::plan(&found).map_err(|err| Refusal::at(&place, err))?;
    let mut jobs = SideJobs::new();
    for (job, certified) in plan.jobs.iter().zip(found.contents.jobs) {
        let mut side = SideJob::of(job, plan.seed);
        side.settings = certified.settings;
        let episodes = certified.episodes.into_iter();
        side.episodes = episodes.map(|one| (one.episode, one.into())).collect();
        jobs.insert(job.name.clone(), side);
    }
    Ok(jobs)
}

/// Reads the episodes of a file by job. Of several lines about one, that counts which a report counts.
fn episodes(path: &Path) -> Result<SideJobs, Refusal> {
    let io = |err| unreadable(path, err);
    let mut jobs = SideJobs::new();
    let mut file = BufReader::new(files::open(path).map_err(io)?);
    let mut text = Vec::new();
    for line in 1.. {
        read_line(&mut file, &mut text).map_err(io)?;
        if text.is_empty() {
            break;
        }
        let wrong = |err| {
            let path = path.display();
            Refusal::at(format_args!("`{path}` line {line} is not an episode"), err)
        };
        let episode: Episode = serde_json::from_slice(&text).map_err(wrong)?;
        let this = SideEpisode::of(&episode);
        let job = jobs.entry(episode.job).or_default();
        let kept = job.episodes.entry(episode.episode).or_insert(this);
        if counts_instead(this.key(), kept.key()) {
            *kept = this;
        }
    }
    for (name, job) in &mut jobs {
        job.task.clone_from(name);
    }
    Ok(jobs)
}

fn unreadable(path: &Path, err: io::Error) -> Refusal {
    Refusal::at(format_args!("cannot read `{}`", path.display()), err)
}
