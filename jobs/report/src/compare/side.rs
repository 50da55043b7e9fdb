//! Reads one side of a comparison: a run folder, or the files of a report.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use jobs::episode::Episode;
use jobs::file::JobFileError;
use jobs::files::{self, MAX_DOCUMENT_BYTES};
use jobs::job::Job;
use jobs::journal::read_line;
use jobs::layout::RunFolder;
use jobs::plan::{Identity, RunFolderError, RunPlan};
use serde_json::Value;

use crate::certificate::{self, Certificate, CertificateError, CertifiedEpisode, CertifiedJob};
use crate::compare::ComparedRun;
use crate::{Context, Journals, Merged, Report};

/// Why a side cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    /// The path is neither a run folder nor a file.
    #[error("`{}` is neither a run folder (with plan.json) nor a report or episodes.jsonl", path.display())]
    Nothing {
        /// The path, as the command line named it.
        path: PathBuf,
    },
    /// A report without its `episodes.jsonl`.
    #[error("`{}` has no episodes.jsonl beside it, so no episodes can be paired", report.display())]
    NoEpisodes {
        /// Path of the report.
        report: PathBuf,
    },
    /// A file that is not a valid report.
    #[error("`{}` is not a report: {err}", path.display())]
    Report {
        /// Path of the file.
        path: PathBuf,
        /// The parse error.
        #[source]
        err: serde_json::Error,
    },
    /// A certificate that cannot be read, or was changed.
    #[error("`{}`: {err}", path.display())]
    Certificate {
        /// Path of the certificate.
        path: PathBuf,
        /// The reason.
        #[source]
        err: Box<CertificateError>,
    },
    /// The jobs of a certificate are not those of a jobs file.
    #[error("`{}`: {err}", path.display())]
    Jobs {
        /// Path of the certificate.
        path: PathBuf,
        /// The first field that no jobs file may have.
        #[source]
        err: Box<JobFileError>,
    },
    /// A line that is not an episode.
    #[error("`{}` line {line} is not an episode: {err}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The parse error.
        #[source]
        err: serde_json::Error,
    },
    /// The run folder cannot be used.
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    /// A file cannot be read.
    #[error("cannot read `{}`: {err}", path.display())]
    Io {
        /// The path, as the command line named it.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        err: io::Error,
    },
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    path: PathBuf,
    pub(super) jobs: BTreeMap<String, SideJob>,
}

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
    /// Episodes by ascending number.
    pub(super) episodes: Vec<EpisodeResult>,
}

/// The result of an episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EpisodeResult {
    pub(super) episode: u64,
    pub(super) seed: u64,
    /// Whether the episode was solved; `None` if it ended with an error.
    pub(super) solved: Option<bool>,
    pub(super) return_: f64,
    pub(super) max_reward: Option<f64>,
    pub(super) length: u64,
}

impl EpisodeResult {
    fn of(episode: &Episode) -> Self {
        let Episode {
            episode: number,
            seed,
            return_,
            max_reward,
            length,
            ..
        } = *episode;
        let solved = episode
            .error
            .is_none()
            .then_some(episode.success == Some(true));
        Self {
            episode: number,
            seed,
            solved,
            return_,
            max_reward,
            length,
        }
    }
}

impl From<&CertifiedEpisode> for EpisodeResult {
    fn from(certified: &CertifiedEpisode) -> Self {
        Self {
            episode: certified.episode,
            seed: certified.seed,
            solved: certified.success,
            return_: certified.return_,
            max_reward: None,
            length: certified.length,
        }
    }
}

impl Side {
    /// Reads a run folder, a `report.json` with its `episodes.jsonl`, an `episodes.jsonl` alone, or a
    /// certificate.
    ///
    /// # Errors
    /// Returns [`SideError`] with the file and the line.
    pub fn read(path: &Path) -> Result<Self, SideError> {
        let folder = RunFolder::new(path);
        if folder.plan().exists() {
            return Self::of_run(path, &folder);
        }
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("jsonl") if path.is_file() => Ok(Self {
                path: path.to_owned(),
                jobs: episodes(path)?,
            }),
            _ if path.is_file() && certificate::is_certificate(path) => Self::of_certificate(path),
            Some("json") if path.is_file() => Self::of_report(path),
            _ if folder.report().is_file() => Ok(Self {
                path: path.to_owned(),
                ..Self::of_report(&folder.report())?
            }),
            _ => Err(SideError::Nothing {
                path: path.to_owned(),
            }),
        }
    }

    fn of_run(path: &Path, folder: &RunFolder) -> Result<Self, SideError> {
        let io = |err| SideError::Io {
            path: path.to_owned(),
            err,
        };
        let plan = RunPlan::read(folder)?;
        let journals = Journals::of(folder).map_err(io)?;
        let merged = Merged::new(&plan, &journals).map_err(io)?;
        let report = Report::of(&merged, Context::default()).map_err(io)?;
        let mut jobs = BTreeMap::new();
        for (job, report) in plan.jobs.iter().zip(report.per_job) {
            let mut side = SideJob {
                settings: report.settings,
                ..Self::job(job, plan.seed)
            };
            merged
                .each_episode_of(job, |episode| {
                    side.episodes.push(EpisodeResult::of(&episode))
                })
                .map_err(io)?;
            jobs.insert(job.name.clone(), side);
        }
        Ok(Self {
            path: path.to_owned(),
            jobs,
        })
    }

    fn job(job: &Job, seed: u64) -> SideJob {
        SideJob {
            task: job.environment.clone(),
            policy: job.policy_type.clone(),
            is_variant: job.variant.is_some(),
            identity: Some(Identity::of(job, seed)),
            ..SideJob::default()
        }
    }

    fn of_report(path: &Path) -> Result<Self, SideError> {
        let text = files::read(path, MAX_DOCUMENT_BYTES).map_err(|err| SideError::Io {
            path: path.to_owned(),
            err,
        })?;
        let report: Report = serde_json::from_slice(&text).map_err(|err| SideError::Report {
            path: path.to_owned(),
            err,
        })?;
        let beside = path.with_file_name("episodes.jsonl");
        if !beside.is_file() {
            return Err(SideError::NoEpisodes {
                report: path.to_owned(),
            });
        }
        let mut jobs = episodes(&beside)?;
        for job in report.per_job {
            let side = jobs.entry(job.name).or_default();
            (side.task, side.policy, side.settings) =
                (job.environment, job.policy_type, job.settings);
            side.is_variant = job.variant_of.is_some();
        }
        Ok(Self {
            path: path.to_owned(),
            jobs,
        })
    }

    fn of_certificate(path: &Path) -> Result<Self, SideError> {
        let found = Certificate::read(path).map_err(|err| SideError::Certificate {
            path: path.to_owned(),
            err: Box::new(err),
        })?;
        let plan = certificate::plan(&found).map_err(|err| SideError::Jobs {
            path: path.to_owned(),
            err: Box::new(err),
        })?;
        let side = |(job, certified): (&Job, &CertifiedJob)| {
            let mut episodes: Vec<_> = certified.episodes.iter().map(EpisodeResult::from).collect();
            sort(&mut episodes);
            let side = SideJob {
                settings: certified.settings.clone(),
                episodes,
                ..Self::job(job, plan.seed)
            };
            (job.name.clone(), side)
        };
        Ok(Self {
            path: path.to_owned(),
            jobs: plan
                .jobs
                .iter()
                .zip(&found.contents.jobs)
                .map(side)
                .collect(),
        })
    }

    /// Returns the path, as the command line named it.
    pub fn path(&self) -> &Path {
        &self.path
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

    /// Creates a side from jobs, without reading files.
    #[cfg(test)]
    pub(super) fn of_jobs(jobs: BTreeMap<String, SideJob>) -> Self {
        Self {
            path: PathBuf::new(),
            jobs,
        }
    }

    pub(super) fn about(&self) -> ComparedRun {
        let policies: BTreeSet<_> = self.jobs.values().map(|job| job.policy.clone()).collect();
        ComparedRun {
            path: self.path.clone(),
            policies: policies
                .into_iter()
                .filter(|policy| !policy.is_empty())
                .collect(),
            episodes: self
                .jobs
                .values()
                .map(|job| job.episodes.len() as u64)
                .sum(),
        }
    }
}

fn episodes(path: &Path) -> Result<BTreeMap<String, SideJob>, SideError> {
    let io = |err| SideError::Io {
        path: path.to_owned(),
        err,
    };
    let mut jobs: BTreeMap<String, SideJob> = BTreeMap::new();
    let mut file = BufReader::new(files::open(path).map_err(io)?);
    let mut text = Vec::new();
    for line in 1.. {
        read_line(&mut file, &mut text).map_err(io)?;
        if text.is_empty() {
            break;
        }
        let wrong = |err| SideError::Line {
            path: path.to_owned(),
            line,
            err,
        };
        let episode: Episode = serde_json::from_slice(&text).map_err(wrong)?;
        let job = jobs.entry(episode.job.clone()).or_insert_with(|| SideJob {
            task: episode.job.clone(),
            ..SideJob::default()
        });
        job.episodes.push(EpisodeResult::of(&episode));
    }
    jobs.values_mut().for_each(|job| sort(&mut job.episodes));
    Ok(jobs)
}

/// Sorts episodes by their number, and keeps the first of each.
fn sort(episodes: &mut Vec<EpisodeResult>) {
    episodes.sort_by_key(|result| result.episode);
    episodes.dedup_by_key(|result| result.episode);
}
