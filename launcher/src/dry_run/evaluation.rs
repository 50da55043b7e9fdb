//! The description of a plan whose ranks run an evaluation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::job::{Job, Length, Status};
use jobs::layout::RunFolder;
use jobs::placement::Resources;
use jobs::table::{MAX_ROWS, Table};

use crate::dry_run::history::{self, EarlierRun, JobEstimate, Rate};
use crate::dry_run::program::{cpus, failure, logs, meeting};
use crate::dry_run::settings;
use crate::dry_run::work::{self, DoneWork};
use crate::dry_run::{fact, global_rank, headline};
use crate::plan::LaunchPlan;
use crate::plan::eval::EvalPlan;

/// Most names of jobs in a cell, and of runs in a line.
const NAMED: usize = 4;

/// Stands for an unknown number in a table.
const UNKNOWN: &str = "?";

/// Returns the text for a plan. Reads earlier runs.
pub(super) fn text(plan: &LaunchPlan, eval: &EvalPlan) -> String {
    let (done, trouble) = match DoneWork::read(eval) {
        // A quick run begins anew.
        _ if eval.run.quick => (DoneWork::default(), None),
        Ok(done) => (done, None),
        Err(err) => (DoneWork::default(), Some(err.to_string())),
    };
    let runs = history::runs(&eval.output);
    let described = EvalDescription {
        plan,
        eval,
        estimates: eval
            .run
            .jobs
            .iter()
            .map(|job| history::estimate(job, &runs))
            .collect(),
        done,
        runs,
        free: free(&eval.output),
    };
    described.text(trouble)
}

/// Returns the free space where a folder is, or would be.
fn free(folder: &Path) -> Option<ByteSize> {
    let absolute = std::path::absolute(folder).ok()?;
    let existing = absolute.ancestors().find(|path| path.exists())?;
    let found = nix::sys::statvfs::statvfs(existing).ok()?;
    let bytes = found
        .blocks_available()
        .saturating_mul(found.fragment_size());
    Some(ByteSize(bytes))
}

/// What is printed about an evaluation.
struct EvalDescription<'a> {
    plan: &'a LaunchPlan,
    eval: &'a EvalPlan,
    done: DoneWork,
    runs: Vec<EarlierRun>,
    /// What each job takes, in the order of the plan.
    estimates: Vec<JobEstimate>,
    /// Free space of the file system of the run folder.
    free: Option<ByteSize>,
}

impl EvalDescription<'_> {
    fn text(&self, trouble: Option<String>) -> String {
        let mut text = String::new();
        headline(&mut text, self.plan);
        self.ranks(&mut text);
        self.jobs(&mut text);

        let mut files = self.files();
        files.extend(trouble.map(|err| format!("what is done there is unknown: {err}")));
        fact(&mut text, "Files", &files);
        if self.plan.rendezvous.is_some() {
            fact(&mut text, "Meeting", &[meeting(self.plan)]);
        }
        fact(&mut text, "Logs", &[logs(self.plan)]);
        fact(&mut text, "Failure", &[failure(self.plan)]);
        fact(&mut text, "Latency", &settings::latencies(self.pending()));
        fact(
            &mut text,
            "Stop",
            settings::early_stop(self.eval).as_slice(),
        );
        fact(
            &mut text,
            "Trackers",
            settings::trackers(self.eval).as_slice(),
        );
        if let Some(server) = &self.plan.model_server {
            let command = server.server.command.join(" ");
            let line = format!("`{command}`, log `{}`", server.log.display());
            fact(&mut text, "Server", &[line]);
        }
        fact(&mut text, "Time", &[self.time()]);
        fact(&mut text, "Disk", &[self.disk()]);
        fact(&mut text, "Memory", &self.memory());
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
            let time = self.seconds(rank).map(about);
            [
                rank.to_string(),
                device,
                self.cpus(rank),
                jobs,
                episodes,
                time.unwrap_or_else(|| UNKNOWN.to_owned()),
            ]
        };
        let head = ["Rank", "Device", "CPUs", "Jobs", "Episodes", "Time"];
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
        let Some(works) = work::of_rank(self.eval, &self.done, rank) else {
            return ("by leases".to_owned(), UNKNOWN.to_owned());
        };
        let names: Vec<&str> = works.iter().map(|(work, _)| &*work.job.name).collect();
        let counts = works.iter().map(|(_, left)| left.episodes);
        let episodes: Option<u64> = counts.sum();
        (
            match names.as_slice() {
                [] => "none".to_owned(),
                names => listed(names),
            },
            episodes.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string()),
        )
    }

    /// Returns the seconds that a rank is expected to take.
    fn seconds(&self, rank: usize) -> Option<f64> {
        let Some(works) = work::of_rank(self.eval, &self.done, rank) else {
            let all: Option<f64> = self.pending().map(|job| self.seconds_of(job)).sum();
            let ranks = self.eval.seating.placement.world_size().max(1);
            return all.map(|all| all / ranks as f64);
        };
        let each = works.iter().map(|(work, left)| {
            let rate = self.estimate(&work.job)?.seconds.as_ref()?;
            Some(rate.each * left.units as f64)
        });
        each.sum()
    }

    /// Returns the seconds that all of a job takes in one rank.
    fn seconds_of(&self, job: &Job) -> Option<f64> {
        match self.done.left_of(job).units {
            0 => Some(0.0),
            units => Some(self.estimate(job)?.seconds.as_ref()?.each * units as f64),
        }
    }

    fn estimate(&self, job: &Job) -> Option<&JobEstimate> {
        let position = self
            .eval
            .run
            .jobs
            .iter()
            .position(|one| one.index == job.index)?;
        self.estimates.get(position)
    }

    /// Returns the jobs that are to run.
    fn pending(&self) -> impl Iterator<Item = &Job> {
        let jobs = self.eval.run.jobs.iter();
        jobs.filter(|job| job.status == Status::Pending)
    }

    /// Appends the table of all jobs.
    fn jobs(&self, text: &mut String) {
        let all = &self.eval.run.jobs;
        let head = [
            "Job",
            "Environment",
            "Copies",
            "Policy",
            "Length",
            "Done",
            "Time",
            "Disk",
        ];
        let rows = all.iter().map(|job| self.job(job));
        *text += &Table::first(head, rows, "job", ", see --dry-run=json").grid();
        text.push('\n');
    }

    fn job(&self, job: &Job) -> [String; 8] {
        let length = match job.length {
            Length::Episodes(count) => counted(job.selected(count), "episode"),
            Length::Steps(count) => counted(count, "step"),
            Length::Policy => "that of its policy".to_owned(),
        };
        let done = match (job.status, self.done.left_of(job).units) {
            (Status::Pending, 0) => "all".to_owned(),
            (Status::Pending, _) => self.done.of_job(job).to_string(),
            (status, _) => status.as_str().to_owned(),
        };
        let time = self.seconds_of(job).map(about);
        let disk = self.bytes_of(job).map(|bytes| ByteSize(bytes).to_string());
        [
            job.name.clone(),
            job.environment.clone(),
            job.num_envs.to_string(),
            job.policy_type.clone(),
            length,
            done,
            time.unwrap_or_else(|| UNKNOWN.to_owned()),
            disk.unwrap_or_else(|| UNKNOWN.to_owned()),
        ]
    }

    /// Returns the bytes that what is left of a job is expected to write.
    fn bytes_of(&self, job: &Job) -> Option<u64> {
        let units = self.done.left_of(job).units;
        if units == 0 {
            return Some(0);
        }
        let rates = self.disk_rates(job)?;
        let each: f64 = rates.iter().map(|rate| rate.each).sum();
        Some((each * units as f64) as u64)
    }

    /// Returns how fast the files of a job grow; `None` if that is unknown of any.
    fn disk_rates(&self, job: &Job) -> Option<Vec<&Rate>> {
        let (run, estimate) = (&self.eval.run, self.estimate(job)?);
        let mut rates = Vec::new();
        if history::is_filmed(run, job) {
            rates.push(estimate.video_bytes.as_ref()?);
        }
        if history::is_recorded(run) {
            rates.push(estimate.data_bytes.as_ref()?);
        }
        Some(rates)
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

    fn time(&self) -> String {
        let ranks = self.eval.seating.placement.world_size().min(MAX_ROWS);
        let mut longest: f64 = 0.0;
        for rank in 0..ranks {
            match self.seconds(rank) {
                Some(seconds) => longest = longest.max(seconds),
                None => {
                    return self.unknown(|job| self.seconds_of(job).is_none());
                }
            }
        }
        if longest == 0.0 {
            return "nothing is left to do".to_owned();
        }
        let rates = self
            .left()
            .filter_map(|job| self.estimate(job)?.seconds.as_ref());
        format!("about {}, as in {}", about(longest), self.sources(rates))
    }

    fn disk(&self) -> String {
        let free = match self.free {
            Some(free) => format!("; {free} are free"),
            None => String::new(),
        };
        let all: Option<u64> = self.pending().map(|job| self.bytes_of(job)).sum();
        match all {
            Some(0) => format!("little{free}"),
            Some(bytes) => {
                let scarce = match self.free {
                    Some(free) if bytes > free.0 => ", which is not enough",
                    _ => "",
                };
                let rates = self.left().filter_map(|job| self.disk_rates(job)).flatten();
                let sources = self.sources(rates);
                format!("about {}, as in {sources}{free}{scarce}", ByteSize(bytes))
            }
            None => {
                let why = self.unknown(|job| self.bytes_of(job).is_none());
                format!("{why}{free}")
            }
        }
    }

    /// Returns the jobs that have something left to do.
    fn left(&self) -> impl Iterator<Item = &Job> {
        self.pending()
            .filter(|job| self.done.left_of(job).units > 0)
    }

    /// Returns why there is no estimate, which the first job of this kind prevents.
    fn unknown(&self, is_unknown: impl Fn(&Job) -> bool) -> String {
        let count = self.left().filter(|job| is_unknown(job)).count();
        match self.left().find(|job| is_unknown(job)) {
            Some(job) if count < self.left().count() => {
                format!("no earlier run of `{}` to estimate from", job.name)
            }
            _ => "no earlier run to estimate from".to_owned(),
        }
    }

    /// Returns the names of the runs that rates come from.
    fn sources<'a>(&self, rates: impl Iterator<Item = &'a Rate>) -> String {
        let folders: BTreeSet<&Path> = rates.map(|rate| rate.folder.as_path()).collect();
        let texts = folders.into_iter().map(|folder| {
            let run = self.runs.iter().find(|run| run.folder == folder);
            let episodes = run.map_or(0, |run| run.episodes);
            format!("`{}` ({})", folder.display(), counted(episodes, "episode"))
        });
        let texts: Vec<String> = texts.collect();
        listed(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn memory(&self) -> Vec<String> {
        let seating = &self.eval.seating;
        if seating.resources != Resources::Labels {
            let mut lines: Vec<String> =
                seating.allocation.iter().take(MAX_ROWS).cloned().collect();
            lines.push(self.hint("shows the parts"));
            return lines;
        }
        let is_source = |run: &&EarlierRun| {
            let mut rates = self.estimates.iter().filter_map(|one| one.seconds.as_ref());
            rates.any(|rate| rate.folder == run.folder)
        };
        let run = self.runs.iter().find(is_source);
        match run.and_then(|run| Some((run, run.rank_bytes?))) {
            Some((run, bytes)) => vec![format!(
                "up to {} per rank, as in `{}`",
                ByteSize(bytes),
                run.folder.display()
            )],
            None => vec![self.hint("estimates that of GPUs")],
        }
    }

    fn hint(&self, what: &str) -> String {
        format!("`rrun fit --jobs {}` {what}", self.eval.run.jobs_file)
    }
}

/// Returns names separated by commas; of many, the first.
pub(super) fn listed(names: &[&str]) -> String {
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len() {
        count if count > NAMED => format!("{first} and {} more", count - NAMED),
        _ => first,
    }
}

/// Formats seconds for an estimate: `40 s`, `12 min`, `2 h 05 min`.
fn about(seconds: f64) -> String {
    // Negative and unknown numbers become 0; a plan of more than centuries stays one.
    let whole = seconds.round() as u64;
    match whole {
        0 if seconds > 0.0 => "1 s".to_owned(),
        0..100 => format!("{whole} s"),
        100..3600 => format!("{} min", whole.div_ceil(60)),
        3600..172_800 => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} days", whole.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_for_readers() {
        let texts = [0.0, 0.2, 40.4, 100.0, 3599.0, 7500.0, 864_000.0].map(about);
        assert_eq!(
            texts,
            [
                "0 s",
                "1 s",
                "40 s",
                "2 min",
                "60 min",
                "2 h 05 min",
                "10 days"
            ]
        );
    }

    #[test]
    fn many_names_are_counted() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(
            listed(&["a", "b", "c", "d", "e", "f"]),
            "a, b, c, d and 2 more"
        );
    }
}
