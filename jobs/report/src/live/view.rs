//! A run at one moment, as it is shown: how far it is, how fast, and what each rank does.

use jobs::job::{Job, JobIndex, Status};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::time::Moment;

use crate::live::{Activity, RankActivity};
use crate::{HowEnded, RankReport, Report};

/// A run at one moment.
#[derive(Clone, Copy)]
pub struct LiveView<'a> {
    /// The folder of the run.
    pub folder: &'a RunFolder,
    /// The plan of the run.
    pub plan: &'a RunPlan,
    /// The report so far.
    pub report: &'a Report,
    /// What happens now.
    pub activity: &'a Activity,
    /// Whether a launch holds the folder, or a rank writes.
    pub is_under_way: bool,
    /// The moment.
    pub now: Moment,
}

/// What a rank does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RankState<'a> {
    /// It runs a job, with that many episodes at a time.
    Job {
        /// Name of the job.
        name: &'a str,
        /// Number of episodes that run.
        running: usize,
    },
    /// It starts, or waits for work or for the others.
    Idle,
    /// It has nothing left to do.
    Done,
    /// A signal ended it.
    Stopped,
    /// It died and was not started again so far.
    Died,
}

impl<'a> LiveView<'a> {
    /// Returns the name of the run: that of its jobs file, and that of its folder if it is another,
    /// which tells runs of one file apart.
    pub fn title(&self) -> String {
        let name = self.report.config.title();
        let root = self.folder.root();
        let whole = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        match whole.file_name().and_then(std::ffi::OsStr::to_str) {
            Some(folder) if folder != name => format!("{name} ({folder})"),
            _ => name.to_owned(),
        }
    }

    /// Returns the number of episodes that are still to come, without those of jobs that a user has
    /// skipped; `None` if it is not known.
    pub fn left(&self) -> Option<u64> {
        let overall = &self.report.overall;
        let skipped: u64 = self
            .report
            .skipped_jobs()
            .map(crate::JobReport::skipped)
            .sum();
        let done = overall.episodes.saturating_add(skipped);
        Some(overall.expected?.saturating_sub(done))
    }

    /// Returns the number of episodes that end in a second, of late.
    pub fn per_second(&self) -> Option<f64> {
        let rate = self.activity.rate().per_second(self.now);
        rate.filter(|_| self.is_under_way)
    }

    /// Returns the seconds until the last episode, at the recent rate.
    pub fn left_s(&self) -> Option<f64> {
        let left = self.left().filter(|left| *left > 0)?;
        let rate = self.per_second().filter(|rate| *rate > 0.0)?;
        Some(left as f64 / rate)
    }

    /// Returns the seconds since the run began, or between its first and last line if it is over.
    pub fn wall_s(&self) -> Option<f64> {
        let run = &self.report.run;
        let started = Moment::parse(run.started.as_deref()?);
        let ended = run.ended.as_deref().map(Moment::parse);
        let end = ended.filter(|_| !self.is_under_way).unwrap_or(self.now);
        Some(end.since(started))
    }

    /// Returns the job at this index of the jobs file.
    pub(crate) fn job(&self, index: JobIndex) -> Option<&'a Job> {
        self.plan.jobs.iter().find(|job| job.index == index)
    }

    /// Returns what a rank of the latest launch does.
    pub(crate) fn rank_state(&self, rank: usize, activity: &RankActivity) -> RankState<'a> {
        let same = |found: &&RankReport| found.rank == rank;
        let last = self.report.per_rank.iter().rfind(same);
        let last = last.and_then(|rank| rank.lives.last());
        match last.map(|life| life.end) {
            Some(HowEnded::Done) => RankState::Done,
            Some(HowEnded::Stopped) => RankState::Stopped,
            Some(HowEnded::Died) => RankState::Died,
            Some(HowEnded::Running) | None => {
                let job = activity.job.and_then(|index| self.job(index));
                job.map_or(RankState::Idle, |job| RankState::Job {
                    name: &job.name,
                    running: activity.running(),
                })
            }
        }
    }

    /// Returns the jobs whose episodes run, or that have some left, also if they are skipped.
    pub(crate) fn open_jobs(&self) -> impl Iterator<Item = &'a str> {
        let is_open = |job: &&crate::JobReport| {
            matches!(
                job.status,
                Status::Running | Status::Pending | Status::Skipped
            )
        };
        let jobs = self.report.per_job.iter().filter(is_open);
        jobs.map(|job| job.name.as_str())
    }
}
