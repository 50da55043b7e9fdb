//! Merges journals: decides which lines count, and groups them by job and by rank.
//!
//! ```text
//! journals ─► pieces ─► scan (a thread each) ─► episodes by job ─► sorted, each counted once
//!                                          └──► other lines by job and by journal, in time
//! ```
//! The result depends on the set of lines only: neither the order of journals nor duplicate lines
//! change it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use jobs::episode::Episode;
use jobs::file::MAX_EPISODES;
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::{JobEnd, JobStart, PolicyFiles, RankStart};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::progress;
use jobs::refusal::Refusal;
use jobs::time::Moment;
use serde_json::Value;

use crate::journals::Journals;
use crate::journals::reader::{LinePosition, LineReader};
use crate::merged::record::{EpisodeRecord, Name};
use crate::merged::scan::EpisodeStarts;
use crate::merged::state::MergedState;

mod attempts;
pub(crate) mod busy;
mod decision;
pub(crate) mod lives;
pub(crate) mod matches;
pub(crate) mod record;
mod repeats;
pub(crate) mod scan;
pub(crate) mod state;

/// Number of episodes of a job that memory is reserved for beforehand; it grows if more are found.
const ROOM: u64 = 1000;

/// Maximum number of parsed lines of episodes that are kept of a run that is watched: about 16 MiB.
/// Its report is made again and again, and looks up few of them: some of each job, those with
/// errors, and all of jobs that have metrics or a latency. Those beyond are read for each report,
/// so that whoever watches a long run needs no more memory than for a short one.
const KEPT: usize = 16_384;

/// A run: its plan and its merged journals.
pub struct Merged {
    pub(crate) plan: RunPlan,
    pub(crate) journals: Journals,
    pub(crate) state: MergedState,
    /// Lines that were looked up before; only of a run that is watched.
    cache: Option<Mutex<HashMap<LinePosition, Arc<Episode>>>>,
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
    /// Whether the lines are in order, and each counted once.
    is_settled: bool,
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
    /// Numbers of lines of another run, or of a job that has changed since or is not in the plan,
    /// from 1.
    pub foreign: Vec<u64>,
    /// Numbers of lines of episodes that the plan does not have, from 1.
    pub unplanned: Vec<u64>,
}

impl Damage {
    /// Adds the damage of a piece, which `before` lines of the journal precede.
    fn add(&mut self, piece: Self, before: u64) {
        let lists = [
            (&mut self.lines, piece.lines),
            (&mut self.foreign, piece.foreign),
            (&mut self.unplanned, piece.unplanned),
        ];
        for (all, numbers) in lists {
            all.extend(numbers.into_iter().map(|number| before + number));
        }
    }

    /// Whether it is no more than what a kill leaves.
    pub fn is_torn_only(&self) -> bool {
        self.lines.is_empty() && self.is_unreadable_only()
    }

    /// Whether all of it cannot be read, and nothing is of another run, job or episode.
    pub fn is_unreadable_only(&self) -> bool {
        self.foreign.is_empty() && self.unplanned.is_empty()
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
                "{count} foreign {which}: of another run, or of a job that has changed since or is \
                 not in the plan"
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

impl Merged {
    /// Reads the plan and the journals of a run folder as they are now.
    ///
    /// # Errors
    /// Refuses what cannot be read.
    pub fn open(folder: &RunFolder) -> Result<Self, Refusal> {
        let plan = RunPlan::read(folder)?;
        let merged = Journals::of(folder).and_then(|journals| Self::new(plan, journals));
        let place = format_args!("cannot read `{}`", folder.root().display());
        merged.map_err(|err| Refusal::at(place, err))
    }

    /// Reads and merges all journals.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the name of the journal.
    pub fn new(plan: RunPlan, journals: Journals) -> io::Result<Self> {
        let mut state = MergedState::of(&plan);
        state.grow(&plan, &journals, EpisodeStarts::Skipped, |_, _| ())?;
        state.settle(&plan, &journals, None)?;
        Ok(Self {
            plan,
            journals,
            state,
            cache: None,
        })
    }

    /// Creates a run of which nothing was read yet, to be watched.
    pub(crate) fn unread(plan: RunPlan) -> Self {
        Self {
            state: MergedState::of(&plan),
            plan,
            journals: Journals::default(),
            cache: Some(Mutex::default()),
        }
    }

    /// Returns the plan of the run.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Returns who writes into the run folder, if anybody does.
    pub fn writer(&self) -> Option<String> {
        self.journals.writer()
    }

    /// Returns the line of an episode.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(crate) fn episode(
        &self,
        reader: &mut LineReader,
        record: &EpisodeRecord,
    ) -> io::Result<Arc<Episode>> {
        let lock = |cache| Mutex::lock(cache).unwrap_or_else(PoisonError::into_inner);
        let mut cache = self.cache.as_ref().map(lock);
        if let Some(found) = cache.as_ref().and_then(|cache| cache.get(&record.place)) {
            return Ok(Arc::clone(found));
        }
        let found = Arc::new(episode(reader.line(record.place)?)?);
        if let Some(cache) = cache.as_mut().filter(|cache| cache.len() < KEPT) {
            cache.insert(record.place, Arc::clone(&found));
        }
        Ok(found)
    }

    pub(crate) fn lines(&self, job: JobIndex) -> &JobLines {
        self.state.jobs.get(job.0).unwrap_or(&self.state.none)
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
        self.state.names.text(name)
    }

    /// Returns the journals with damaged or foreign lines.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        self.state
            .damage
            .iter()
            .filter(|damage| !damage.is_torn_only() || damage.torn > 0)
    }

    /// Returns the checksums of policy files, in order of time.
    pub fn policies(&self) -> &[PolicyFiles] {
        &self.state.policies
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
        let lives = self.state.events.iter().flat_map(|events| &events.lives);
        lives.map(|life| &life.start)
    }

    /// Returns the number of ranks that ran the scored episodes.
    pub fn ranks(&self) -> usize {
        let records = self.state.jobs.iter().flat_map(|job| &job.episodes);
        let scored = records.filter(|record| record.is_scored());
        scored
            .map(|record| record.rank)
            .collect::<BTreeSet<_>>()
            .len()
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
        if std::mem::replace(&mut self.is_settled, true) {
            return Ok(());
        }
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
    Ok(record::counted(a, b, [&a_line, b_line]))
}

/// Parses the line of an episode.
pub(crate) fn episode(line: &[u8]) -> io::Result<Episode> {
    // The scan has already accepted the line, so this only fails if the file has changed meanwhile.
    serde_json::from_slice(line).map_err(|err| {
        let what = format!("the journal was changed while it was read: {err}");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}
