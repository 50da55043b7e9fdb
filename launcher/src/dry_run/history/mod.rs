//! Earlier runs near a run folder, from which time and disk of a run are estimated.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jobs::job::{Job, JobIndex, Length};
use jobs::journal::{self, Contents, JobEnd, Line};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::time::Moment;

/// Most run folders that are read, the newest first.
const MOST_RUNS: usize = 32;

/// Most bytes of journals that are read of one run.
const MOST_BYTES: u64 = 128 << 20;

/// Most files of a job whose sizes are read.
const MOST_FILES: usize = 20_000;

/// An earlier run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EarlierRun {
    /// The run folder.
    pub(super) folder: PathBuf,
    /// Episodes that it finished.
    pub(super) episodes: u64,
    /// Largest memory of one rank with its environments, in bytes.
    pub(super) rank_bytes: Option<u64>,
    jobs: Vec<EarlierJob>,
}

/// A job of an earlier run, and what it took.
#[derive(Clone, Debug, PartialEq)]
struct EarlierJob {
    job: Job,
    tally: JobTally,
    /// Bytes of its videos; `None` if the run made none on purpose.
    video_bytes: Option<u64>,
    /// Bytes of its datasets and other files; `None` if the run wrote no datasets on purpose.
    data_bytes: Option<u64>,
}

/// What the journals say about a job.
#[derive(Clone, Debug, Default, PartialEq)]
struct JobTally {
    /// Episodes that ended without an error.
    episodes: u64,
    /// Times that a rank ran the job to its end.
    ends: u64,
    /// Seconds that ranks spent in the job.
    seconds: f64,
}

/// What a job is expected to take, as far as earlier runs tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobEstimate {
    /// Seconds of a rank.
    pub(super) seconds: Option<Rate>,
    /// Bytes of videos.
    pub(super) video_bytes: Option<Rate>,
    /// Bytes of datasets and other files.
    pub(super) data_bytes: Option<Rate>,
}

/// An amount for each unit of a job, and where it is known from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) each: f64,
    /// The folder of the earlier run.
    pub(super) folder: PathBuf,
}

/// Returns the runs in the run folder itself and in the folders beside it, those that are most
/// likely to be alike first: the run folder, then the newest.
pub(super) fn runs(output: &Path) -> Vec<EarlierRun> {
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let entries = parent.read_dir().into_iter().flatten().flatten();
    let beside = entries.map(|entry| entry.path());
    let mut found: Vec<(SystemTime, PathBuf)> = beside
        .filter(|path| !is_same(path, output))
        .filter_map(|path| Some((written(&path)?, path)))
        .collect();
    found.sort_by_key(|(written, _)| std::cmp::Reverse(*written));

    let own = written(output).map(|_| output.to_owned());
    let all = own
        .into_iter()
        .chain(found.into_iter().map(|(_, path)| path));
    all.take(MOST_RUNS)
        .filter_map(|path| EarlierRun::read(&path))
        .collect()
}

/// Returns when the journals of a run folder were last changed; `None` if it is none.
fn written(folder: &Path) -> Option<SystemTime> {
    let folder = RunFolder::new(folder);
    let is_run = folder.plan().is_file();
    let changed = is_run.then(|| std::fs::metadata(folder.journals()));
    changed?.ok()?.modified().ok()
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Refuses journals that take too long to read before a launch.
///
/// # Errors
/// Returns an error with their size, and the errors of the file system.
pub(super) fn check_size(folder: &RunFolder) -> io::Result<()> {
    let mut bytes = 0;
    for path in journal::files(&folder.journals())? {
        bytes += std::fs::metadata(path)?.len();
    }
    if bytes > MOST_BYTES {
        let reason = format!("the journals have {bytes} bytes, which takes too long to read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(())
}

impl EarlierRun {
    /// Reads a run folder; `None` if it has nothing to estimate from.
    fn read(path: &Path) -> Option<Self> {
        let folder = RunFolder::new(path);
        let plan = RunPlan::read(&folder).ok()?;
        check_size(&folder).ok()?;
        let journals = journal::read_own(&folder.journals(), &plan.accepted()).ok()?;
        let contents = journals.iter().map(|(_, contents)| contents);
        let mut run = Self::of(path, &plan, contents);
        for earlier in &mut run.jobs {
            let (video_bytes, data_bytes) = sizes(&folder.job(&earlier.job.name));
            earlier.video_bytes = is_filmed(&plan, &earlier.job).then_some(video_bytes);
            earlier.data_bytes = is_recorded(&plan).then_some(data_bytes);
        }
        (run.episodes > 0 || run.jobs.iter().any(|job| job.tally.ends > 0)).then_some(run)
    }

    /// Returns what journals say about a run, without the sizes of its files.
    fn of<'a>(path: &Path, plan: &RunPlan, journals: impl Iterator<Item = &'a Contents>) -> Self {
        let mut tallies: HashMap<JobIndex, JobTally> = HashMap::new();
        let mut rank_bytes = None;
        for contents in journals {
            tally(&contents.lines, &mut tallies);
            rank_bytes = rank_bytes.max(contents.lines.iter().filter_map(peak_bytes).max());
        }
        let jobs = plan.jobs.iter().map(|job| EarlierJob {
            job: job.clone(),
            tally: tallies.remove(&job.index).unwrap_or_default(),
            video_bytes: None,
            data_bytes: None,
        });
        let jobs: Vec<_> = jobs.collect();
        Self {
            folder: path.to_owned(),
            episodes: jobs.iter().map(|job| job.tally.episodes).sum(),
            rank_bytes,
            jobs,
        }
    }
}

/// Returns the memory of a rank and of its environments' processes at the end of a job.
fn peak_bytes(line: &Line) -> Option<u64> {
    let Line::JobEnd(end) = line else {
        return None;
    };
    let bytes = end
        .peak_rss_bytes
        .saturating_add(end.peak_env_bytes.unwrap_or(0));
    Some(bytes).filter(|bytes| *bytes > 0)
}

/// A job that a rank has begun.
struct Begun<'a> {
    job: JobIndex,
    started: &'a str,
    last: Option<&'a str>,
}

/// Adds the lines of one journal to the tallies of its jobs.
fn tally(lines: &[Line], tallies: &mut HashMap<JobIndex, JobTally>) {
    let mut begun: Option<Begun<'_>> = None;
    for line in lines {
        match line {
            Line::Rank(_) => close(begun.take(), tallies),
            Line::JobStart(start) => {
                close(begun.take(), tallies);
                begun = Some(Begun {
                    job: start.job_index,
                    started: &start.started,
                    last: None,
                });
            }
            Line::Episode(episode) if episode.error.is_none() => {
                tallies.entry(episode.job_index).or_default().episodes += 1;
                if let Some(begun) = &mut begun
                    && begun.job == episode.job_index
                {
                    begun.last = Some(&episode.ended);
                }
            }
            Line::JobEnd(end) => {
                begun = None;
                ended(end, tallies);
            }
            _ => {}
        }
    }
    close(begun, tallies);
}

/// Adds the end of a job in a rank.
fn ended(end: &JobEnd, tallies: &mut HashMap<JobIndex, JobTally>) {
    let tally = tallies.entry(end.job_index).or_default();
    if end.wall_s.is_finite() && end.wall_s > 0.0 {
        tally.seconds += end.wall_s;
    }
    tally.ends += u64::from(end.error.is_none());
}

/// Adds the time of a job that was interrupted, up to its last episode.
fn close(begun: Option<Begun<'_>>, tallies: &mut HashMap<JobIndex, JobTally>) {
    if let Some(begun) = begun
        && let Some(last) = begun.last
    {
        let seconds = Moment::parse(last).since(Moment::parse(begun.started));
        tallies.entry(begun.job).or_default().seconds += seconds;
    }
}

/// Returns the bytes of videos, and of all other files, below a folder.
fn sizes(folder: &Path) -> (u64, u64) {
    let (mut videos, mut others, mut count) = (0, 0, 0);
    let mut folders = vec![(folder.to_owned(), false)];
    while let Some((folder, is_dataset)) = folders.pop() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            count += 1;
            // Links are not followed: a job may film into another folder.
            let Ok(metadata) = entry.path().symlink_metadata() else {
                continue;
            };
            let is_of_dataset =
                is_dataset || entry.file_name().to_string_lossy().starts_with("dataset_");
            if metadata.is_dir() && count < MOST_FILES {
                folders.push((entry.path(), is_of_dataset));
            } else if metadata.is_file() {
                let is_video = entry
                    .path()
                    .extension()
                    .is_some_and(|ending| ending == "mp4");
                match is_video && !is_of_dataset {
                    true => videos += metadata.len(),
                    false => others += metadata.len(),
                }
            }
        }
        if count >= MOST_FILES {
            break;
        }
    }
    (videos, others)
}

/// Returns whether a run films a job, if its environment has cameras.
pub(super) fn is_filmed(run: &RunPlan, job: &Job) -> bool {
    !run.options.contains_key("no-video") && job.video.save != Some(false)
}

/// Returns whether a run writes datasets.
pub(super) fn is_recorded(run: &RunPlan) -> bool {
    !run.options.contains_key("no-dataset")
}

/// Returns what `job` is expected to take for each of its units.
pub(super) fn estimate(job: &Job, runs: &[EarlierRun]) -> JobEstimate {
    JobEstimate {
        seconds: rate(job, runs, |earlier| {
            Some(earlier.tally.seconds).filter(|seconds| *seconds > 0.0)
        }),
        video_bytes: rate(job, runs, |earlier| Some(earlier.video_bytes? as f64)),
        data_bytes: rate(job, runs, |earlier| Some(earlier.data_bytes? as f64)),
    }
}

/// Returns an amount for each unit of `job`, from the earlier job that is most like it and has this
/// amount. Among those that are equally alike, the first run counts.
fn rate(
    job: &Job,
    runs: &[EarlierRun],
    amount: impl Fn(&EarlierJob) -> Option<f64>,
) -> Option<Rate> {
    let mut best: Option<(u8, Rate)> = None;
    for run in runs {
        for earlier in &run.jobs {
            let Some(likeness) = likeness(job, &earlier.job) else {
                continue;
            };
            if best.as_ref().is_some_and(|(found, _)| *found >= likeness) {
                continue;
            }
            let units = earlier.units();
            if let Some(amount) = amount(earlier).filter(|_| units > 0) {
                let rate = Rate {
                    each: amount / units as f64,
                    folder: run.folder.clone(),
                };
                best = Some((likeness, rate));
            }
        }
    }
    best.map(|(_, rate)| rate)
}

/// Returns how much two jobs are alike, or `None` if nothing follows from one for the other.
fn likeness(job: &Job, earlier: &Job) -> Option<u8> {
    let is_same_kind = matches!(
        (job.length, earlier.length),
        (Length::Episodes(_), Length::Episodes(_))
            | (Length::Steps(_), Length::Steps(_))
            | (Length::Policy, Length::Policy)
    );
    let is_same_thing =
        job.environment == earlier.environment && job.policy_type == earlier.policy_type;
    if !is_same_kind || !is_same_thing {
        return None;
    }
    let is_same_work = job.env_args == earlier.env_args
        && job.policy_config == earlier.policy_config
        && job.num_envs == earlier.num_envs
        && job.sharing == earlier.sharing;
    let is_same_name = job.name == earlier.name;
    Some(2 * u8::from(is_same_work) + u8::from(is_same_name))
}

impl EarlierJob {
    /// Returns how many units of the job the run finished: episodes, steps of each environment, or
    /// replays.
    fn units(&self) -> u64 {
        match self.job.length {
            Length::Episodes(_) => self.tally.episodes,
            Length::Steps(steps) => steps
                .saturating_mul(self.job.num_rebuilds)
                .saturating_mul(self.tally.ends),
            Length::Policy => self.tally.ends,
        }
    }
}

#[cfg(test)]
mod tests;
