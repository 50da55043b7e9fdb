//! A policy that plans with a vision-language model (`openai_agent`). It sends pictures and the
//! instruction to a chat server, receives a plan of actions, and executes the plan until it fails
//! or is finished.
//!
//! ```text
//! loop ── act_later ──► session ─ has a plan ─► next steps at once
//!                          │ asks
//!                          └─► a thread: pictures ─► server ─► answer ─► session ─► steps ─► loop
//! ```
//! The loop asks for each environment by itself, so requests for several run at the same time, up
//! to `max_concurrent_requests`, and the server can batch them. The actions are skills of the
//! table-top suite or the `Discrete` actions of a Python environment (`hands`). Prompts, answers,
//! counts and files follow EmbodiedBench (arXiv 2502.09560, repository
//! `EmbodiedBench/EmbodiedBench`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jobs::policies::PolicyType;
use jobs::wiring::Sides;
use serde_json::json;

use crate::env::EnvSpec;
use crate::policy::{
    GiveAnswers, Lifeline, Over, PerEpisode, Policy, PolicyError, PolicyFacts, PolicyRow,
    RowAnswer, RowError,
};
use episode::AgentEpisode;
use hands::Hands;
use server::ModelServer;

mod chat;
mod episode;
mod hands;
mod prompt;
mod server;
mod session;
mod settings;

pub(crate) use settings::AgentSettings;

/// A policy that plans with a vision-language model behind OpenAI's protocol.
pub(crate) struct OpenaiAgent {
    server: Arc<ModelServer>,
    hands: Hands,
    folder: Option<PathBuf>,
    episodes: PerEpisode<Arc<Mutex<AgentEpisode>>>,
}

impl OpenaiAgent {
    /// Creates the policy for an environment, without contacting the server. Notes about the server
    /// go to `lifeline`.
    ///
    /// # Errors
    /// Returns an error for an environment whose actions have no names, and for cameras that it
    /// does not have.
    pub(crate) fn new(
        settings: AgentSettings,
        env: &EnvSpec,
        lifeline: &Lifeline,
    ) -> Result<Self, PolicyError> {
        let given = settings.job.actions.as_ref().map(|names| &names.0[..]);
        let hands = Hands::new(env, given)?;
        let cameras = cameras(&settings, env)?;
        let server = ModelServer::new(settings, cameras, lifeline.clone());
        Ok(Self {
            server: Arc::new(server),
            hands,
            folder: None,
            episodes: PerEpisode::default(),
        })
    }

    fn episode(&mut self, row: &PolicyRow) -> Arc<Mutex<AgentEpisode>> {
        let (server, hands, folder) = (&self.server, &self.hands, &self.folder);
        let new = || {
            let episode = AgentEpisode::new(Arc::clone(server), hands.clone(), folder.clone(), row);
            Arc::new(Mutex::new(episode))
        };
        Arc::clone(self.episodes.of(row, new))
    }
}

/// Returns the cameras whose pictures the model sees.
fn cameras(settings: &AgentSettings, env: &EnvSpec) -> Result<Vec<String>, PolicyError> {
    if settings.job.language_only {
        return Ok(Vec::new());
    }
    let sides = Sides::new(PolicyType::OpenaiAgent, env);
    let listed = settings.job.cameras.as_ref().map(|names| &names.0[..]);
    let cameras = sides.listed_cameras(listed)?;
    if cameras.is_empty() {
        return Err(sides.lacks("a camera, or `language_only`").into());
    }
    Ok(cameras.iter().map(|camera| camera.name.clone()).collect())
}

impl Policy for OpenaiAgent {
    fn facts(&self) -> PolicyFacts {
        let (job, cameras) = (&self.server.settings.job, &self.server.cameras);
        let (limit, tokens) = self.server.settings.max_tokens;
        PolicyFacts {
            horizon: self.hands.horizon(),
            needs_video: !cameras.is_empty(),
            reported: vec![
                ("policy_path", json!(job.model)),
                ("model", json!(job.model)),
                ("model_url", json!(self.server.settings.url)),
                ("temperature", json!(job.temperature)),
                (limit, json!(tokens)),
                ("max_invalid_actions", json!(job.max_invalid_actions)),
                (
                    "max_concurrent_requests",
                    json!(job.max_concurrent_requests),
                ),
                ("chat_history", json!(job.chat_history)),
                ("api_key_env", json!(job.api_key_env)),
                ("planner_cameras", json!(cameras)),
            ],
            is_planner: true,
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let act = |row| lock(&self.episode(row)).act(row.window.now());
        rows.iter().map(act).collect()
    }

    fn keep_in(&mut self, folder: PathBuf) {
        self.folder = Some(folder);
    }

    fn act_later(&mut self, rows: Vec<PolicyRow>, give: GiveAnswers) {
        let next = |row: PolicyRow| {
            let (episode, seen) = (self.episode(&row), Arc::clone(row.window.now()));
            let next = lock(&episode).next(&seen);
            (episode, seen, next)
        };
        let rows: Vec<_> = rows.into_iter().map(next).collect();
        let asks = rows.iter().any(|(_, _, next)| matches!(next, Ok(None)));
        let answer = move || {
            let answers = rows.into_iter().map(|(episode, seen, next)| match next? {
                Some(answer) => Ok(answer),
                None => lock(&episode).think(&seen),
            });
            give(answers.collect());
        };
        if !asks {
            return answer();
        }
        // The thread is not joined: a rank that is stopped does not wait for a server. If it cannot
        // be started, the answers are dropped, which is an error for whoever waits for them.
        let thread = std::thread::Builder::new().name("planner".to_owned());
        if let Err(err) = thread.spawn(answer) {
            tracing::warn!(%err, "no thread for a planner");
        }
    }

    fn end(&mut self, over: &Over) -> Result<BTreeMap<String, f64>, PolicyError> {
        match self.episodes.end(over.env) {
            Some(episode) => lock(&episode).end(over),
            None => Ok(BTreeMap::new()),
        }
    }
}

impl Drop for OpenaiAgent {
    fn drop(&mut self) {
        // Threads that wait for a retry belong to an attempt that is over.
        self.server.close();
    }
}

/// Returns the error about rows that have no actions, for a reason in words.
fn failed(reason: String) -> PolicyError {
    RowError(reason).into()
}

/// Locks what threads share. A panicked one leaves behind an episode that is no longer continued,
/// so a poisoned lock does no harm.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Returns the settings of a job with these fields.
    pub(super) fn settings(more: Value) -> AgentSettings {
        let mut config = json!({"model_url": "http://localhost:8000/v1", "model": "m"});
        let fields = config.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        AgentSettings::read(fields).unwrap()
    }
}
