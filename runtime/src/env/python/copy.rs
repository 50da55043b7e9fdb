//! The state of one copy: its episode, its command, and whether it was lost.

use std::sync::Arc;

use crate::env::python::host::Host;
use crate::env::python::message::{Entry, EpisodeId, Reply};
use crate::env::{Answer, EnvError, EnvIndex, Observation, Step};

/// One copy of an environment.
pub struct CopyState {
    /// Its index in the whole environment.
    pub env: EnvIndex,
    /// The command that is being executed.
    pub doing: Option<Entry>,
    /// Its episode, from the reset until the next one.
    pub episode: Option<RunningEpisode>,
    /// How its episode was lost with the process, if the loop was not told yet.
    pub lost: Option<EnvError>,
    /// The task instruction.
    pub language: Arc<str>,
}

/// A running episode.
#[derive(Clone, Copy)]
pub struct RunningEpisode {
    /// Number and seed of the episode.
    pub id: EpisodeId,
    /// Number of steps that were commanded.
    pub steps: u64,
    /// True if it has ended.
    pub is_over: bool,
}

impl CopyState {
    /// Creates the state of a copy that has done nothing yet.
    pub fn new(env: usize) -> Self {
        Self {
            env: EnvIndex(env),
            doing: None,
            episode: None,
            lost: None,
            language: Arc::from(""),
        }
    }

    /// Takes note of a command that is sent.
    pub fn begin(&mut self, entry: Entry) {
        self.doing = Some(entry);
        match (&mut self.episode, entry.episode) {
            (episode, Some(id)) => {
                *episode = Some(RunningEpisode {
                    id,
                    steps: 0,
                    is_over: false,
                });
            }
            (Some(episode), None) => episode.steps += 1,
            (None, None) => {}
        }
    }

    /// Returns whether it has an episode that is not over, or executes a command.
    pub fn is_busy(&self) -> bool {
        self.doing.is_some() || self.episode.is_some_and(|episode| !episode.is_over)
    }

    /// Takes note of a reply; returns the answer for the evaluation loop. An invalid value ends the
    /// episode, and the process goes on with the next one.
    pub fn answered(
        &mut self,
        reply: &Reply,
        seen: Result<Observation, String>,
        processed_action: Vec<f32>,
        host: &Host,
    ) -> Answer {
        self.doing = None;
        if let Some(episode) = &mut self.episode {
            let is_solved = reply.success && host.settings.given.end_on_success;
            episode.is_over = reply.terminated || reply.truncated || is_solved;
        }
        let observation = seen.map_err(|reason| self.fault(&reason, host));
        if !reply.is_step {
            return Answer::Reset(observation);
        }
        Answer::Step(observation.map(|observation| Step {
            observation,
            processed_action,
            out_of_bounds: reply.out_of_bounds,
            reward: reply.reward,
            success: reply.success,
            terminated: reply.terminated,
            truncated: reply.truncated,
        }))
    }

    fn fault(&mut self, reason: &str, host: &Host) -> EnvError {
        let (rank, job) = (host.config.place.rank, &host.settings.job.name);
        let when = self.episode.take().map_or(String::new(), |episode| {
            let EpisodeId { seed, episode: id } = episode.id;
            match episode.steps {
                0 => format!("at the reset of episode {id}, seed {seed}; "),
                steps => format!("at step {steps} of episode {id}, seed {seed}; "),
            }
        });
        EnvError::Episode {
            env: self.env,
            reason: format!("the simulator gave {reason}; {when}rank {rank}, job `{job}`"),
        }
    }
}
