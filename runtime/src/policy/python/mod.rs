//! Policies in Python: any callable of the user, in an interpreter of its own.
//!
//! ```text
//! policy thread ── call: rows, texts ──► python: rrun_policy.py ─► act(observations, episodes)
//!        │      ◄── answer ─────────────┘          │
//!        └────────── shared memory ────────────────┘   pictures and states out, actions in
//! ```
//! A rank has one worker, on its GPU. All rows of a call are written once, as one batch
//! (`layout`), and the worker shows them to the policy without a copy. A call that fails costs the
//! episodes of its rows alone. A worker that died, hung or sent nonsense is killed, and the next
//! call starts another, up to `max_restarts` times. A policy with a `reset` keeps a state for each
//! episode, which ends with its worker: those episodes are errors, too.

mod layout;
mod policy_worker;

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::path::PathBuf;

use jobs::policies::{self, PolicyProcess, Python};
use jobs::settings::kinds::PyName;
use serde_json::{Map, Value, json};
use tch::Device;

use crate::env::{EnvSpec, ImageSize, Observation};
use crate::policy::python::policy_worker::{PolicyWorker, WorkerError, WorkerHello, WorkerTerms};
use crate::policy::{
    Chunk, Lifeline, PerEpisode, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError,
    argument, looks_back,
};
use crate::python::memory::numbers;
use crate::python::{Module, Variable, close_all, find_interpreter, read_variable};

/// Why another worker cannot take over, or has nothing to go on with.
const OTHER_POLICY: &str =
    "its worker was restarted, and its policy has another horizon or other needs now";
const STATE_LOST: &str = "its worker was restarted, which has ended the state that the policy kept";

/// The checked settings of a job's policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonPolicySettings {
    /// What messages call the policy.
    pub(in crate::policy) name: String,
    /// `file.py:factory` or `package.module:factory`.
    pub(in crate::policy) policy: PyName,
    /// The module of ours that has the factory, if it is ours.
    pub(in crate::policy) module: Option<Module>,
    /// The interpreter.
    pub(in crate::policy) python: PathBuf,
    /// Environment variables of the worker.
    pub(in crate::policy) variables: Vec<Variable>,
    /// What the job says of the process, with its time limits.
    pub(in crate::policy) process: PolicyProcess,
    /// Keyword arguments of the factory.
    pub(in crate::policy) kwargs: Map<String, Value>,
    /// What the user is told before the first episode.
    pub(in crate::policy) notes: Vec<String>,
    /// The factory's seed.
    pub(in crate::policy) seed: u64,
    /// Number of actions of a chunk that are executed.
    pub(in crate::policy) chunk_length: Option<usize>,
}

impl PythonPolicySettings {
    /// Reads the settings, and looks for file and interpreter.
    ///
    /// # Errors
    /// Returns an error with the name of the field, and if the policy's file is not there.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: Python = policies::read(config)?;
        if let Some(path) = given.policy.file().filter(|path| !path.is_file()) {
            let wanted = "there is no such file; it is looked for from the working directory";
            return Err(PolicyError::file(path, wanted));
        }
        Ok(Self {
            kwargs: given.policy_kwargs.unwrap_or_default(),
            seed: given.seed,
            chunk_length: given.action_chunk_length.map(usize::from),
            ..Self::of_process(given.policy, given.process)?
        })
    }

    /// Returns the settings of a worker without what is the policy's own, and looks for the
    /// interpreter.
    ///
    /// # Errors
    /// Returns an error with the name of the field.
    pub(in crate::policy) fn of_process(
        policy: PyName,
        process: PolicyProcess,
    ) -> Result<Self, PolicyError> {
        let python = process.python.as_ref();
        let python = python.map_or("python3".to_owned(), |path| path.display().to_string());
        let variables = process.env.iter().flatten().map(|(name, value)| {
            read_variable(name, value)
                .map_err(|err| refusal(&format!("env.{name}"), &value.to_string(), err))
        });
        Ok(Self {
            name: policy.to_string(),
            policy,
            module: None,
            python: find_interpreter(&python).map_err(|err| refusal("python", &python, err))?,
            variables: variables.collect::<Result<_, _>>()?,
            process,
            kwargs: Map::new(),
            notes: Vec::new(),
            seed: 0,
            chunk_length: None,
        })
    }
}

fn refusal(field: &str, found: &str, wanted: &str) -> PolicyError {
    argument(field, &format!("`{found}`"), wanted)
}

/// A policy in a worker, which is started again when it fails.
pub struct PythonPolicy {
    terms: WorkerTerms,
    worker: Option<PolicyWorker>,
    /// Most rows of one call, the same for all workers.
    rows: usize,
    /// What the first worker said; the others have to say the same.
    hello: WorkerHello,
    /// Number of actions of a chunk that are executed.
    chunk_length: usize,
    /// The steps of which it sees the observations, from now: the last one is 0.
    deltas: Vec<i64>,
    /// Number of workers that failed.
    failures: u64,
    /// What happened to the last one that failed.
    last_failure: String,
    /// Number of workers that had failed when the policy was told of an episode.
    told: PerEpisode<u64>,
}

impl PythonPolicy {
    /// Starts the worker and makes the policy for `env` on `device`.
    ///
    /// # Errors
    /// Returns an error if the worker cannot be started or the policy cannot be made.
    pub fn start(
        settings: PythonPolicySettings,
        env: &EnvSpec,
        device: Device,
        lifeline: &Lifeline,
    ) -> Result<Self, PolicyError> {
        let terms = WorkerTerms {
            settings,
            env: env.clone(),
            device,
            lifeline: lifeline.clone(),
        };
        let worker = PolicyWorker::start(&terms).map_err(|err| permanent(&terms, &err))?;
        let hello = worker.hello.clone();
        let horizon = hello.action_horizon;
        Ok(Self {
            deltas: (-(hello.looks_back as i64)..=0).collect(),
            chunk_length: terms.settings.chunk_length.unwrap_or(horizon).min(horizon),
            terms,
            rows: worker.layout.rows,
            worker: Some(worker),
            hello,
            failures: 0,
            last_failure: String::new(),
            told: PerEpisode::default(),
        })
    }

    fn needs_video(&self) -> bool {
        self.hello.needs_video && !self.terms.env.cameras.is_empty()
    }

    /// Makes sure that there is a worker.
    ///
    /// # Errors
    /// Returns an error of this call if the worker cannot be started.
    fn revive(&mut self) -> Result<(), WorkerError> {
        if let Some(err) = self.worker.as_mut().and_then(PolicyWorker::ended) {
            self.lose(&err);
        }
        if self.worker.is_some() {
            return Ok(());
        }
        let (failures, last) = (self.failures, &self.last_failure);
        let most = self.terms.settings.process.max_restarts;
        if failures > most {
            return Err(WorkerError::Ended(format!(
                "its worker failed {failures} times (max_restarts is {most}), at last: {last}"
            )));
        }
        let name = &self.terms.settings.name;
        let text = format!("policy `{name}`: {last}; restart {failures} of {most}");
        self.terms.lifeline.say(text);
        let started = match PolicyWorker::start(&self.terms) {
            Ok(worker) if !worker.hello.is_same_policy(&self.hello) => {
                Err(WorkerError::Lost(OTHER_POLICY.to_owned()))
            }
            started => started,
        };
        self.worker = Some(started.inspect_err(|err| self.lose(err))?);
        Ok(())
    }

    /// Ends the worker, if there is one, and counts it as failed.
    fn lose(&mut self, err: &WorkerError) {
        self.worker = None;
        self.failures += 1;
        self.last_failure = err.to_string();
    }

    /// Returns the results of rows that one call can take.
    ///
    /// # Errors
    /// Returns the errors that end the job: too many restarts, and a stop.
    fn part(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let revived = self.revive();
        let refused = rows.iter().map(|row| self.check(row).err());
        let refused: Vec<Option<RowError>> = refused.collect();
        let fit = rows.iter().zip(&refused);
        let fit = fit.filter_map(|(row, refused)| refused.is_none().then_some(row));
        let fit: Vec<&PolicyRow> = fit.collect();
        let mut given = match revived {
            Ok(()) if fit.is_empty() => Vec::new(),
            Ok(()) => self.answers(&fit)?,
            Err(err) => self.failed(&err, fit.len())?,
        }
        .into_iter();
        let answers = refused.into_iter().map(|refused| match refused {
            Some(err) => Some(RowAnswer::Failed(err)),
            None => given.next(),
        });
        Ok(answers.flatten().collect())
    }

    /// Asks for rows together, and one by one if that raises in a policy that remembers nothing of an
    /// episode: then a row costs no other its answer.
    fn answers(&mut self, rows: &[&PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        match self.revive().and_then(|()| self.ask(rows)) {
            Ok(given) => Ok(given.into_iter().map(RowAnswer::Chunk).collect()),
            Err(WorkerError::Failed(_)) if rows.len() > 1 && !self.hello.has_reset => {
                let each = rows.chunks(1).map(|row| self.answers(row));
                Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
            }
            Err(err) => self.failed(&err, rows.len()),
        }
    }

    /// Returns the answers for rows that an error has cost.
    fn failed(&self, err: &WorkerError, count: usize) -> Result<Vec<RowAnswer>, PolicyError> {
        if matches!(err, WorkerError::Ended(_)) {
            return Err(permanent(&self.terms, err));
        }
        let err = RowError(told(&self.terms, err));
        Ok(vec![RowAnswer::Failed(err); count])
    }

    /// Checks that a row can be asked for.
    fn check(&self, row: &PolicyRow) -> Result<(), RowError> {
        let told_to = self.told.get(row);
        if self.hello.has_reset && told_to.is_some_and(|failures| *failures != self.failures) {
            return Err(RowError(told(&self.terms, STATE_LOST)));
        }
        let seen = row.window.at(&self.deltas);
        seen.into_iter()
            .try_for_each(|observation| self.check_observation(observation))
    }

    /// Checks that an observation has what the policy sees, in the size that it began with.
    fn check_observation(&self, observation: &Observation) -> Result<(), RowError> {
        let Observation { state, video, .. } = observation;
        for (name, length) in &self.terms.env.state {
            let vector = state.get(name).ok_or_else(|| RowError::no_state(name))?;
            if vector.len() != *length {
                return Err(RowError::resized("state", name));
            }
        }
        for camera in self.terms.env.cameras.iter().filter(|_| self.needs_video()) {
            let name = &camera.name;
            let frame = video.get(name).ok_or_else(|| RowError::no_picture(name))?;
            let (height, width) = (camera.height, camera.width);
            let size = ImageSize { height, width };
            if (frame.size(), frame.rgb.len()) != (size, size.rgb_bytes()) {
                return Err(RowError::resized("picture of camera", name));
            }
        }
        Ok(())
    }

    /// Asks the worker for the chunks of rows that were checked.
    fn ask(&mut self, rows: &[&PolicyRow]) -> Result<Vec<Chunk>, WorkerError> {
        let call = self.call(rows);
        let seen: Vec<_> = rows.iter().map(|row| row.window.at(&self.deltas)).collect();
        let Some(worker) = &mut self.worker else {
            return Err(WorkerError::Lost(STATE_LOST.to_owned()));
        };
        let shown = worker.show(&self.terms.env, &seen);
        let asked = shown.and_then(|()| worker.ask(call, rows.len(), &self.terms));
        let actions = asked.inspect_err(|err| {
            if !matches!(err, WorkerError::Failed(_)) {
                self.lose(err);
            }
        })?;
        let length = actions.len() / rows.len();
        let chunks = actions.chunks_exact(length);
        let dim = self.terms.env.action.names.len();
        Ok(chunks
            .map(|chunk| Chunk::new(dim, numbers(chunk)))
            .collect())
    }

    /// Returns the packet of a call, and remembers that the policy knows its episodes.
    fn call(&mut self, rows: &[&PolicyRow]) -> Value {
        let mut texts: Vec<&str> = Vec::new();
        let mut entries = Vec::with_capacity(rows.len());
        let mut resets = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let text = &*row.now().language;
            let place = texts.iter().position(|known| *known == text);
            let place = place.unwrap_or_else(|| {
                texts.push(text);
                texts.len() - 1
            });
            self.told.of(row, || {
                resets.push(index);
                self.failures
            });
            let step = row.inference * self.chunk_length as u64;
            entries.push(json!([row.env.0, row.episode, row.seed, step, place]));
        }
        json!({"rows": entries, "texts": texts, "reset": resets})
    }
}

/// Returns an error that ends the job.
fn permanent(terms: &WorkerTerms, err: &WorkerError) -> PolicyError {
    PolicyError::Gone(told(terms, err))
}

fn told(terms: &WorkerTerms, err: impl Display) -> String {
    format!("policy `{}`: {err}", terms.settings.name)
}

impl Drop for PythonPolicy {
    fn drop(&mut self) {
        // A worker that owes nothing ends by itself; one that does not answer is not waited for.
        if let Some(PolicyWorker { worker, .. }) = self.worker.take()
            && worker.due().is_none()
        {
            close_all([worker]);
        }
    }
}

impl Policy for PythonPolicy {
    fn facts(&self) -> PolicyFacts {
        let settings = &self.terms.settings;
        PolicyFacts {
            horizon: self.hello.action_horizon,
            needs_video: self.needs_video(),
            looks_back: looks_back(&self.deltas),
            reported: vec![
                ("policy_path", settings.name.clone().into()),
                (
                    "policy_python",
                    settings.python.display().to_string().into(),
                ),
                ("policy_versions", json!(self.hello.versions)),
                ("policy_kwargs", settings.kwargs.clone().into()),
            ],
            notes: settings.notes.clone(),
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let parts = rows.chunks(self.rows).map(|rows| self.part(rows));
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }
}
