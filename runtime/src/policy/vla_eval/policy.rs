//! The policy: one session for each environment, and all of them at the same time.

use std::collections::BTreeMap;

use jobs::policies::PolicyType;
use jobs::wiring::{Sides, Source, Wiring, vla_eval};
use wire::{Array, Key, Value};

use crate::env::{EnvIndex, EnvSpec, Frame, Observation};
use crate::policy::openpi::picture;
use crate::policy::remote::Lifeline;
use crate::policy::seen;
use crate::policy::settings::{MakeContext, PolicySettings};
use crate::policy::vla_eval::answer;
use crate::policy::vla_eval::hello::VlaEvalHello;
use crate::policy::vla_eval::session::{SessionError, VlaEvalSession};
use crate::policy::vla_eval::settings::VlaEvalSettings;
use crate::policy::{Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError};

/// A model server's policy that acts in one environment.
#[derive(Debug)]
pub(super) struct VlaEvalPolicy {
    settings: VlaEvalSettings,
    wiring: Wiring,
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
    /// Returns an error if both sides do not fit together, and if the server is unreachable or does
    /// not speak the protocol.
    fn new(
        settings: VlaEvalSettings,
        env: &EnvSpec,
        lifeline: &Lifeline,
    ) -> Result<Self, PolicyError> {
        let sides = Sides {
            policy: PolicyType::VlaEvalRemote.name(),
            face: env,
        };
        let wiring = vla_eval(sides, settings.mapping.as_ref())?;
        let mut first = VlaEvalSession::new(&settings.server, lifeline, None);
        let hello = first.meet()?;
        let mut notes = settings.notes.clone();
        notes.extend(hello.check(sides, &wiring)?);
        Ok(Self {
            wiring,
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
        let words = seen::words(observation, self.settings.language.as_deref());
        if words.is_empty() && self.hello.needs_language {
            return Err(RowError::no_instruction().into());
        }
        Ok(shown(
            &self.wiring,
            self.settings.picture,
            observation,
            words,
        )?)
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

/// Returns what the server is shown: `{"images": {name: [height, width, 3]}, "states": [n],
/// "task_description": words}`, with pictures of this height and width, or as they are.
///
/// # Errors
/// Returns an error if the observation lacks a picture or a state.
pub(super) fn shown(
    wiring: &Wiring,
    size: Option<[usize; 2]>,
    observation: &Observation,
    words: &str,
) -> Result<Value, RowError> {
    let (mut images, mut members) = (Vec::new(), Vec::new());
    for (key, source) in wiring.inputs() {
        let value = match source {
            Source::Camera(camera) => picture_of(seen::frame(camera, observation)?, size),
            Source::States(parts) => {
                let numbers = seen::numbers(parts, observation)?;
                Array::of_f32(&[numbers.len()], &numbers).into()
            }
        };
        match key.strip_prefix("images/") {
            Some(name) => images.push((Key::from(name), value)),
            None => members.push((Key::from(key), value)),
        }
    }
    members.insert(0, (Key::from("images"), Value::Map(images)));
    members.push((Key::from("task_description"), words.into()));
    Ok(Value::Map(members))
}

fn picture_of(frame: &Frame, size: Option<[usize; 2]>) -> Value {
    let Some([height, width]) = size else {
        let shape = [frame.height as usize, frame.width as usize, 3];
        return Array::of_u8(&shape, frame.rgb.clone()).into();
    };
    let bytes = picture::resize_with_pad(frame, [height, width]);
    Array::of_u8(&[height, width, 3], bytes.into()).into()
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
            needs_video: self.wiring.sees(),
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
