//! A run at one moment, as it is shown: how far it is, how fast, and what each rank does.

use jobs::count::counted;
use jobs::job::{Job, JobIndex, Status};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::time::Moment;

use crate::live::{Activity, RankActivity};
use crate::{HowEnded, JobReport, Report};

/// The class of a rank that died.
pub(crate) const DIED: &str = "failed";

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

    /// Returns the number of episodes that end in a second, of late.
    pub fn per_second(&self) -> Option<f64> {
        let rate = self.activity.rate.per_second(self.now);
        rate.filter(|_| self.is_under_way)
    }

    /// Returns the seconds until the last episode, at the recent rate; those of jobs that a user
    /// has skipped do not come.
    pub fn left_s(&self) -> Option<f64> {
        let overall = &self.report.overall;
        let skipped = self.report.skipped_jobs().map(JobReport::skipped);
        let left = overall.expected?.saturating_sub(overall.episodes);
        let left = left.saturating_sub(skipped.sum());
        let rate = self.per_second().filter(|rate| left > 0 && *rate > 0.0)?;
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

    /// Returns what a rank of the latest launch does, as a class of the page and in words.
    pub(crate) fn rank_state(
        &self,
        rank: usize,
        activity: &RankActivity,
    ) -> (&'static str, String) {
        let ranks = &mut self.report.per_rank.iter();
        let last = ranks.rfind(|found| found.rank == rank);
        let last = last.and_then(|rank| rank.lives.last());
        let job = activity.job.and_then(|index| self.job(index));
        let (class, text) = match (last.map(|life| life.end), job) {
            (Some(HowEnded::Done), _) => ("idle", "done"),
            (Some(HowEnded::Stopped), _) => ("idle", "stopped"),
            // It was not started again so far.
            (Some(HowEnded::Died), _) => (DIED, "died"),
            // It starts, or waits for work or for the others.
            (Some(HowEnded::Running) | None, None) => ("idle", "no job"),
            (Some(HowEnded::Running) | None, Some(job)) => {
                let episodes = counted(activity.running(), "episode");
                return ("busy", format!("{}, {episodes} at once", job.name));
            }
        };
        (class, text.to_owned())
    }

    /// Returns the jobs whose episodes run, or that have some left, also if they are skipped.
    pub(crate) fn open_jobs(&self) -> impl Iterator<Item = &'a str> {
        use Status::{Pending, Running, Skipped};
        let jobs = self.report.per_job.iter();
        let open = jobs.filter(|job| matches!(job.status, Running | Pending | Skipped));
        open.map(|job| job.name.as_str())
    }
}
