//! Verifies from plan and journals that a run is complete: each episode is there once, with its
//! expected seed, under settings that did not change. It also lists by job what the journals say
//! about files, so that the caller can check the files themselves.

use std::collections::BTreeMap;
use std::io;

use jobs::episode::{DemoRef, Episode, EpisodeOutcome};
use jobs::inputs::versions::{VERSIONS, by_package};
use jobs::job::{Job, Status};
use jobs::numbers::Numbers;
use jobs::plan::RunPlan;
use jobs::seed;

use crate::{Merged, tables};

/// Settings that affect how or where a job ran, but not its results.
pub(crate) const HOW: [&str; 8] = [
    "device",
    "max_batch",
    "pipeline_stages",
    "num_envs",
    "env_restarts",
    "world_size",
    "threads",
    "policy_path",
];

/// Errors and notes, one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What must not be so in a finished run.
    pub wrong: Vec<String>,
    /// Notes, which are not errors.
    pub notes: Vec<String>,
}

impl Findings {
    /// Adds those of another part.
    pub fn add(&mut self, other: Self) {
        self.wrong.extend(other.wrong);
        self.notes.extend(other.notes);
    }

    /// Returns the findings with the name of the file that they are about in front.
    pub fn of_file(self, file: &str) -> Self {
        let named = |text: String| format!("`{file}` {text}");
        Self {
            wrong: self.wrong.into_iter().map(named).collect(),
            notes: self.notes.into_iter().map(named).collect(),
        }
    }
}

/// What the journals say about one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobAudit {
    /// Errors and notes about the job.
    pub findings: Findings,
    /// What has not been done: wrong where nobody is at work on it any more.
    pub unfinished: Vec<String>,
    /// Episodes that it is to have, if it has said how many.
    pub expected: Option<u64>,
    /// Number of episodes found.
    pub episodes: u64,
    /// Number of episodes that ended with an error.
    pub errors: u64,
    /// Dataset files, with the episodes that each must have.
    pub datasets: BTreeMap<String, Vec<ExpectedDemo>>,
    /// Video files, with the episodes that each must have.
    pub videos: BTreeMap<String, Vec<EpisodeFrames>>,
}

/// An episode in a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedDemo {
    /// Name of its group below `data`, or `episode_<n>` of a LeRobot folder.
    pub name: String,
    /// The result that it must have.
    pub outcome: EpisodeOutcome,
}

/// What a dataset says about one of its episodes, as far as it does. Steps and seeds have at most
/// 53 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeldDemo {
    /// Number within the job.
    pub episode: Option<f64>,
    /// Seed of the episode.
    pub seed: Option<f64>,
    /// Number of steps.
    pub length: Option<f64>,
    /// Sum of rewards.
    pub return_: Option<f64>,
    /// Whether the episode was solved.
    pub success: Option<bool>,
}

impl ExpectedDemo {
    /// Returns in what the dataset contradicts the journal.
    pub fn contradictions(&self, held: &HeldDemo) -> impl Iterator<Item = String> {
        let is_other = |held: Option<f64>, wanted: u64| held.is_some_and(|it| it != wanted as f64);
        // Both are sums of the same `f32`; the order of the additions may differ.
        let outcome = &self.outcome;
        let return_is_other = held.return_.is_some_and(|held| {
            let close = 1e-6 * outcome.return_.abs().max(1.0);
            held.is_nan() || (held - outcome.return_).abs() > close
        });
        let success = outcome.success == Some(true);
        let others = [
            ("episode number", is_other(held.episode, outcome.episode)),
            ("seed", is_other(held.seed, outcome.seed)),
            ("length", is_other(held.length, outcome.length)),
            ("success", held.success.is_some_and(|held| held != success)),
            ("sum of rewards", return_is_other),
        ];
        others
            .into_iter()
            .filter(|(_, is_other)| *is_other)
            .map(|(name, _)| format!("there with another {name} than in the journal"))
    }
}

/// An episode in a video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeFrames {
    /// Number within the job.
    pub episode: u64,
    /// Index of the first frame.
    pub first: u64,
    /// Number of frames.
    pub frames: u64,
}

impl EpisodeFrames {
    /// Returns the index after the last frame; it saturates.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.frames)
    }
}

/// Formats episode numbers as `episode 3 is` or `episodes 3-5, 9 are`.
pub fn episodes(numbers: impl IntoIterator<Item = u64>) -> String {
    shown(&numbers.into_iter().collect())
}

fn shown(numbers: &Numbers) -> String {
    match numbers.count() {
        1 => format!("episode {} is", numbers.text()),
        _ => format!("episodes {} are", numbers.text()),
    }
}

/// Returns the errors and notes about the run as a whole.
pub fn run(merged: &Merged) -> Findings {
    let mut findings = Findings::default();
    let is_whole = merged.plan.jobs.iter().all(|job| {
        let is_known = merged.expected(job).is_some();
        is_known && merged.missing_of(job).is_empty()
    });
    for damage in merged.damage() {
        // A torn last line is what a kill leaves. If no episode is missing, what a line that cannot
        // be read was about happened again.
        let is_made_up = damage.is_torn_only() || (is_whole && damage.is_unreadable_only());
        let list = if is_made_up {
            &mut findings.notes
        } else {
            &mut findings.wrong
        };
        list.push(damage.to_string());
    }
    if let Some(decision) = merged.decision() {
        findings.notes.push(tables::decision(decision));
    }
    let mut policies: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for files in merged.policies() {
        let seen = policies
            .entry((&files.policy_type, &files.path))
            .or_default();
        if !seen.contains(&files.sha256.as_str()) {
            seen.push(&files.sha256);
        }
    }
    for ((_, path), seen) in policies.iter().filter(|(_, seen)| seen.len() > 1) {
        let short: Vec<_> = seen
            .iter()
            .map(|sha256| sha256.chars().take(12).collect::<String>())
            .collect();
        findings.wrong.push(format!(
            "policy `{path}` was changed during the run: its SHA-256 was {}",
            short.join(", then ")
        ));
    }
    findings
}

/// Verifies one job by its journal lines.
///
/// # Errors
/// Returns the errors of the file system, with the name of the journal.
pub fn job(merged: &Merged, job: &Job) -> io::Result<JobAudit> {
    let mut audit = JobAudit {
        expected: merged.expected(job),
        ..JobAudit::default()
    };
    let mut seen = Irregularities::default();
    merged.each_episode_of(job, |episode| {
        seen.episode(&merged.plan, job, &episode);
        audit.episode(episode);
    })?;
    let missing = merged.missing_of(job);
    let [agreeing, differing] = [true, false].map(|agree| {
        let twice = merged.duplicates_of(job).filter(|one| one.agree == agree);
        twice.map(|one| one.episode).collect::<Vec<_>>()
    });
    if !missing.is_empty() {
        let missing = shown(&missing);
        audit
            .unfinished
            .push(format!("{}: {missing} missing", job.name));
    }
    let Findings { wrong, notes } = &mut audit.findings;
    let tell = |list: &mut Vec<String>, numbers: Vec<u64>, what: &str| {
        if !numbers.is_empty() {
            list.push(format!("{}: {} {what}", job.name, episodes(numbers)));
        }
    };
    let again = "scored more than once, with";
    tell(notes, agreeing, &format!("{again} the same outcome"));
    let undocumented = seen.in_datasets.iter().flat_map(Recorded::gaps);
    for (numbers, what) in [
        (seen.errors, "broken by an error"),
        (differing, &*format!("{again} different outcomes")),
        (
            seen.seeds,
            "not run from the seed that plan and number give",
        ),
        (
            undocumented.collect(),
            "not in a dataset, though others like it are",
        ),
        (
            seen.in_videos.gaps().collect(),
            "not in a video, though others are",
        ),
    ] {
        tell(wrong, numbers, what);
    }
    wrong.extend(changed_settings(merged, job));
    if job.status == Status::Pending && audit.expected.is_none() {
        let unknown = format!(
            "{}: never started, so its number of episodes is unknown",
            job.name
        );
        audit.unfinished.push(unknown);
    }
    Ok(audit)
}

impl JobAudit {
    fn episode(&mut self, episode: Episode) {
        let outcome = episode.outcome();
        self.episodes += 1;
        self.errors += u64::from(!episode.is_scored());
        if let Some(DemoRef { file, demo: name }) = episode.dataset {
            let demos = self.datasets.entry(file).or_default();
            demos.push(ExpectedDemo { name, outcome });
        }
        let frames = episode.video.as_ref().map_or(1, |video| video.frames);
        let of_env = episode
            .video
            .map(|video| (video.file, outcome.episode, video.first_frame));
        let alone = episode.episode_video.map(|file| (file, 0, 0));
        for (file, episode, first) in of_env.into_iter().chain(alone) {
            let spans = self.videos.entry(file).or_default();
            spans.push(EpisodeFrames {
                episode,
                first,
                frames,
            });
        }
    }
}

/// Episode numbers by the kind of problem.
#[derive(Default)]
struct Irregularities {
    errors: Vec<u64>,
    seeds: Vec<u64>,
    /// By whether the episode was solved: `--export-mode succeeded` leaves the failed ones out.
    in_datasets: [Recorded; 2],
    in_videos: Recorded,
}

/// Which of some scored episodes were recorded.
#[derive(Default)]
struct Recorded {
    any: bool,
    missing: Vec<u64>,
}

impl Irregularities {
    fn episode(&mut self, plan: &RunPlan, job: &Job, episode: &Episode) {
        let number = episode.episode;
        if episode.seed != seed::episode(plan.seed, job, number) {
            self.seeds.push(number);
        }
        if episode.error.is_some() {
            self.errors.push(number);
            return;
        }
        let alike = &mut self.in_datasets[usize::from(episode.success == Some(true))];
        alike.add(number, episode.dataset.is_some());
        self.in_videos.add(number, episode.video.is_some());
    }
}

impl Recorded {
    fn add(&mut self, number: u64, is_recorded: bool) {
        match is_recorded {
            true => self.any = true,
            false => self.missing.push(number),
        }
    }

    /// Returns the episodes that are missing although others like them were recorded.
    fn gaps(&self) -> impl Iterator<Item = u64> {
        self.missing.iter().copied().filter(|_| self.any)
    }
}

/// Returns whether a setting may affect results and is compared as a whole: versions are compared
/// by package.
pub(crate) fn is_compared(name: &str) -> bool {
    !HOW.contains(&name) && !VERSIONS.contains(&name)
}

/// Returns the settings of a job that changed at a later start and may have changed its results,
/// and the packages whose versions did: which are imported may depend on whether anything is
/// rendered.
fn changed_settings(merged: &Merged, job: &Job) -> Vec<String> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for settings in merged.settings_of(job) {
        let named = settings.iter().filter(|(name, _)| is_compared(name));
        let named = named.map(|(name, value)| (name.clone(), value.to_string()));
        for (name, value) in named.chain(by_package(settings)) {
            let values = seen.entry(name).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    seen.retain(|_, values| values.len() > 1);
    let text = |(name, values): (String, Vec<String>)| {
        format!("{}: {name} was {}", job.name, values.join(", then "))
    };
    seen.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests;
