//! The ledger of a rank: the only thing outside a job that a job changes. It has the journal, the
//! leases that protect it, and the monitor, which hears of everything.
//!
//! ```text
//! episode ─► line written ─► … ─► synced ─► lease, heartbeat, monitor
//!               a killed rank keeps it       nobody hears of an episode before
//! ```
//! Several lines share a sync if episodes are short, see [`SyncPace`].

use std::time::{Duration, Instant};

use jobs::costs::Costs;
use jobs::episode::Episode;
use jobs::journal::{Journal, Line};

use crate::clock::now;
use crate::eval::Stop;
use crate::eval::lease::Leases;
use crate::eval::monitor::{Event, Monitor};
use crate::metrics::Latency;
use crate::policy::Shortage;

/// What a rank has done, and who is told of it.
pub struct Ledger {
    /// The rank's journal.
    journal: Journal,
    /// The leases of the rank; `None` if its jobs are its own.
    pub leases: Option<Leases>,
    /// Who is told.
    pub monitor: Monitor,
    /// Counters of the attempt at a job that is under way.
    pub totals: Totals,
    /// Episodes whose lines are not synced, in the order of the lines.
    unsynced: Vec<Episode>,
    pace: SyncPace,
}

impl Ledger {
    /// Creates the ledger of a rank that has not done anything.
    pub fn new(journal: Journal, monitor: Monitor) -> Self {
        Self {
            journal,
            leases: None,
            monitor,
            totals: Totals::default(),
            unsynced: Vec::new(),
            pace: SyncPace::default(),
        }
    }

    /// Begins an attempt at a job, of which so many episodes are done and solved already.
    pub fn begin(&mut self, name: &str, done: u64, solved: u64) {
        self.totals = Totals::default();
        self.monitor.on(Event::Job { name, done, solved });
    }

    /// Appends a line to the journal and syncs the file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&mut self, line: &Line) -> Result<(), Stop> {
        self.note(line)?;
        self.sync()
    }

    /// Appends a line that only has to survive this process: the file is not synced.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn note(&mut self, line: &Line) -> Result<(), Stop> {
        let noted = self.journal.note(line);
        noted.map_err(|err| Stop::not_written(self.journal.path(), err))
    }

    /// Returns the leases if the job that is under way has them in blocks.
    pub fn leases_in_blocks(&mut self) -> Option<&mut Leases> {
        self.leases.as_mut().filter(|leases| leases.is_in_blocks())
    }

    /// Returns whether an episode may be written to the journal: false if another rank has taken
    /// over its lease.
    ///
    /// # Errors
    /// Fails if the store does not answer, and with [`Stop::TakenOver`] if
    /// the whole job was one lease.
    pub fn may_write(&mut self, episode: &Episode) -> Result<bool, Stop> {
        let Some(leases) = &mut self.leases else {
            return Ok(true);
        };
        let may = leases.may_write(episode.job_index, episode.episode)?;
        if !may {
            let (job, episode) = (&episode.job, episode.episode);
            self.monitor.say(&format!(
                "{job} episode {episode} is left to the rank that has taken it over, because this \
                 one made no progress for too long"
            ));
            // Such a job is a single lease, so nothing of it is left to run.
            if !leases.is_in_blocks() {
                return Err(Stop::TakenOver);
            }
        }
        Ok(may)
    }

    /// Writes the journal line of an episode that has ended, unless another rank has taken it over.
    /// The line is synced soon, see [`Ledger::settle`].
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::may_write`] and [`Ledger::write`].
    pub fn episode(&mut self, episode: Episode) -> Result<(), Stop> {
        match self.may_write(&episode)? {
            true => self.write_episode(episode),
            false => Ok(()),
        }
    }

    /// Works like [`Ledger::episode`], after [`Ledger::may_write`].
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write_episode(&mut self, episode: Episode) -> Result<(), Stop> {
        let line = Line::Episode(Box::new(episode));
        self.note(&line)?;
        if let Line::Episode(episode) = line {
            self.unsynced.push(*episode);
        }
        self.pace.on_line(now());
        self.settle()
    }

    /// Syncs the lines of finished episodes if it is time, and reports these.
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::sync`].
    pub fn settle(&mut self) -> Result<(), Stop> {
        match self.pace.due() {
            Some(due) if due <= now() => self.sync(),
            _ => Ok(()),
        }
    }

    /// Returns how long the loop may wait before it has to call [`Ledger::settle`], at most
    /// `longest`.
    pub fn patience(&self, longest: Duration) -> Duration {
        let left = |due: Instant| due.saturating_duration_since(now());
        self.pace
            .due()
            .map_or(longest, |due| left(due).min(longest))
    }

    /// Syncs the journal, and reports the episodes that it has now on the disk.
    ///
    /// # Errors
    /// Fails if the file cannot be synced. The episodes are then not in the
    /// journal, and are not reported.
    pub fn sync(&mut self) -> Result<(), Stop> {
        let began = now();
        let episodes = std::mem::take(&mut self.unsynced);
        let synced = self.journal.sync();
        synced.map_err(|err| Stop::not_written(self.journal.path(), err))?;
        self.pace.on_sync(began, now());
        for episode in &episodes {
            let (number, success) = (episode.episode, episode.success);
            let (env, length) = (episode.env, episode.length);
            tracing::info!(episode = number, env, success, length, "episode ended");
            if let Some(leases) = &mut self.leases {
                leases.written(episode.job_index, number);
            }
            self.monitor.on(Event::Ended(episode));
        }
        if !episodes.is_empty() {
            self.report();
        }
        Ok(())
    }

    /// Reports the state of the rank, with the time of work so far.
    pub fn report(&mut self) {
        let (sim, infer) = (self.totals.sim_busy.total, self.totals.infer_busy());
        self.monitor.on(Event::Worked([sim, infer]));
        self.monitor.tick();
    }

    /// Tells the user something about `job`.
    pub fn say_about(&self, job: &str, text: &str) {
        self.monitor.say(&format!("{job}: {text}"));
    }
}

/// The pause after a sync takes this many times as long as the sync: syncs take at most a twentieth
/// of the loop's time.
const PAUSE: u32 = 19;

/// Longest pause, and with it the longest time that a line waits: what a crash of the machine may
/// cost.
const LONGEST: Duration = Duration::from_millis(250);

/// Decides when the journal lines of finished episodes are synced to disk. Pure: no I/O and no
/// clock of its own.
///
/// ```text
/// line ── sync ── pause ──┬─ no line: nothing ── line ── sync …
///                         └─ lines: one sync for all of them
/// ```
/// A line that comes after the pause is synced at once, as are all lines of environments whose
/// episodes take longer than that. The pause is a multiple of what the last sync took, so that
/// slow disks cost short episodes no more than fast ones do.
#[derive(Debug, Default)]
pub struct SyncPace {
    /// End of the pause after the last sync.
    rested: Option<Instant>,
    /// Time at which the oldest line was written that is not synced.
    waits: Option<Instant>,
}

impl SyncPace {
    /// Records that a line was written.
    pub fn on_line(&mut self, now: Instant) {
        self.waits.get_or_insert(now);
    }

    /// Records a sync.
    pub fn on_sync(&mut self, began: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(began);
        self.rested = Some(ended + took.saturating_mul(PAUSE).min(LONGEST));
        self.waits = None;
    }

    /// Returns when the lines that wait have to be synced; `None` if none waits.
    pub fn due(&self) -> Option<Instant> {
        let waits = self.waits?;
        Some(self.rested.map_or(waits, |rested| rested.max(waits)))
    }
}

/// Counters of one job in one rank, for its last journal line.
#[derive(Debug, Default)]
pub struct Totals {
    /// What is counted as the journal has it.
    pub costs: Costs,
    /// Number of steps whose action had a value out of bounds.
    pub out_of_bounds: u64,
    /// Duration of a policy call.
    pub infer: Latency,
    /// Duration of a group's turn: that of its slowest step, including its wait for a CPU core.
    pub sim: Latency,
    /// Time in which the policy ran inference; see [`Totals::infer_busy`].
    pub inferred: Duration,
    /// Time in which a planner had at least one question.
    pub thinking: Busy,
    /// Time in which at least one environment was at work.
    pub sim_busy: Busy,
    /// Memory shortages that the policy reported.
    pub shortage: Shortage,
}

impl Totals {
    /// Returns the time in which the policy ran inference, or a planner had at least one question.
    pub fn infer_busy(&self) -> Duration {
        self.inferred + self.thinking.total
    }
}

/// The total length of the union of overlapping time spans.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    at_work: usize,
    since: Option<Instant>,
    /// The total so far, without a span that is still open.
    pub total: Duration,
}

impl Busy {
    /// Starts `count` spans at `now`.
    pub fn begin(&mut self, count: usize, now: Instant) {
        self.at_work += count;
        if self.at_work > 0 {
            self.since.get_or_insert(now);
        }
    }

    /// Ends one span at `now`.
    pub fn end(&mut self, now: Instant) {
        self.at_work = self.at_work.saturating_sub(1);
        if self.at_work == 0
            && let Some(since) = self.since.take()
        {
            self.total += now.saturating_duration_since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use jobs::{journal, samples};

    use crate::clock::now;

    fn episode(number: u64) -> Episode {
        samples::episode(0, "a", number)
    }

    /// Returns a ledger in `dir` after a sync whose pause does not end during the test.
    fn ledger(dir: &Path) -> Ledger {
        let journal = Journal::open(&dir.join("journal_rank0.jsonl")).unwrap();
        let mut out = Ledger::new(journal, crate::eval::tests::monitor());
        let began = now();
        out.pace.on_sync(began, began + Duration::from_secs(3600));
        out
    }

    #[test]
    fn an_episode_is_reported_when_its_line_is_synced_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut out = ledger(dir.path());
        out.episode(episode(0)).unwrap();
        out.episode(episode(1)).unwrap();
        out.settle().unwrap();
        assert_eq!((out.monitor.beat.done, out.unsynced.len()), (0, 2));
        assert!(out.patience(Duration::MAX) > Duration::from_secs(60));
        let lines = || {
            journal::read_all(dir.path(), &journal::Accepted::default()).unwrap()[0]
                .lines
                .len()
        };
        assert_eq!(lines(), 2, "a killed rank loses none of them");
        out.sync().unwrap();
        assert_eq!((out.monitor.beat.done, out.unsynced.len()), (2, 0));
    }

    #[test]
    fn a_line_that_does_not_wait_syncs_those_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut out = ledger(dir.path());
        out.episode(episode(0)).unwrap();
        out.write(&Line::from(episode(1))).unwrap();
        assert_eq!(out.monitor.beat.done, 1);
    }

    #[test]
    fn the_first_line_and_one_after_a_pause_are_due_at_once() {
        let (mut pace, start) = (SyncPace::default(), now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.due(), None);
        pace.on_line(at(0));
        assert_eq!(pace.due(), Some(at(0)));
        pace.on_sync(at(0), at(2));
        assert_eq!(pace.due(), None);
        pace.on_line(at(100));
        assert_eq!(pace.due(), Some(at(100)));
    }

    #[test]
    fn lines_during_the_pause_share_the_sync_at_its_end() {
        let (mut pace, start) = (SyncPace::default(), now());
        let at = |ms| start + Duration::from_millis(ms);
        pace.on_sync(at(0), at(2));
        pace.on_line(at(5));
        pace.on_line(at(30));
        assert_eq!(pace.due(), Some(at(2 + 38)));
    }

    #[test]
    fn no_line_waits_longer_than_the_longest_pause_however_slow_the_disk() {
        let (mut pace, start) = (SyncPace::default(), now());
        let at = |ms| start + Duration::from_millis(ms);
        pace.on_sync(at(0), at(3_000));
        pace.on_line(at(3_001));
        assert_eq!(pace.due(), Some(at(3_250)));
    }

    #[test]
    fn overlapping_spans_count_once() {
        let (mut busy, start) = (Busy::default(), now());
        let at = |seconds| start + Duration::from_secs(seconds);
        busy.begin(1, at(0));
        busy.begin(1, at(2));
        busy.end(at(3));
        busy.end(at(5));
        busy.begin(1, at(10));
        busy.end(at(11));
        assert_eq!(busy.total, Duration::from_secs(6));
    }
}
