//! Where the episodes of a job end up: the journal, with the leases that protect it, and the
//! observers of the rank.
//!
//! ```text
//! episode ─► line written ─► … ─► synced ─► lease, heartbeat, observers
//!               a killed rank keeps it       nobody hears of an episode before
//! ```
//! Several lines share a sync if episodes are short, see [`SyncPace`].

use std::time::{Duration, Instant};

use jobs::episode::Episode;
use jobs::journal::{Journal, Line};

use crate::clock::now;
use crate::eval::lease::Leases;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::rollout::recording::sync_pace::SyncPace;
use crate::eval::stop::Stop;

/// Observer of a running job.
pub trait JobObserver {
    /// Reports progress.
    fn on(&mut self, beat: &Heartbeat);

    /// Takes note of an episode that is in the journal, on the disk.
    fn ended(&mut self, episode: &Episode);

    /// Tells the user something once.
    fn say(&mut self, text: &str);

    /// Tells the user something that several ranks and jobs may report; the user sees one message
    /// for each topic.
    fn say_for_all(&mut self, topic: &'static str, text: &str);
}

/// The log of a job: journal lines, heartbeat and messages.
pub struct EpisodeLog<'a> {
    /// The rank's journal.
    pub journal: &'a mut Journal,
    /// Observer of the job.
    pub observer: &'a mut dyn JobObserver,
    /// The leases under which the job runs; `None` if it is not leased.
    pub leases: Option<&'a Leases>,
    /// The rank's heartbeat, which counts every episode.
    pub beat: Heartbeat,
    /// Episodes whose lines are not synced, in the order of the lines.
    unsynced: Vec<Episode>,
    pace: SyncPace,
}

impl<'a> EpisodeLog<'a> {
    /// Creates the log of a job without episodes; the heartbeat goes on from `beat`.
    pub fn new(
        journal: &'a mut Journal,
        observer: &'a mut dyn JobObserver,
        leases: Option<&'a Leases>,
        beat: Heartbeat,
    ) -> Self {
        Self {
            journal,
            observer,
            leases,
            beat,
            unsynced: Vec::new(),
            pace: SyncPace::default(),
        }
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

    /// Returns whether an episode may be written to the journal: false if another rank has taken
    /// over its lease.
    ///
    /// # Errors
    /// Fails if the store does not answer, and with [`Stop::TakenOver`] if
    /// the whole job was one lease.
    pub fn may_write(&mut self, episode: &Episode) -> Result<bool, Stop> {
        let Some(leases) = self.leases else {
            return Ok(true);
        };
        let may = leases.may_write(episode.job_index, episode.episode)?;
        if !may {
            let (job, episode) = (&episode.job, episode.episode);
            self.observer.say(&format!(
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
    /// The line is synced soon, see [`EpisodeLog::settle`].
    ///
    /// # Errors
    /// Returns the errors of [`EpisodeLog::may_write`] and [`EpisodeLog::write`].
    pub fn episode(&mut self, episode: Episode) -> Result<(), Stop> {
        match self.may_write(&episode)? {
            true => self.write_episode(episode),
            false => Ok(()),
        }
    }

    /// Works like [`EpisodeLog::episode`], after [`EpisodeLog::may_write`].
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
    /// Returns the errors of [`EpisodeLog::sync`].
    pub fn settle(&mut self) -> Result<(), Stop> {
        match self.pace.due() {
            Some(due) if due <= now() => self.sync(),
            _ => Ok(()),
        }
    }

    /// Returns how long the loop may wait before it has to call [`EpisodeLog::settle`], at most
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
        episodes.iter().for_each(|episode| self.on_synced(episode));
        if !episodes.is_empty() {
            self.report();
        }
        Ok(())
    }

    fn on_synced(&mut self, episode: &Episode) {
        let (number, success) = (episode.episode, episode.success);
        tracing::info!(
            episode = number,
            env = episode.env,
            success,
            length = episode.length,
            "episode ended"
        );
        if let Some(leases) = self.leases {
            leases.written(episode.job_index, episode.episode);
        }
        self.beat.count(episode);
        self.observer.ended(episode);
    }

    /// Writes an episode that an error ended to the journal.
    ///
    /// # Errors
    /// Returns the errors of [`EpisodeLog::episode`].
    pub fn errored_episode(&mut self, episode: Episode) -> Result<(), Stop> {
        if let Some(reason) = &episode.error {
            let text = format!("{} episode {}: {reason}", episode.job, episode.episode);
            self.observer.say(&text);
        }
        self.episode(episode)
    }

    /// Reports the heartbeat to the observer.
    pub fn report(&mut self) {
        self.observer.on(&self.beat);
    }

    /// Tells the user something about `job`.
    pub fn say_about(&mut self, job: &str, text: &str) {
        self.observer.say(&format!("{job}: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use jobs::episode::End;
    use jobs::journal;
    use serde_json::json;

    use super::*;
    use crate::env::EnvIndex;
    use crate::eval::rollout::episode::{EpisodePlace, LiveEpisode};

    /// Notes what it is told of.
    #[derive(Default)]
    struct Heard {
        ended: Vec<u64>,
        done: u64,
    }

    impl JobObserver for Heard {
        fn on(&mut self, beat: &Heartbeat) {
            self.done = beat.done;
        }

        fn ended(&mut self, episode: &Episode) {
            self.ended.push(episode.episode);
        }

        fn say(&mut self, _: &str) {}

        fn say_for_all(&mut self, _: &'static str, _: &str) {}
    }

    fn episode(number: u64) -> Episode {
        let jobs = crate::eval::tests::jobs([json!({})]);
        let place = EpisodePlace {
            rank: 0,
            env: EnvIndex(0),
            rebuild: 0,
        };
        LiveEpisode::new(number, 7).ended(&jobs[0], place, End::TimeLimit)
    }

    #[test]
    fn an_episode_is_reported_when_its_line_is_synced_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&dir.path().join("journal_rank0.jsonl")).unwrap();
        let mut heard = Heard::default();
        let mut log = EpisodeLog::new(&mut journal, &mut heard, None, Heartbeat::default());
        // A pause that does not end during the test.
        let began = now();
        log.pace.on_sync(began, began + Duration::from_secs(3600));
        log.episode(episode(0)).unwrap();
        log.episode(episode(1)).unwrap();
        log.settle().unwrap();
        assert_eq!((log.beat.done, log.unsynced.len()), (0, 2));
        assert!(log.patience(Duration::MAX) > Duration::from_secs(60));
        let lines = || {
            journal::read_all(dir.path(), &journal::Accepted::default()).unwrap()[0]
                .lines
                .len()
        };
        assert_eq!(lines(), 2, "a killed rank loses none of them");
        log.sync().unwrap();
        assert_eq!((log.beat.done, log.unsynced.len()), (2, 0));
        drop(log);
        assert_eq!((heard.ended, heard.done), (vec![0, 1], 2));
    }

    #[test]
    fn a_line_that_does_not_wait_syncs_those_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&dir.path().join("journal_rank0.jsonl")).unwrap();
        let mut heard = Heard::default();
        let mut log = EpisodeLog::new(&mut journal, &mut heard, None, Heartbeat::default());
        let began = now();
        log.pace.on_sync(began, began + Duration::from_secs(3600));
        log.episode(episode(0)).unwrap();
        log.write(&Line::from(episode(1))).unwrap();
        assert_eq!(log.beat.done, 1);
        drop(log);
        assert_eq!(heard.ended, [0]);
    }
}
