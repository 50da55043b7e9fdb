//! Where the episodes of a job end up: the journal, with the leases that protect it, and the
//! observers of the rank.

use jobs::episode::Episode;
use jobs::journal::{Journal, Line};

use crate::eval::lease::Leases;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::rollout::job::error::JobError;

/// Observer of a running job.
pub trait JobObserver {
    /// Reports progress.
    fn on(&mut self, beat: &Heartbeat);

    /// Takes note of an episode that is in the journal.
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
}

impl EpisodeLog<'_> {
    /// Appends a line to the journal and syncs the file.
    ///
    /// # Errors
    /// Returns [`JobError::Journal`] if the file cannot be written.
    pub fn write(&mut self, line: &Line) -> Result<(), JobError> {
        self.journal.append(line).map_err(|err| JobError::Journal {
            path: self.journal.path().to_owned(),
            err,
        })
    }

    /// Appends a line that only has to survive this process: the file is not synced.
    ///
    /// # Errors
    /// Returns [`JobError::Journal`] if the file cannot be written.
    pub fn note(&mut self, line: &Line) -> Result<(), JobError> {
        self.journal.note(line).map_err(|err| JobError::Journal {
            path: self.journal.path().to_owned(),
            err,
        })
    }

    /// Returns whether an episode may be written to the journal: false if another rank has taken
    /// over its lease.
    ///
    /// # Errors
    /// Returns [`JobError::Leases`] if the store does not answer, and [`JobError::TakenOver`] if
    /// the whole job was one lease.
    pub fn may_write(&mut self, episode: &Episode) -> Result<bool, JobError> {
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
                return Err(JobError::TakenOver);
            }
        }
        Ok(may)
    }

    /// Writes the journal line of an episode that has ended, unless another rank has taken it over.
    ///
    /// # Errors
    /// Returns the errors of [`EpisodeLog::may_write`] and [`EpisodeLog::write`].
    pub fn episode(&mut self, episode: Episode) -> Result<(), JobError> {
        if !self.may_write(&episode)? {
            return Ok(());
        }
        let line = Line::Episode(Box::new(episode));
        self.write(&line)?;
        let Line::Episode(episode) = &line else {
            return Ok(());
        };
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
        self.report();
        Ok(())
    }

    /// Writes an episode that an error ended to the journal at once.
    ///
    /// # Errors
    /// Returns the errors of [`EpisodeLog::episode`].
    pub fn errored_episode(&mut self, episode: Episode) -> Result<(), JobError> {
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
