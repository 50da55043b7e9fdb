//! One worker: a Python process with the policy, and the memory that it shares with this process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Value, json};
use tch::Device;

use crate::clock::now;
use crate::device::gpu;
use crate::env::{EnvSpec, Observation};
use crate::policy::Lifeline;
use crate::policy::python::PythonPolicySettings;
use crate::policy::python::layout::BatchLayout;
use crate::python::memory::{SharedMemory, bytes_of};
use crate::python::{Cause, Loss, Module, Program, Said, Worker, set_default};

/// The worker's main module.
const MAIN: Module = ("rrun_policy", include_str!("worker/rrun_policy.py"));
/// How often a wait looks whether the evaluation is being stopped.
const TICK: Duration = Duration::from_millis(200);
/// Most stages of a start; `rrun_policy.py` has four.
const MOST_STAGES: usize = 16;
/// Most actions of a chunk.
const LONGEST_HORIZON: usize = 4096;
/// Most past steps that a policy looks at.
const MOST_STEPS_BACK: usize = 255;
/// Most versions, and most bytes of one.
const MOST_VERSIONS: usize = 16;
const LONGEST_VERSION: usize = 100;
/// Number of output lines in a message, and most letters of each.
const LINES: usize = 12;
const LONGEST_LINE: usize = 300;

/// The reason why a worker gave no actions.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) enum WorkerError {
    /// The worker is gone, or of no use.
    Lost(String),
    /// The call failed: the policy raised an exception, or gave an array that cannot be taken, or
    /// the call cannot be sent. The worker goes on.
    Failed(String),
    /// Workers have failed too often, or the evaluation is being stopped.
    Ended(String),
}

impl From<Loss> for WorkerError {
    /// Says why a worker is gone, with its last lines.
    fn from(loss: Loss) -> Self {
        let (text, during) = (loss.text, loss.during);
        let mut told = match loss.cause {
            Cause::Refused => text,
            Cause::GaveUp(_) => format!("{during} {text}"),
            Cause::Seen => format!("its worker {text} during {during}"),
        };
        for line in &loss.lines[loss.lines.len().saturating_sub(LINES)..] {
            let short: String = line.chars().take(LONGEST_LINE).collect();
            // Writing to a string cannot fail.
            write!(told, "\n    {short}").ok();
        }
        Self::Lost(told)
    }
}

/// The description of a policy, from a process that may be broken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct WorkerHello {
    /// Number of actions of a chunk.
    pub(super) action_horizon: usize,
    /// Whether it looks at pictures.
    pub(super) needs_video: bool,
    /// Number of past steps that it looks at.
    pub(super) looks_back: usize,
    /// Whether it keeps a state for each episode.
    pub(super) has_reset: bool,
    /// Versions of the interpreter and of numpy, and of torch if it is imported.
    pub(super) versions: BTreeMap<String, String>,
}

impl WorkerHello {
    /// Returns whether another worker of the policy can take over from one that said this.
    pub(super) fn is_same_policy(&self, other: &Self) -> bool {
        let versions = self.versions.clone();
        *self == Self { versions, ..*other }
    }

    /// Parses and checks the description; `None` if it cannot be taken.
    fn parse(text: &[u8]) -> Option<Self> {
        let hello: Self = serde_json::from_slice(text).ok()?;
        let is_version =
            |(name, version): (&String, &String)| name.len().max(version.len()) <= LONGEST_VERSION;
        let is_sane = (1..=LONGEST_HORIZON).contains(&hello.action_horizon)
            && hello.looks_back <= MOST_STEPS_BACK
            && hello.versions.len() <= MOST_VERSIONS
            && hello.versions.iter().all(is_version);
        is_sane.then_some(hello)
    }
}

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

/// A worker that has made its policy.
pub(super) struct PolicyWorker {
    /// It owes an answer while one is due.
    pub(super) worker: Worker,
    memory: SharedMemory,
    /// What it says about its policy.
    pub(super) hello: WorkerHello,
    /// The places in shared memory.
    pub(super) layout: BatchLayout,
    /// Number of rows whose pages were written before, so that the system has memory for them.
    written_rows: usize,
}

impl PolicyWorker {
    /// Starts a worker, and returns when its policy is made.
    ///
    /// # Errors
    /// Returns a [`WorkerError`] that says at which stage it failed; the process is gone then.
    pub(super) fn start(terms: &WorkerTerms) -> Result<Self, WorkerError> {
        let settings = &terms.settings;
        let mut variables = settings.variables.clone();
        // Sets of strings then have the same order in each worker.
        set_default(&mut variables, "PYTHONHASHSEED", "0");
        // The worker runs the last one.
        let modules: Vec<Module> = settings.module.into_iter().chain([MAIN]).collect();
        let program = Program {
            python: &settings.python,
            label: &format!("rrun-policy policy={}", settings.name),
            variables: &variables,
            modules: &modules,
            config: json!({
                "policy": settings.policy,
                "policy_kwargs": settings.kwargs,
                "seed": settings.seed,
                "device": gpu::name(terms.device),
                "interface": terms.env.to_json(),
            }),
            stages: MOST_STAGES,
            limit: Some(settings.process.startup_timeout_s.0),
        };
        let sink = Box::new(|line: &str| tracing::debug!(target: "policy", "{line}"));
        let mut worker = Worker::start(&program, None, sink).map_err(|err| {
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
        let layout = BatchLayout::new(&terms.env, needs_video, hello.action_horizon, steps);
        let layout = layout.map_err(WorkerError::Lost)?;
        let memory = worker.memory(layout.bytes, 2).and_then(|mut memory| {
            memory.map_for_writing()?;
            Ok(memory)
        });
        Ok(Self {
            worker,
            memory: memory.map_err(|err| out_of_memory(&layout, &err))?,
            hello,
            layout,
            written_rows: 0,
        })
    }

    /// Returns why it has ended since its last answer, if it has.
    pub(super) fn ended(&mut self) -> Option<WorkerError> {
        self.worker.is_at("no call");
        self.worker.wait(now()).err().map(WorkerError::from)
    }

    /// Writes what the policy sees of all rows: the observations of each step, the oldest first.
    ///
    /// # Errors
    /// Returns [`WorkerError::Lost`] if the system has no memory.
    pub(super) fn show(
        &self,
        env: &EnvSpec,
        rows: &[Vec<&Observation>],
    ) -> Result<(), WorkerError> {
        let layout = &self.layout;
        for (row, seen) in rows.iter().enumerate() {
            for (step, observation) in seen.iter().enumerate() {
                let index = row * layout.steps + step;
                for ((name, _), block) in env.state.iter().zip(&layout.states) {
                    if let Some(vector) = observation.state.get(name) {
                        self.write(row, block.at(index), &bytes_of(vector))?;
                    }
                }
                for (camera, block) in env.cameras.iter().zip(&layout.cameras) {
                    if let Some(frame) = observation.video.get(&camera.name) {
                        self.write(row, block.at(index), &frame.rgb)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a part of a row. The first time the system is asked, which may be out of memory.
    fn write(&self, row: usize, place: usize, bytes: &[u8]) -> Result<(), WorkerError> {
        let written = if row < self.written_rows {
            self.memory.overwrite(place, bytes)
        } else {
            self.memory.write(place, bytes)
        };
        written.map_err(|err| out_of_memory(&self.layout, &err))
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
        terms: &WorkerTerms,
    ) -> Result<Bytes, WorkerError> {
        self.written_rows = self.written_rows.max(rows);
        call["most"] = self.layout.rows.into();
        let worker = &mut self.worker;
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
        worker.expect_by(Some(terms.settings.process.act_timeout_s.0));
        let failure = loop {
            match said(worker, &terms.lifeline)? {
                Said::Answer { sequence: it, .. } if it == sequence => break None,
                Said::Failed {
                    sequence: it,
                    reason,
                } if it == sequence => break Some(reason),
                Said::Note(_) => {}
                _ => return Err(worker.loss("answered another call").into()),
            }
        };
        worker.expect_by(None);
        if let Some(reason) = failure {
            return Err(WorkerError::Failed(reason));
        }
        let read = self.memory.read(self.layout.actions(rows));
        read.map_err(|err| out_of_memory(&self.layout, &err))
    }
}

fn out_of_memory(layout: &BatchLayout, err: &std::io::Error) -> WorkerError {
    WorkerError::Lost(format!("{} bytes of shared memory: {err}", layout.bytes))
}

/// Waits for what a worker says.
fn said(worker: &mut Worker, lifeline: &Lifeline) -> Result<Said, WorkerError> {
    loop {
        if let Some(said) = worker.wait(now() + TICK)? {
            return Ok(said);
        }
        if lifeline.is_cut() {
            let during = worker.during();
            let text = format!("the evaluation was stopped during {during}");
            return Err(WorkerError::Ended(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_that_makes_no_sense_is_not_taken() {
        let text = |horizon: i64| {
            format!(
                r#"{{"action_horizon": {horizon}, "needs_video": true, "looks_back": 1, "has_reset": false,
                    "versions": {{"python": "3.11"}}}}"#
            )
        };
        assert_eq!(
            WorkerHello::parse(text(8).as_bytes())
                .unwrap()
                .action_horizon,
            8
        );
        assert_eq!(WorkerHello::parse(text(0).as_bytes()), None);
        assert_eq!(WorkerHello::parse(text(-1).as_bytes()), None);
        assert_eq!(WorkerHello::parse(text(1 << 40).as_bytes()), None);
        assert_eq!(WorkerHello::parse(b"{}"), None);
    }
}
