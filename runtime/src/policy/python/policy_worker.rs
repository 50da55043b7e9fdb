//! One worker: a Python process with the policy, and the memory that it shares with this process.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use serde_json::{Value, json};
use tch::Device;

use crate::clock::now;
use crate::device::gpu;
use crate::env::EnvSpec;
use crate::policy::Lifeline;
use crate::policy::python::error::WorkerError;
use crate::policy::python::hello::WorkerHello;
use crate::policy::python::layout::BatchLayout;
use crate::policy::python::settings::PythonPolicySettings;
use crate::python::memory::{SharedMemory, bytes_of};
use crate::python::{Module, Program, Said, Variable, Worker, close_all};

/// The worker's main module.
const MAIN: Module = ("rrun_policy", include_str!("worker/rrun_policy.py"));
/// How often a wait looks whether the evaluation is being stopped.
const TICK: Duration = Duration::from_millis(200);
/// Most stages of a start; `rrun_policy.py` has four.
const MOST_STAGES: usize = 16;

/// What all workers of a policy have in common.
#[derive(Clone, Debug)]
pub(super) struct WorkerTerms {
    /// Settings of the job.
    pub(super) settings: PythonPolicySettings,
    /// The environment in which the policy acts.
    pub(super) env: EnvSpec,
    /// The device of the rank.
    pub(super) device: Device,
    /// Ends all waiting when it is cut.
    pub(super) lifeline: Lifeline,
}

impl WorkerTerms {
    /// Returns what a worker is made with.
    fn config(&self) -> Value {
        json!({
            "policy": self.settings.policy,
            "policy_kwargs": self.settings.kwargs,
            "seed": self.settings.seed,
            "device": gpu::name(self.device),
            "spec": self.spec(),
        })
    }

    /// Returns the description of the environment that the factory gets.
    fn spec(&self) -> Value {
        let env = &self.env;
        let cameras = env.cameras.iter().map(|camera| {
            let size = json!({"height": camera.height, "width": camera.width});
            (camera.name.clone(), size)
        });
        let states = env
            .state
            .iter()
            .map(|(name, length)| (name.clone(), json!(length)));
        json!({
            "environment": env.name,
            "cameras": cameras.collect::<serde_json::Map<_, _>>(),
            "states": states.collect::<serde_json::Map<_, _>>(),
            // An infinite bound becomes null, and infinite again in the worker.
            "actions": {
                "names": env.action.names, "low": env.action.low, "high": env.action.high,
            },
            "control_hz": env.control_hz,
            "max_episode_steps": env.max_episode_steps,
            "language": env.language,
        })
    }
}

/// A worker that has made its policy.
pub(super) struct PolicyWorker {
    /// Taken when it ends.
    worker: Option<Worker>,
    lifeline: Lifeline,
    memory: SharedMemory,
    /// What it says about its policy.
    pub(super) hello: WorkerHello,
    /// The places in shared memory.
    pub(super) layout: BatchLayout,
    /// Number of rows whose pages were written before, so that the system has memory for them.
    written_rows: usize,
    /// Whether no call is under way.
    is_idle: bool,
}

impl PolicyWorker {
    /// Starts a worker, and returns when its policy is made.
    ///
    /// # Errors
    /// Returns a [`WorkerError`] that says at which stage it failed; the process is gone then.
    pub(super) fn start(terms: &WorkerTerms) -> Result<Self, WorkerError> {
        let settings = &terms.settings;
        // The worker runs the last one.
        let modules: Vec<Module> = settings.module.into_iter().chain([MAIN]).collect();
        let program = Program {
            python: &settings.python,
            label: &format!("rrun-policy policy={}", settings.name),
            variables: &variables(settings),
            modules: &modules,
            config: terms.config(),
            stages: MOST_STAGES,
        };
        let sink = Box::new(|line: &str| tracing::debug!(target: "policy", "{line}"));
        let started = Worker::start(&program, Some(settings.startup_timeout), sink);
        let mut worker = started.map_err(|err| {
            let python = settings.python.display();
            WorkerError::Lost(format!("`{python}` cannot be started: {err}"))
        })?;
        let text = loop {
            if let Said::Hello(text) = said(&mut worker, &terms.lifeline)? {
                break text;
            }
        };
        let hello = WorkerHello::parse(&text).ok_or_else(|| {
            let text: String = String::from_utf8_lossy(&text).chars().take(100).collect();
            worker.loss(&format!("sent nonsense: `{text}`"))
        })?;
        let needs_video = hello.needs_video && !terms.env.cameras.is_empty();
        let steps = hello.looks_back + 1;
        let layout = BatchLayout::new(&terms.env, needs_video, hello.action_horizon, steps)?;
        let memory = worker.memory(layout.bytes, 2).and_then(|mut memory| {
            memory.map_for_writing()?;
            Ok(memory)
        });
        let memory = memory.map_err(|err| out_of_memory(layout.bytes, &err))?;
        Ok(Self {
            worker: Some(worker),
            lifeline: terms.lifeline.clone(),
            memory,
            hello,
            layout,
            written_rows: 0,
            is_idle: true,
        })
    }

    /// Returns why it has ended since its last answer, if it has.
    pub(super) fn ended(&mut self) -> Option<WorkerError> {
        let worker = self.worker.as_mut()?;
        worker.is_at("no call");
        worker.wait(None, Some(now())).err().map(WorkerError::from)
    }

    /// Writes a picture at one of the steps of a row.
    ///
    /// # Errors
    /// Returns [`WorkerError::Lost`] if the system has no memory.
    pub(super) fn show(
        &self,
        camera: usize,
        row: usize,
        step: usize,
        rgb: &[u8],
    ) -> Result<(), WorkerError> {
        self.write(row, self.layout.picture(camera, row, step), rgb)
    }

    /// Writes a state vector at one of the steps of a row.
    ///
    /// # Errors
    /// Returns [`WorkerError::Lost`] if the system has no memory.
    pub(super) fn tell(
        &self,
        state: usize,
        row: usize,
        step: usize,
        vector: &[f32],
    ) -> Result<(), WorkerError> {
        self.write(row, self.layout.state(state, row, step), &bytes_of(vector))
    }

    /// Writes a part of a row. The first time the system is asked, which may be out of memory.
    fn write(&self, row: usize, place: Range<usize>, bytes: &[u8]) -> Result<(), WorkerError> {
        let written = if row < self.written_rows {
            self.memory.overwrite(place.start, bytes)
        } else {
            self.memory.write_bytes(place.start, bytes)
        };
        written.map_err(|err| self.out_of_memory(&err))
    }

    /// Asks for the actions of the rows that are in shared memory. Returns `[rows, horizon,
    /// action]` as bytes.
    ///
    /// # Errors
    /// Returns a [`WorkerError`]; after [`WorkerError::Failed`] the worker goes on.
    pub(super) fn ask(
        &mut self,
        mut call: Value,
        rows: usize,
        limit: Duration,
    ) -> Result<Bytes, WorkerError> {
        self.written_rows = self.written_rows.max(rows);
        call["most"] = self.layout.rows.into();
        let Some(worker) = &mut self.worker else {
            return Err(WorkerError::Lost("its worker has ended".to_owned()));
        };
        worker.is_at(match rows {
            1 => "`act` of 1 row".to_owned(),
            rows => format!("`act` of {rows} rows"),
        });
        let sequence = match worker.ask(0, call.to_string().as_bytes()) {
            Ok(sequence) => sequence,
            Err(err @ (Errno::MSGSIZE | Errno::NOBUFS)) => {
                let what = format!("the instructions of {rows} rows are too long for a call");
                return Err(WorkerError::Failed(format!("{what}: {err}")));
            }
            Err(err) => return Err(worker.loss(&format!("takes no packet ({err})")).into()),
        };
        self.is_idle = false;
        worker.expect_by(Some(limit));
        loop {
            match said(worker, &self.lifeline)? {
                Said::Answer { sequence: it, .. } if it == sequence => break,
                Said::Failed {
                    sequence: it,
                    reason,
                } if it == sequence => {
                    worker.expect_by(None);
                    self.is_idle = true;
                    return Err(WorkerError::Failed(reason));
                }
                Said::Note(_) => {}
                _ => return Err(worker.loss("answered another call").into()),
            }
        }
        worker.expect_by(None);
        self.is_idle = true;
        let read = self.memory.read(self.layout.actions(rows));
        read.map_err(|err| self.out_of_memory(&err))
    }

    fn out_of_memory(&self, err: &std::io::Error) -> WorkerError {
        out_of_memory(self.layout.bytes, err)
    }
}

impl Drop for PolicyWorker {
    fn drop(&mut self) {
        // A worker that is idle ends by itself; one that does not answer is not waited for.
        if self.is_idle {
            close_all(self.worker.take());
        }
    }
}

fn out_of_memory(bytes: usize, err: &std::io::Error) -> WorkerError {
    WorkerError::Lost(format!("{bytes} bytes of shared memory: {err}"))
}

/// Waits for what a worker says.
fn said(worker: &mut Worker, lifeline: &Lifeline) -> Result<Said, WorkerError> {
    loop {
        if let Some(said) = worker.wait(None, Some(now() + TICK))? {
            return Ok(said);
        }
        if lifeline.is_cut() {
            return Err(WorkerError::Stopped(worker.during().to_owned()));
        }
    }
}

/// Returns the environment variables of a worker.
fn variables(settings: &PythonPolicySettings) -> Vec<Variable> {
    let mut all = settings.variables.clone();
    let name = "PYTHONHASHSEED";
    let is_given = all.iter().any(|(given, _)| given == name);
    if !is_given && std::env::var_os(name).is_none() {
        // Sets of strings then have the same order in each worker.
        all.push((name.to_owned(), Some("0".to_owned())));
    }
    all
}
