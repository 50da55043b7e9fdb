//! Merges journals: decides which lines count, and groups them by job and by rank.
//!
//! ```text
//! journals ─► pieces ─► scan (a thread each) ─► episodes by job ─► sorted, each counted once
//!                                          └──► other lines by job and by journal, in time
//! ```
//! The result depends on the set of lines only: neither the order of journals nor duplicate lines
//! change it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;

use jobs::episode::Episode;
use jobs::file::rollout::MAX_EPISODES;
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::{Accepted, Decision, JobEnd, JobStart, Line, PolicyFiles, RankStart};
use jobs::plan::RunPlan;
use jobs::progress;
use jobs::threads;
use jobs::time::Moment;
use serde_json::Value;

use crate::journals::reader::{LinePosition, LineReader};
use crate::journals::{Journals, pieces};
use crate::merged::lives::Events;
use crate::merged::record::{EpisodeRecord, InternedNames, Name};
use crate::merged::scan::{Other, PieceScan, scan};

mod attempts;
pub(crate) mod busy;
mod decision;
pub(crate) mod lives;
pub(crate) mod matches;
pub(crate) mod record;
mod repeats;
pub(crate) mod scan;

/// Number of episodes of a job that memory is reserved for beforehand; it grows if more are found.
const ROOM: u64 = 1000;

/// The merged journals of a run.
pub struct Merged<'a> {
    pub(crate) plan: &'a RunPlan,
    pub(crate) journals: &'a Journals,
    /// Lines by job, in the order of the plan.
    pub(crate) jobs: Vec<JobLines>,
    /// Position in the plan of each job index: a plan with `--only` has some of the jobs of its
    /// file, which keep their index in the file.
    positions: HashMap<JobIndex, usize>,
    /// Stands for a job that is not in the plan; always empty.
    none: JobLines,
    /// One entry for each journal, in the order of [`Journals`].
    pub(crate) events: Vec<Events>,
    pub(crate) policies: Vec<PolicyFiles>,
    /// Decisions of sequential tests, in the order of the journals.
    decisions: Vec<Decision>,
    /// Moment of the first and the last line, without those of [`repeats`].
    pub(crate) span: Option<[Moment; 2]>,
    names: InternedNames,
    damage: Vec<Damage>,
    strangers: u64,
    unmarked: u64,
}

/// Lines of one job.
#[derive(Default)]
pub(crate) struct JobLines {
    /// Episodes by ascending number, each once.
    pub(crate) episodes: Vec<EpisodeRecord>,
    /// Starts of the job, in order of time.
    pub(crate) starts: Vec<JobStart>,
    /// Ends of the job, in order of time.
    pub(crate) ends: Vec<JobEnd>,
    /// Lost environment processes, in order of time.
    pub(crate) losses: Vec<(Moment, LinePosition)>,
}

/// Lines of a journal that do not count: damaged or foreign ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Path of the journal, relative to the run folder.
    pub journal: String,
    /// Numbers of complete lines that are not journal lines, from 1.
    pub lines: Vec<u64>,
    /// Bytes of an incomplete last line.
    pub torn: u64,
    /// Numbers of lines of another run, or of a job that has changed since, from 1.
    pub foreign: Vec<u64>,
    /// Numbers of lines of episodes that the plan does not have, from 1.
    pub unplanned: Vec<u64>,
}

impl Damage {
    /// Whether it is no more than what a kill leaves.
    pub fn is_torn_only(&self) -> bool {
        self.lines.is_empty() && self.foreign.is_empty() && self.unplanned.is_empty()
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        if !self.lines.is_empty() {
            parts.push(format!(
                "{} damaged {}",
                self.lines.len(),
                numbered(&self.lines)
            ));
        }
        if !self.foreign.is_empty() {
            let (count, which) = (self.foreign.len(), numbered(&self.foreign));
            parts.push(format!(
                "{count} foreign {which}: of another run, or of a job that has changed since"
            ));
        }
        if !self.unplanned.is_empty() {
            let (count, which) = (self.unplanned.len(), numbered(&self.unplanned));
            parts.push(format!(
                "{count} unplanned {which}: of episodes that are not in the plan"
            ));
        }
        if self.torn > 0 {
            parts.push(format!("the last line is torn ({} bytes)", self.torn));
        }
        write!(f, "`{}`: {}", self.journal, parts.join("; "))
    }
}

/// Formats line numbers as `lines (3, 4)`, at most the first five.
fn numbered(lines: &[u64]) -> String {
    let first: Vec<_> = lines.iter().take(5).map(u64::to_string).collect();
    let more = if lines.len() > 5 { ", …" } else { "" };
    let plural = if lines.len() > 1 { "s" } else { "" };
    format!("line{plural} ({}{more})", first.join(", "))
}

impl<'a> Merged<'a> {
    /// Reads and merges all journals.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the name of the journal.
    pub fn new(plan: &'a RunPlan, journals: &'a Journals) -> io::Result<Self> {
        let mut merged = Self {
            plan,
            journals,
            jobs: plan.jobs.iter().map(JobLines::of).collect(),
            positions: plan
                .jobs
                .iter()
                .enumerate()
                .map(|(position, job)| (job.index, position))
                .collect(),
            none: JobLines::default(),
            events: journals.sources().iter().map(Events::of).collect(),
            policies: Vec::new(),
            decisions: Vec::new(),
            span: None,
            names: InternedNames::default(),
            damage: journals
                .sources()
                .iter()
                .map(|s| Damage {
                    journal: s.name.clone(),
                    ..Damage::default()
                })
                .collect(),
            strangers: 0,
            unmarked: 0,
        };
        let mut lines_before = vec![0; journals.sources().len()];
        read(journals, &plan.accepted(), |source, scan| {
            merged.add(source, scan, &mut lines_before[source])
        })?;
        let mut reader = journals.reader();
        for (job, lines) in plan.jobs.iter().zip(&mut merged.jobs) {
            lines.settle(job.length, &mut reader)?;
        }
        merged.events.iter_mut().for_each(Events::settle);
        if repeats::set_aside(&mut merged.events) {
            let episodes = merged
                .jobs
                .iter()
                .flat_map(|job| &job.episodes)
                .map(|record| record.ended);
            merged.span = repeats::span(&merged.events, episodes);
        }
        merged
            .policies
            .sort_by(|a, b| (&a.at, &a.path).cmp(&(&b.at, &b.path)));
        merged.policies.dedup();
        Ok(merged)
    }

    fn add(&mut self, source: usize, scan: PieceScan, lines_before: &mut u64) {
        let numbers: Vec<_> = scan
            .names
            .texts()
            .map(|text| self.names.number(text))
            .collect();
        let renumbered = |name: Option<Name>| name.map(|name| numbers[name.index()]);
        for (index, record) in scan.episodes {
            let Some(job) = self
                .positions
                .get(&index)
                .and_then(|position| self.jobs.get_mut(*position))
            else {
                self.strangers += 1;
                continue;
            };
            let (dataset, video) = (renumbered(record.dataset), renumbered(record.video));
            let instruction = numbers[record.instruction.index()];
            job.episodes.push(EpisodeRecord {
                dataset,
                video,
                instruction,
                ..record
            });
        }
        let damage = &mut self.damage[source];
        damage
            .lines
            .extend(scan.damaged.iter().map(|line| *lines_before + line + 1));
        damage
            .foreign
            .extend(scan.foreign.iter().map(|line| *lines_before + line + 1));
        damage
            .unplanned
            .extend(scan.unplanned.iter().map(|line| *lines_before + line + 1));
        damage.torn += scan.torn;
        self.unmarked += scan.unmarked;
        *lines_before += scan.lines;
        for other in scan.others {
            self.events[source].add(&other);
            self.other(other);
        }
        if let Some([first, last]) = scan.span {
            self.events[source].saw(last);
            let [earliest, latest] = self.span.unwrap_or([first, last]);
            self.span = Some([earliest.min(first), latest.max(last)]);
        }
    }

    fn other(&mut self, Other { line, place, .. }: Other) {
        let index = match &line {
            Line::JobStart(start) => start.job_index,
            Line::JobEnd(end) => end.job_index,
            Line::EnvLost(lost) => lost.job_index,
            Line::PolicyFiles(files) => return self.policies.push(files.clone()),
            Line::Decision(decision) => return self.decisions.push((**decision).clone()),
            _ => return,
        };
        let Some(job) = self
            .positions
            .get(&index)
            .and_then(|position| self.jobs.get_mut(*position))
        else {
            self.strangers += 1;
            return;
        };
        match line {
            Line::JobStart(start) => job.starts.push(start),
            Line::JobEnd(end) => job.ends.push(end),
            Line::EnvLost(lost) => job.losses.push((Moment::parse(&lost.at), place)),
            _ => {}
        }
    }

    pub(crate) fn lines(&self, job: JobIndex) -> &JobLines {
        self.positions
            .get(&job)
            .map_or(&self.none, |position| &self.jobs[*position])
    }

    /// Returns the ends that determine the status of a job, the latest first, see
    /// [`progress::standing`].
    pub(crate) fn standing(&self, job: JobIndex) -> Vec<&JobEnd> {
        progress::standing(self.lines(job).ends.iter())
    }

    /// Returns how many episodes a job has; `None` as long as that is not known.
    pub fn expected(&self, job: &Job) -> Option<u64> {
        let lines = self.lines(job.index);
        match (job.status, job.length) {
            (Status::Pending, Length::Episodes(count)) => Some(job.selected(count)),
            (Status::Pending, Length::Steps(_)) => Some(lines.episodes.len() as u64),
            (Status::Pending, Length::Policy) => {
                let said = lines.starts.iter().rev().find_map(|start| start.episodes);
                // The journal may come from another user; a job has at most this many episodes.
                said.map(|count| count.min(MAX_EPISODES))
            }
            _ => Some(0),
        }
    }

    /// Returns the text of a file name or instruction.
    pub(crate) fn name(&self, name: Name) -> &str {
        self.names.text(name)
    }

    /// Returns the journals with damaged or foreign lines.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        self.damage
            .iter()
            .filter(|damage| !damage.is_torn_only() || damage.torn > 0)
    }

    /// Returns the number of lines about jobs that are not in the plan; they do not count.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// Returns the number of lines without a stamp, from older versions. They count.
    pub fn unmarked(&self) -> u64 {
        self.unmarked
    }

    /// Returns the checksums of policy files, in order of time.
    pub fn policies(&self) -> &[PolicyFiles] {
        &self.policies
    }

    /// Returns the settings of each start of a job, in order of time.
    pub fn settings_of(&self, job: &Job) -> impl Iterator<Item = &BTreeMap<String, Value>> {
        self.lines(job.index)
            .starts
            .iter()
            .map(|start| &start.settings)
    }

    /// Returns how each life of a rank started, in order of journals and time.
    pub(crate) fn starts(&self) -> impl Iterator<Item = &RankStart> {
        let lives = self.events.iter().flat_map(|events| &events.lives);
        lives.map(|life| &life.start)
    }

    /// Returns the numbers of the scored episodes of a job.
    pub fn scored_of(&self, job: &Job) -> impl Iterator<Item = u64> {
        self.lines(job.index)
            .episodes
            .iter()
            .filter(|record| record.is_scored())
            .map(|record| record.episode)
    }

    /// Calls `on` for each episode of a job that counts, in order of number.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn each_episode_of(&self, job: &Job, mut on: impl FnMut(Episode)) -> io::Result<()> {
        let mut reader = self.journals.reader();
        for record in &self.lines(job.index).episodes {
            on(episode(reader.line(record.place)?)?);
        }
        Ok(())
    }
}

impl JobLines {
    /// Reserves memory for the episodes of a job.
    fn of(job: &Job) -> Self {
        let count = if let Length::Episodes(count) = job.length {
            count
        } else {
            0
        };
        Self {
            episodes: Vec::with_capacity(count.min(ROOM) as usize),
            ..Self::default()
        }
    }

    /// Sorts the lines by time and keeps each episode once.
    fn settle(&mut self, length: Length, reader: &mut LineReader) -> io::Result<()> {
        self.starts
            .sort_by(|a, b| (&a.started, a.rank).cmp(&(&b.started, b.rank)));
        self.starts.dedup();
        self.ends
            .sort_by(|a, b| (&a.ended, a.rank).cmp(&(&b.ended, b.rank)));
        self.ends.dedup();
        self.settle_losses(reader)?;
        if matches!(length, Length::Steps(_)) {
            attempts::forget_earlier(&self.starts, &mut self.episodes);
        }
        self.episodes.sort_unstable_by_key(|record| {
            (record.episode, record.place.source, record.place.offset)
        });
        let mut kept = 0;
        for next in 0..self.episodes.len() {
            let begun = &self.episodes[..kept];
            if begun
                .last()
                .is_some_and(|last| last.episode == self.episodes[next].episode)
            {
                let counted = counted([&self.episodes[kept - 1], &self.episodes[next]], reader)?;
                self.episodes[kept - 1] = counted;
            } else {
                self.episodes.swap(kept, next);
                kept += 1;
            }
        }
        self.episodes.truncate(kept);
        self.episodes.shrink_to_fit();
        Ok(())
    }

    fn settle_losses(&mut self, reader: &mut LineReader) -> io::Result<()> {
        let mut kept: Vec<(Moment, Vec<u8>, LinePosition)> = Vec::new();
        for (at, place) in self.losses.drain(..) {
            kept.push((at, reader.line(place)?.to_vec(), place));
        }
        kept.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        kept.dedup_by(|a, b| a.1 == b.1);
        self.losses = kept.into_iter().map(|(at, _, place)| (at, place)).collect();
        Ok(())
    }
}

/// Returns which of two records of an episode counts; identical lines are one record.
fn counted(records: [&EpisodeRecord; 2], reader: &mut LineReader) -> io::Result<EpisodeRecord> {
    let [a, b] = records;
    let a_line = reader.line(a.place)?.to_vec();
    let b_line = reader.line(b.place)?;
    if a_line == b_line {
        return Ok(a.clone());
    }
    let (a, b) = (
        (a.clone(), episode(&a_line)?),
        (b.clone(), episode(b_line)?),
    );
    Ok(record::counted(a, b, [&a_line, b_line]).0)
}

/// Parses the line of an episode.
pub(crate) fn episode(line: &[u8]) -> io::Result<Episode> {
    // The scan has already accepted the line, so this only fails if the file has changed meanwhile.
    serde_json::from_slice(line).map_err(|err| {
        let what = format!("the journal was changed while it was read: {err}");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Scans all pieces of all journals on several threads, and passes the results to `on` in order.
fn read(
    journals: &Journals,
    accepted: &Accepted,
    mut on: impl FnMut(usize, PieceScan),
) -> io::Result<()> {
    let sources = journals.sources().iter().enumerate();
    let work: Vec<(usize, Range<u64>)> = sources
        .flat_map(|(index, source)| pieces::pieces(source.len()).map(move |piece| (index, piece)))
        .collect();
    let of_any_run = accepted.of_any_run();
    let one =
        |(source, range): &(usize, Range<u64>), buffer: &mut Vec<u8>| -> io::Result<PieceScan> {
            let accepted = if journals.sources()[*source].is_delivered() {
                &of_any_run
            } else {
                accepted
            };
            Ok(scan(
                &pieces::read(&journals.sources()[*source], range.clone(), buffer)?,
                *source as u32,
                accepted,
            ))
        };
    threads::in_order(&work, one, |(source, _), scan| on(*source, scan))
}
