//! A policy that plans with a vision-language model (`openai_agent`). It sends pictures and the
//! instruction to a chat server, receives a plan of actions, and executes the plan until it fails
//! or is finished.
//!
//! ```text
//! loop ── act_later ──► session ─ has a plan ─► next steps at once
//!                          │ asks
//!                          └─► a thread: pictures ─► server ─► answer ─► session ─► steps ─► loop
//! ```
//! Requests for several environments run at the same time, up to `max_concurrent_requests`, so that
//! the server can batch them. The actions are skills of the table-top suite or the `Discrete`
//! actions of a Python environment (`hands`). Prompts, answers, counts and files follow
//! EmbodiedBench (arXiv 2502.09560, repository `EmbodiedBench/EmbodiedBench`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;

use jobs::policies::PolicyType;
use jobs::wiring::Sides;
use serde_json::{Value, json};

use crate::env::{EnvSpec, Observation};
use crate::policy::{
    Account, GiveAnswers, Lifeline, Over, PerEpisode, Planner, Policy, PolicyError, PolicyFacts,
    PolicyRow, RowAnswer, RowError,
};
use episode::{AgentEpisode, AgentShared};
use hands::Hands;
use server::ModelClient;
use session::{PlanStep, PlanningSession};

mod answer;
mod chat;
mod complaints;
mod episode;
mod hands;
mod picture;
mod prompt;
mod retry;
mod server;
mod session;
mod settings;
mod transcript;

pub(crate) use settings::AgentSettings;

/// A policy that plans with a vision-language model behind OpenAI's protocol.
pub(crate) struct OpenaiAgent {
    shared: Arc<AgentShared>,
    hands: Hands,
    reported: Vec<(&'static str, Value)>,
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
        let hands = Hands::new(env, settings.actions.as_deref())?;
        let cameras = cameras(&settings, env)?;
        let reported = vec![
            ("policy_path", json!(settings.model.name)),
            ("model", json!(settings.model.name)),
            ("model_url", json!(settings.terms.url)),
            ("temperature", json!(settings.model.temperature)),
            (
                settings.model.max_tokens.0,
                json!(settings.model.max_tokens.1),
            ),
            (
                "max_invalid_actions",
                json!(settings.rules.max_invalid_actions),
            ),
            (
                "max_concurrent_requests",
                json!(settings.terms.max_concurrent_requests),
            ),
            ("chat_history", json!(settings.rules.chat_history)),
            ("api_key_env", json!(settings.key_variable)),
            ("planner_cameras", json!(cameras)),
        ];
        let schema = chat::schema(settings.rules.sees);
        let server = ModelClient::new(
            settings.terms,
            settings.key,
            settings.model,
            schema,
            lifeline.clone(),
        );
        let shared = AgentShared {
            server,
            rules: Arc::new(settings.rules),
            cameras,
        };
        Ok(Self {
            shared: Arc::new(shared),
            hands,
            reported,
            folder: None,
            episodes: PerEpisode::default(),
        })
    }

    fn episode(&mut self, row: &PolicyRow) -> Arc<Mutex<AgentEpisode>> {
        let new = || {
            let session = PlanningSession::new(Arc::clone(&self.shared.rules), self.hands.clone());
            let episode = AgentEpisode::new(row.episode, session, self.folder.clone());
            Arc::new(Mutex::new(episode))
        };
        Arc::clone(self.episodes.of(row, new))
    }
}

/// Returns the cameras whose pictures the model sees.
fn cameras(settings: &AgentSettings, env: &EnvSpec) -> Result<Vec<String>, PolicyError> {
    if !settings.rules.sees {
        return Ok(Vec::new());
    }
    let sides = Sides {
        policy: PolicyType::OpenaiAgent.name(),
        face: env,
    };
    let cameras = sides.listed_cameras(settings.cameras.as_deref())?;
    if cameras.is_empty() {
        return Err(sides.lacks("a camera, or `language_only`").into());
    }
    Ok(cameras.iter().map(|camera| camera.name.clone()).collect())
}

impl Policy for OpenaiAgent {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: self.hands.horizon(),
            needs_video: !self.shared.cameras.is_empty(),
            reported: self.reported.clone(),
            ..PolicyFacts::default()
        }
    }

    fn planner(&mut self) -> Option<&mut dyn Planner> {
        Some(self)
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let (give, answer) = std::sync::mpsc::channel();
        // The receiver waits below.
        self.act_later(
            rows.to_vec(),
            Box::new(move |answers| drop(give.send(answers))),
        );
        answer
            .recv()
            .unwrap_or_else(|_| Err(failed("the planner has ended".to_owned())))
    }
}

impl Planner for OpenaiAgent {
    fn keep_in(&mut self, folder: PathBuf) {
        self.folder = Some(folder);
    }

    fn act_later(&mut self, rows: Vec<PolicyRow>, give: GiveAnswers) {
        let mut planned = Vec::with_capacity(rows.len());
        for row in &rows {
            let episode = self.episode(row);
            let next = lock(&episode).next(row.now());
            planned.push(match next {
                Ok(PlanStep::Steps(chunk)) => Planned::Answer(Ok(RowAnswer::Chunk(chunk))),
                Ok(PlanStep::Stop) => Planned::Answer(Ok(RowAnswer::End)),
                Err(err) => Planned::Answer(Err(err)),
                Ok(PlanStep::Ask) => Planned::Ask(episode, Arc::clone(row.window.now())),
            });
        }
        let asks = planned.iter().any(|row| matches!(row, Planned::Ask(..)));
        let shared = Arc::clone(&self.shared);
        let answer = move || give(answers(planned, &shared));
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

    fn end(&mut self, over: &Over) -> Result<Account, PolicyError> {
        match self.episodes.end(over.env) {
            Some(episode) => lock(&episode).end(over),
            None => Ok(Account::default()),
        }
    }
}

impl Drop for OpenaiAgent {
    fn drop(&mut self) {
        // Threads that wait for a retry belong to an attempt that is over.
        self.shared.server.close();
    }
}

/// What a row gets.
enum Planned {
    Answer(Result<RowAnswer, PolicyError>),
    /// The model is asked about this observation.
    Ask(Arc<Mutex<AgentEpisode>>, Arc<Observation>),
}

/// Asks the model for all rows that need it at the same time, and waits for their answers.
fn answers(rows: Vec<Planned>, shared: &AgentShared) -> Result<Vec<RowAnswer>, PolicyError> {
    let ended = || failed("a planner's thread has ended without an answer".to_owned());
    std::thread::scope(|scope| {
        let think = |row| match row {
            Planned::Answer(answer) => Err(answer),
            Planned::Ask(episode, seen) => {
                Ok(scope.spawn(move || lock(&episode).think(shared, &seen)))
            }
        };
        let thinking: Vec<_> = rows.into_iter().map(think).collect();
        let answer = |row: Result<ScopedJoinHandle<'_, _>, _>| match row {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(ended())),
            Err(answer) => answer,
        };
        thinking.into_iter().map(answer).collect()
    })
}

/// Returns the error about rows that have no actions, for a reason in words.
fn failed(reason: String) -> PolicyError {
    RowError(reason).into()
}

/// Locks an episode. A panicked thread leaves behind an episode that is no longer continued, so a
/// poisoned lock does no harm.
fn lock(episode: &Mutex<AgentEpisode>) -> MutexGuard<'_, AgentEpisode> {
    episode.lock().unwrap_or_else(PoisonError::into_inner)
}
