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
use jobs::journal::{Decision, JobEnd, PolicyFiles, RankStart, Verdict};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::progress;
use jobs::refusal::Refusal;
use jobs::time::Moment;
use serde_json::Value;

use crate::journals::{Journals, LinePosition, LineReader};
use crate::merged::lines::JobLines;
use crate::merged::lives::Events;
use crate::merged::record::{EpisodeRecord, Name};
use crate::merged::state::MergedState;

mod lines;
pub(crate) mod lives;
pub(crate) mod record;
pub(crate) mod scan;
pub(crate) mod state;

pub use scan::Damage;

/// Maximum number of parsed lines of episodes that are kept of a run that is watched: about 16 MiB.
/// Its report is made again and again, and looks up few of them: some of each job, those with
/// errors, and all of jobs that have metrics or a latency. Those beyond are read for each report,
/// so that whoever watches a long run needs no more memory than for a short one.
const KEPT: usize = 16_384;

/// A run: its plan and its merged journals.
pub struct Merged {
    /// The plan of the run.
    pub plan: RunPlan,
    pub(crate) journals: Journals,
    pub(crate) state: MergedState,
    /// Lines that were looked up before; only of a run that is watched.
    cache: Option<Mutex<HashMap<LinePosition, Arc<Episode>>>>,
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
        state.grow(&plan, &journals, None)?;
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
        &self.state.jobs[job.0]
    }

    /// Returns the episodes of a job that count, by number.
    pub(crate) fn episodes(&self, job: JobIndex) -> &[EpisodeRecord] {
        &self.lines(job).episodes
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
        for record in self.episodes(job.index) {
            on(episode(reader.line(record.place)?)?);
        }
        Ok(())
    }

    /// Returns the last decision, unless another launch has continued the run since then. A folder
    /// into which several runs were merged has none: each decision was about one of them.
    pub fn decision(&self) -> Option<&Decision> {
        let last = self
            .state
            .decisions
            .iter()
            .max_by_key(|decision| Moment::parse(&decision.at))?;
        let is_one_run = self.plan.provenance.runs.len() < 2;
        (is_one_run && !self.is_continued_after(last)).then_some(last)
    }

    /// Returns the number of rounds that the run needed, if a sequential test has decided.
    pub(crate) fn needed_rounds(&self) -> Option<u64> {
        self.decision()
            .filter(|decision| decision.verdict != Verdict::Undecided)
            .map(|decision| decision.rounds)
    }

    fn is_continued_after(&self, decision: &Decision) -> bool {
        let (at, events) = (Moment::parse(&decision.at), self.state.events.iter());
        events
            .flat_map(Events::starts)
            .any(|start| start.launch != decision.launch && Moment::parse(&start.started) > at)
    }
}

/// Parses the line of an episode.
pub(crate) fn episode(line: &[u8]) -> io::Result<Episode> {
    // The scan has already accepted the line, so this only fails if the file has changed meanwhile.
    serde_json::from_slice(line).map_err(|err| {
        let what = format!("the journal was changed while it was read: {err}");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}
