//! The description of a plan whose ranks run an evaluation.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use jobs::assign::{Assign, Work, work};
use jobs::count::{counted, listed};
use jobs::format::word;
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::{self, Line, Question};
use jobs::latency::Delay;
use jobs::layout::RunFolder;
use jobs::placement::Resources;
use jobs::plan::{Difference, RunPlan};
use jobs::progress;
use jobs::table::{MAX_ROWS, Table};
use jobs::tracking::Tracker;

use crate::dry_run::{cpus, fact, failure, global_rank, headline, logs, meeting};
use crate::plan::LaunchPlan;
use crate::plan::eval::EvalPlan;

/// Most names of jobs in a cell, and of folders of videos.
const NAMED: usize = 4;

/// Stands for an unknown number in a table.
const UNKNOWN: &str = "?";

/// Returns the text for a plan. Reads what is done in its run folder.
pub(super) fn text(plan: &LaunchPlan, eval: &EvalPlan) -> String {
    let (done, trouble) = match DoneWork::read(eval) {
        // A quick run begins anew.
        _ if eval.run.quick => (DoneWork::default(), None),
        Ok(done) => (done, None),
        Err(err) => (DoneWork::default(), Some(err.to_string())),
    };
    EvalDescription { plan, eval, done }.text(trouble)
}

/// What is printed about an evaluation.
struct EvalDescription<'a> {
    plan: &'a LaunchPlan,
    eval: &'a EvalPlan,
    done: DoneWork,
}

impl EvalDescription<'_> {
    fn text(&self, trouble: Option<String>) -> String {
        let mut text = String::new();
        headline(&mut text, self.plan);
        self.ranks(&mut text);
        self.jobs(&mut text);

        let mut files = self.files();
        files.extend(trouble.map(|err| format!("what is done there is unknown: {err}")));
        fact(&mut text, "Files", files);
        if self.plan.rendezvous.is_some() {
            fact(&mut text, "Meeting", [meeting(self.plan)]);
        }
        fact(&mut text, "Logs", [logs(self.plan)]);
        fact(&mut text, "Failure", [failure(self.plan)]);
        fact(&mut text, "Latency", latencies(self.pending()));
        fact(&mut text, "Stop", early_stop(self.eval));
        fact(&mut text, "Trackers", trackers(self.eval));
        let server = self.plan.model_server.as_ref().map(|server| {
            let command = server.server.command.join(" ");
            format!("`{command}`, log `{}`", server.log.display())
        });
        fact(&mut text, "Server", server);
        fact(&mut text, "Memory", self.memory());
        text
    }

    /// Appends the table of all ranks.
    fn ranks(&self, text: &mut String) {
        let seating = &self.eval.seating;
        let world_size = seating.placement.world_size();
        let row = |rank: usize| {
            let gpu = seating.placement.rollout[rank].gpu();
            let device = match seating.resources.device(gpu) {
                Some(device) => format!("cuda:{device}"),
                None => "CPU".to_owned(),
            };
            let (jobs, episodes) = self.work(rank);
            [rank.to_string(), device, self.cpus(rank), jobs, episodes]
        };
        let head = ["Rank", "Device", "CPUs", "Jobs", "Episodes"];
        let rows = (0..world_size).map(row);
        *text += &Table::first(head, rows, "rank", ", see --dry-run=json").grid();
        text.push('\n');
    }

    /// Returns the CPUs of a rank, which are known for those of this node.
    fn cpus(&self, rank: usize) -> String {
        let here = (0..self.plan.ranks.len())
            .find(|index| global_rank(self.plan, *index) == Some(rank))
            .and_then(|index| self.plan.ranks.get(index));
        here.map_or_else(|| "all".to_owned(), cpus)
    }

    /// Returns the jobs of a rank and its number of episodes.
    fn work(&self, rank: usize) -> (String, String) {
        let Some(works) = of_rank(self.eval, &self.done, rank) else {
            return ("by leases".to_owned(), UNKNOWN.to_owned());
        };
        let names: Vec<&str> = works.iter().map(|(work, _)| &*work.job.name).collect();
        let episodes: Option<u64> = works.iter().map(|(_, left)| *left).sum();
        (
            match names.as_slice() {
                [] => "none".to_owned(),
                names => listed(names, NAMED),
            },
            episodes.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string()),
        )
    }

    /// Returns the jobs that are to run.
    fn pending(&self) -> impl Iterator<Item = &Job> {
        let jobs = self.eval.run.jobs.iter();
        jobs.filter(|job| job.status == Status::Pending)
    }

    /// Appends the table of all jobs.
    fn jobs(&self, text: &mut String) {
        let all = &self.eval.run.jobs;
        let head = ["Job", "Environment", "Copies", "Policy", "Length", "Done"];
        let rows = all.iter().map(|job| self.job(job));
        *text += &Table::first(head, rows, "job", ", see --dry-run=json").grid();
        text.push('\n');
    }

    fn job(&self, job: &Job) -> [String; 6] {
        let length = match job.length {
            Length::Episodes(count) => counted(job.selected(count), "episode"),
            Length::Steps(count) => counted(count, "step"),
            Length::Policy => "that of its policy".to_owned(),
        };
        let done = match job.status {
            Status::Pending if self.done.finished.contains(&job.index) => "all".to_owned(),
            Status::Pending => self.done.of_job(job).to_string(),
            status => word(status),
        };
        [
            job.name.clone(),
            job.environment.clone(),
            job.num_envs.to_string(),
            job.policy_type.clone(),
            length,
            done,
        ]
    }

    fn files(&self) -> Vec<String> {
        let folder = RunFolder::new(&self.eval.output);
        let output = folder.root().display();
        let done: u64 = self.pending().map(|job| self.done.of_job(job)).sum();
        let state = match (folder.plan().exists(), done) {
            (true, _) if self.eval.run.quick => format!("`{output}`, replaces the last quick run"),
            (false, _) => format!("`{output}`, a new run"),
            (true, 0) => format!("`{output}`, a run without a finished episode of these jobs"),
            (true, done) => {
                let done = counted(done, "episode");
                format!("`{output}`, a run that is resumed: {done} done")
            }
        };
        let places: BTreeSet<PathBuf> = self
            .pending()
            .filter(|job| job.video.base_dir.is_some())
            .map(|job| folder.videos(job))
            .collect();
        let videos = places.iter().take(NAMED);
        let videos = videos.map(|place| format!("videos in `{}`", place.display()));
        let contents = match self.eval.run.quick {
            true => "plan, journals, report; no datasets and no videos",
            false => "plan, journals, report; a folder per job with datasets and videos",
        };
        let mut lines = vec![state, contents.to_owned()];
        lines.extend(videos);
        lines
    }

    fn memory(&self) -> Vec<String> {
        let seating = &self.eval.seating;
        let hint = |what| format!("`rrun fit --jobs {}` {what}", self.eval.run.jobs_file);
        if seating.resources == Resources::Labels {
            return vec![hint("estimates that of GPUs")];
        }
        let lines = seating.allocation.iter().take(MAX_ROWS).cloned();
        lines.chain([hint("shows the parts")]).collect()
    }
}

/// Returns the latencies of jobs that have one, each with its jobs.
fn latencies<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<String> {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for job in jobs {
        if let Some(latency) = job.latency.filter(|latency| !latency.is_none()) {
            let text = match latency.delay {
                Delay::Steps(steps) => counted(steps, "step"),
                Delay::Ms(ms) => format!("{ms} ms"),
                Delay::Measured => "as measured".to_owned(),
            };
            found.entry(text).or_default().push(&job.name);
        }
    }
    found
        .into_iter()
        .map(|(latency, names)| format!("{latency} for each inference: {}", listed(&names, NAMED)))
        .collect()
}

/// Returns when a sequential test ends the run.
fn early_stop(eval: &EvalPlan) -> Option<String> {
    let stop = eval.early_stop.as_ref()?;
    let points = stop.margin * 100.0;
    let what = match stop.question {
        Question::Regression => format!("a loss of {points} points"),
        Question::Reproduction => format!("a difference of {points} points"),
    };
    Some(format!(
        "when {what} from `{}` is excluded or shown, at a level of {}",
        stop.against, stop.level
    ))
}

/// Returns the trackers that the run is logged to.
fn trackers(eval: &EvalPlan) -> Option<String> {
    let trackers = eval.tracking.trackers();
    let names: Vec<_> = trackers.into_iter().map(Tracker::name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The work that a run folder already has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DoneWork {
    /// Finished episodes by job, ascending.
    episodes: BTreeMap<JobIndex, Vec<u64>>,
    /// Jobs of which nothing is left.
    finished: BTreeSet<JobIndex>,
}

impl DoneWork {
    /// Reads what is done of a plan in its run folder.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    fn read(eval: &EvalPlan) -> io::Result<Self> {
        let folder = RunFolder::new(&eval.output);
        let Ok(found) = RunPlan::read(&folder) else {
            return Ok(Self::default());
        };
        let journals = journal::read_all(&folder.journals(), &found.accepted())?;
        let lines = journals.iter().flat_map(|contents| &contents.lines);
        Ok(Self::of(&found, &eval.run, lines))
    }

    /// Returns what is done of the plan `now`, from the lines of the plan that was found.
    fn of<'a>(found: &RunPlan, now: &RunPlan, lines: impl Iterator<Item = &'a Line>) -> Self {
        let progress = progress::by_job(lines);
        let mut done = Self::default();
        let compared = Difference::between(found, now).jobs;
        let later: BTreeMap<_, _> = now.jobs.iter().map(|job| (job.index, job)).collect();
        for (before, job) in found.jobs.iter().zip(compared) {
            let Some(after) = job.after.filter(|_| job.stays()) else {
                continue;
            };
            let Some(so_far) = progress.get(&before.index) else {
                continue;
            };
            done.episodes.insert(after, so_far.done().collect());
            let job = later.get(&after);
            if job.is_some_and(|job| so_far.is_finished(job, None)) {
                done.finished.insert(after);
            }
        }
        done
    }

    /// Returns the number of finished episodes of a job that it still counts.
    fn of_job(&self, job: &Job) -> u64 {
        let episodes = self.episodes.get(&job.index);
        let counted = episodes.into_iter().flatten();
        counted.filter(|episode| job.selects(**episode)).count() as u64
    }

    /// Returns the number of episodes that are left of one rank's part of a job; `None` if the job
    /// does not count them.
    fn left(&self, work: &Work) -> Option<u64> {
        let job = &work.job;
        let Length::Episodes(count) = job.length else {
            return self.finished.contains(&job.index).then_some(0);
        };
        let done = self.episodes.get(&job.index).map_or(&[][..], Vec::as_slice);
        let left = work.episodes(0..count);
        Some(left.filter(|one| done.binary_search(one).is_err()).count() as u64)
    }
}

/// Returns the work of a rank that is not done, in the order in which it is done, with the number
/// of its episodes if they are counted; `None` if leases decide during the run.
fn of_rank(eval: &EvalPlan, done: &DoneWork, rank: usize) -> Option<Vec<(Work, Option<u64>)>> {
    let (assignment, placement) = (eval.assignment, &eval.seating.placement);
    if assignment.assign == Assign::Dynamic {
        return None;
    }
    let all = work(&eval.run.jobs, placement, assignment, rank);
    let left = all.into_iter().map(|work| {
        let left = done.left(&work);
        (work, left)
    });
    Some(left.filter(|(_, left)| *left != Some(0)).collect())
}

#[cfg(test)]
mod tests {
    use jobs::samples;
    use serde_json::json;

    use super::*;

    #[test]
    fn episodes_that_a_job_does_not_have_are_not_all_of_it() {
        let plan = RunPlan {
            jobs: vec![samples::job(json!({"num_episodes": 3}))],
            ..RunPlan::default()
        };
        let job = &plan.jobs[0];
        let is_all = |episodes: [u64; 3]| {
            let lines = episodes.map(|episode| Line::from(samples::episode(0, &job.name, episode)));
            DoneWork::of(&plan, &plan, lines.iter()).finished == [job.index].into()
        };
        assert!(is_all([0, 1, 2]));
        assert!(!is_all([5, 6, 7]));
    }
}
