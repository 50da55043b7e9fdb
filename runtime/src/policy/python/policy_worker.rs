//! One worker: a Python process with the policy, and the memory that it shares with this process.

use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use serde_json::{Value, json};
use tch::Device;

use crate::env::EnvSpec;
use crate::env::python::process::PythonProcess;
use crate::env::python::shm::{SharedMemory, bytes_of};
use crate::policy::Lifeline;
use crate::policy::python::error::WorkerError;
use crate::policy::python::hello::WorkerHello;
use crate::policy::python::layout::BatchLayout;
use crate::policy::python::link::WorkerLink;
use crate::policy::python::settings::{PythonPolicySettings, WorkerModule};

/// The worker's main module.
const MAIN: WorkerModule = ("rrun_policy", include_str!("worker/rrun_policy.py"));

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
    /// Returns the configuration, which a worker gets first.
    fn config(&self, process: &PythonProcess) -> Value {
        // The worker runs the last one.
        let modules: Vec<WorkerModule> = self.settings.module.into_iter().chain([MAIN]).collect();
        json!({
            "modules": modules,
            "memory_fd": process.memfd.as_raw_fd(),
            "policy": self.settings.policy,
            "policy_kwargs": self.settings.kwargs,
            "seed": self.settings.seed,
            "device": device_name(self.device),
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

/// Returns PyTorch's name of a device.
fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

/// A worker that has made its policy.
pub(super) struct PolicyWorker {
    link: WorkerLink,
    memory: SharedMemory,
    /// What it says about its policy.
    pub(super) hello: WorkerHello,
    /// The places in shared memory.
    pub(super) layout: BatchLayout,
    /// Number of rows whose pages were written before, so that the system has memory for them.
    written_rows: usize,
    sequence: u32,
}

impl PolicyWorker {
    /// Starts a worker, and returns when its policy is made.
    ///
    /// # Errors
    /// Returns a [`WorkerError`] that says at which stage it failed; the process is gone then.
    pub(super) fn start(terms: &WorkerTerms) -> Result<Self, WorkerError> {
        let settings = &terms.settings;
        let label = format!("rrun-policy policy={}", settings.name);
        let variables = variables(settings);
        let process = PythonProcess::start(0, &settings.python, &label, &variables);
        let process = process.map_err(|err| WorkerError::Spawn {
            python: settings.python.clone(),
            err,
        })?;
        let mut link = WorkerLink::new(process, terms.lifeline.clone());
        link.during = "the start of the interpreter".to_owned();
        link.begin(settings.startup_timeout);
        let config = terms.config(&link.process).to_string();
        link.send(config.as_bytes()).map_err(|err| link.deaf(err))?;
        let hello = link.until_hello()?;
        let needs_video = hello.needs_video && !terms.env.cameras.is_empty();
        let layout = BatchLayout::new(
            &terms.env,
            needs_video,
            hello.action_horizon,
            hello.looks_back + 1,
        )?;
        let memory = shared_memory(&link.process, layout.bytes)?;
        let places = layout.to_json().to_string();
        link.send(places.as_bytes()).map_err(|err| link.deaf(err))?;
        link.until_ready()?;
        Ok(Self {
            link,
            memory,
            hello,
            layout,
            written_rows: 0,
            sequence: 0,
        })
    }

    /// Returns whether the process has ended since its last answer.
    pub(super) fn has_ended(&mut self) -> bool {
        self.link.listen();
        self.link.is_over(Duration::ZERO)
    }

    /// Returns why a worker is gone that has ended between two calls.
    pub(super) fn ended(&mut self) -> WorkerError {
        self.link.during = "no call".to_owned();
        self.link.ended()
    }

    /// Writes a picture at one of the steps of a row.
    ///
    /// # Errors
    /// Returns [`WorkerError::Memory`].
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
    /// Returns [`WorkerError::Memory`].
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
        written.map_err(|err| self.out_of_memory(err))
    }

    /// Asks for the actions of the rows that are in shared memory: `call` without its sequence
    /// number. Returns `[rows, horizon, action]` as bytes.
    ///
    /// # Errors
    /// Returns a [`WorkerError`]; see [`WorkerError::leaves_worker`].
    pub(super) fn ask(
        &mut self,
        mut call: Value,
        rows: usize,
        limit: Duration,
    ) -> Result<Bytes, WorkerError> {
        self.written_rows = self.written_rows.max(rows);
        self.sequence = self.sequence.wrapping_add(1);
        call["sequence"] = self.sequence.into();
        self.link.during = match rows {
            1 => "`act` of 1 row".to_owned(),
            rows => format!("`act` of {rows} rows"),
        };
        self.link.begin(limit);
        match self.link.send(call.to_string().as_bytes()) {
            Err(err @ (Errno::MSGSIZE | Errno::NOBUFS)) => {
                let err = err.into();
                return Err(WorkerError::TooLong { rows, err });
            }
            sent => sent.map_err(|err| self.link.deaf(err))?,
        }
        self.link.until_answer(self.sequence)?;
        let read = self.memory.read(self.layout.actions(rows));
        read.map_err(|err| self.out_of_memory(err))
    }

    fn out_of_memory(&self, err: std::io::Error) -> WorkerError {
        WorkerError::Memory {
            bytes: self.layout.bytes,
            err,
        }
    }
}

/// Returns the memory that a process shares with this one, which writes to it in each call.
fn shared_memory(process: &PythonProcess, bytes: usize) -> Result<SharedMemory, WorkerError> {
    let memory = SharedMemory::with_size(&process.memfd, bytes, 2).and_then(|mut memory| {
        memory.map_for_writing()?;
        Ok(memory)
    });
    memory.map_err(|err| WorkerError::Memory { bytes, err })
}

/// Returns the environment variables of a worker.
fn variables(settings: &PythonPolicySettings) -> Vec<(String, Option<String>)> {
    let mut all = settings.variables.clone();
    let name = "PYTHONHASHSEED";
    let is_given = all.iter().any(|(given, _)| given == name);
    if !is_given && std::env::var_os(name).is_none() {
        // Sets of strings then have the same order in each worker.
        all.push((name.to_owned(), Some("0".to_owned())));
    }
    all
}
