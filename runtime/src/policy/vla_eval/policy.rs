//! The policy: one session for each environment, and all of them at the same time.

use std::collections::BTreeMap;

use wire::Value;

use crate::env::{EnvIndex, EnvSpec, Observation};
use crate::policy::remote::Lifeline;
use crate::policy::settings::{MakeContext, PolicySettings};
use crate::policy::vla_eval::answer;
use crate::policy::vla_eval::hello::VlaEvalHello;
use crate::policy::vla_eval::mapping::ObservationMapping;
use crate::policy::vla_eval::session::{SessionError, VlaEvalSession};
use crate::policy::vla_eval::settings::VlaEvalSettings;
use crate::policy::{
    InferenceError, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError,
};

/// A model server's policy that acts in one environment.
#[derive(Debug)]
pub(super) struct VlaEvalPolicy {
    settings: VlaEvalSettings,
    mapping: ObservationMapping,
    hello: VlaEvalHello,
    lifeline: Lifeline,
    sessions: BTreeMap<EnvIndex, VlaEvalSession>,
    /// Name of the environment, which the server is told.
    env: String,
    action_dim: usize,
    notes: Vec<String>,
}

impl VlaEvalPolicy {
    /// Connects to the server, and checks that it fits the environment.
    ///
    /// # Errors
    /// Returns [`PolicyError::Mismatch`] if both sides do not fit together, and
    /// [`PolicyError::Remote`] if the server is unreachable or does not speak the protocol.
    fn new(
        settings: VlaEvalSettings,
        env: &EnvSpec,
        lifeline: &Lifeline,
    ) -> Result<Self, PolicyError> {
        let mapping = ObservationMapping::new(env, settings.mapping.as_ref(), settings.picture)?;
        let mut first = VlaEvalSession::new(&settings.server, lifeline, None);
        let hello = first.meet()?;
        let mut notes = settings.notes.clone();
        notes.extend(hello.check(env, &mapping)?);
        Ok(Self {
            mapping,
            hello,
            lifeline: lifeline.clone(),
            sessions: BTreeMap::from([(EnvIndex(0), first)]),
            env: env.name.clone(),
            action_dim: env.action.names.len(),
            notes,
            settings,
        })
    }

    fn session(&mut self, env: EnvIndex) -> &mut VlaEvalSession {
        let (server, lifeline, hello) = (&self.settings.server, &self.lifeline, &self.hello);
        let new = || VlaEvalSession::new(server, lifeline, Some(hello));
        self.sessions.entry(env).or_insert_with(new)
    }

    fn observation(&self, observation: &Observation) -> Result<Value, PolicyError> {
        let fallback = self.settings.language.as_deref().unwrap_or_default();
        let words = if observation.language.is_empty() {
            fallback
        } else {
            &observation.language
        };
        if words.is_empty() && self.hello.needs_language {
            return Err(InferenceError::NoInstruction.into());
        }
        self.mapping.observation(observation, words)
    }

    fn answer(&self, payload: &Value) -> Result<RowAnswer, PolicyError> {
        let chunk = answer::chunk(payload, self.settings.chunk_length, self.action_dim);
        let refused = |err| self.settings.server.refusal(format!("observation: {err}"));
        RowAnswer::of(chunk.map_err(refused))
    }

    /// Asks for all rows; every session has at most one outstanding observation.
    fn ask_all(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let mut asked = Vec::with_capacity(rows.len());
        for row in rows {
            if row.inference == 0 {
                let (name, task) = (self.env.clone(), self.settings.task.clone());
                self.session(row.env).start_episode(row, &name, &task);
            }
            let observation = self.observation(row.now());
            if let Ok(observation) = &observation {
                self.session(row.env).begin(observation);
            }
            asked.push((row.env, observation));
        }
        let mut answers = Vec::with_capacity(rows.len());
        for (env, observation) in asked {
            let answer = match observation {
                Ok(observation) => match self.session(env).finish(&observation) {
                    Ok(payload) => self.answer(&payload)?,
                    Err(SessionError::Episode(reason)) => RowAnswer::Failed(RowError(reason)),
                    Err(SessionError::Job(err)) => return Err(err),
                },
                Err(err) => RowAnswer::of(Err(err))?,
            };
            answers.push(answer);
        }
        Ok(answers)
    }
}

impl PolicySettings for VlaEvalSettings {
    fn chunk_length(&self) -> Option<usize> {
        // The policy cuts its chunks itself.
        None
    }

    fn make(self: Box<Self>, context: MakeContext<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        let policy = VlaEvalPolicy::new(*self, context.env, context.lifeline)?;
        Ok(Box::new(policy))
    }
}

impl Policy for VlaEvalPolicy {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: self.settings.chunk_length.unwrap_or(1),
            needs_video: self.mapping.sees(),
            reported: vec![
                ("policy_path", self.settings.server.to_string().into()),
                ("policy_variant", self.hello.model.clone().into()),
                ("vla_eval_version", self.hello.version.clone().into()),
            ],
            notes: self.notes.clone(),
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let answers = self.ask_all(rows);
        if answers.is_err() {
            let sessions = self.sessions.values_mut();
            sessions.for_each(VlaEvalSession::disconnect);
        }
        answers
    }
}
