//! The default environment: table-top tasks in MuJoCo, simulated in this process.
//!
//! A seven-joint arm with a parallel gripper stands on a table. The model consists of primitives,
//! so that an image without a GPU takes milliseconds. Copies are spread over threads (`worker`); an
//! action moves the commanded pose of the hand (`arm`); the tasks are a table (`task`).
//!
//! ```text
//! MujocoEnv ── Batch ──▶ worker 0: copies 0, 2, 4, … ── Inbox ──▶
//!                        worker 1: copies 1, 3, 5, …    scratch state, renderer (lazy)
//! ```
//!
//! The action is `[7]`, each in -1..1: `dx dy dz` (0.05 m per step) and `droll dpitch dyaw` (a
//! rotation vector, 0.5 rad per step), both in the base frame, and `gripper`, which closes above 0.
//! The frame is that of the arm's base: x over the table, z up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use jobs::refusal::Refusal;
use serde_json::{Map, Value};

use crate::env::egl::EglRequest;
use crate::env::{
    ActionSpec, Answer, AnswerBatch, CameraSpec, Command, EnvError, EnvIndex, EnvSpec, VectorEnv,
};
use crate::inbox::Inbox;
use copy::DECIMATION;
use jobs::interface::Interface;
use model::{CAMERAS, SceneModel};
use task::{CONTROL_HZ, MujocoSettings};
use worker::{Charge, SharedSetup, Turn, WorkShare, WorkerHandle, WorkerMessage};

pub(crate) mod arm;
mod copy;
mod ffi;
mod model;
mod render;
pub(crate) mod rotation;
mod task;
mod worker;

#[cfg(test)]
mod tests;

pub use ffi::draw_without_threads;
pub use render::{DrawnPicture, draw_pair};
pub use task::TASKS;

/// Configuration of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MujocoConfig {
    /// Name of the task, one of [`TASKS`].
    pub task: String,
    /// The requested EGL device of each copy.
    pub egl: Vec<EglRequest>,
    /// Task instruction in place of the task's own.
    pub language: Option<String>,
    /// Number of simulation threads.
    pub threads: usize,
}

impl MujocoConfig {
    /// Returns the configuration of some copies of a task, on any EGL device, in the rank's share
    /// of the cores.
    pub fn new(task: &str, num_envs: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ranks = std::env::var("LOCAL_WORLD_SIZE").ok();
        let ranks = ranks.and_then(|text| text.parse().ok()).unwrap_or(1);
        Self {
            task: task.to_owned(),
            egl: vec![EglRequest::default(); num_envs],
            language: None,
            threads: share_of(cores, ranks),
        }
    }
}

/// Returns the number of threads of one of the ranks that share the cores, at least 1.
fn share_of(cores: usize, ranks: usize) -> usize {
    (cores / ranks.max(1)).max(1)
}

/// Checks a job's `arena_env_args` for a task without building anything.
///
/// # Errors
/// Returns a [`Refusal`] for the task or an argument.
pub fn check_args(task: &str, args: &Map<String, Value>) -> Result<(), Refusal> {
    MujocoSettings::new(task, None, args).map(drop)
}

/// Builds the copies. OpenGL is only needed from the first step with [`Render::Yes`](crate::env::Render::Yes).
///
/// `args` are a job's `arena_env_args`. Known are `camera_height`, `camera_width`,
/// `max_episode_steps` or `episode_length_s`, `success_hold_steps`, `success_threshold` (m),
/// `object`, `light_intensity` (500 is normal), `render_quality` (`fast` or `high`) and
/// `task_description`; all others are listed in [`MujocoEnv::ignored`].
///
/// # Errors
/// Returns the errors of [`check_args`], and [`EnvError::Setup`] if a scene does not compile or a
/// thread does not start.
pub fn make(config: MujocoConfig, args: &Map<String, Value>) -> Result<MujocoEnv, EnvError> {
    let settings = MujocoSettings::new(&config.task, config.language, args)?;
    if config.egl.is_empty() {
        return Err(Refusal::found("num_envs", &0.into(), "expected at least 1").into());
    }
    ffi::install_log_handler();
    let model = SceneModel::new(&settings)?;
    let (spec, ignored) = (spec(&settings, &model), settings.ignored.clone());
    let shared = Arc::new(SharedSetup { model, settings });
    let answers =
        Inbox::new().map_err(|err| EnvError::Setup(format!("cannot make an eventfd: {err}")))?;
    let (mut owners, mut workers) = (vec![0; config.egl.len()], Vec::new());
    for charge in charges(&config.egl, config.threads) {
        let index = workers.len();
        charge.envs.iter().for_each(|env| owners[env.0] = index);
        workers.push(WorkerHandle::spawn(Arc::clone(&shared), index, charge)?);
    }
    Ok(MujocoEnv {
        spec,
        ignored,
        owners,
        workers,
        answers: Arc::new(answers),
    })
}

/// Deals the copies to threads in turn. Copies on different EGL devices have separate threads,
/// because a thread has one renderer.
fn charges(egl: &[EglRequest], threads: usize) -> Vec<Charge> {
    let mut by_device: BTreeMap<&EglRequest, Vec<EnvIndex>> = BTreeMap::new();
    for (env, egl) in egl.iter().enumerate() {
        by_device.entry(egl).or_default().push(EnvIndex(env));
    }
    let mut charges = Vec::new();
    for (device, envs) in by_device {
        let threads = (threads * envs.len() / egl.len()).clamp(1, envs.len());
        charges.extend((0..threads).map(|first| Charge {
            envs: envs.iter().copied().skip(first).step_by(threads).collect(),
            egl: device.clone(),
        }));
    }
    charges
}

fn spec(settings: &MujocoSettings, model: &SceneModel) -> EnvSpec {
    let names = ["dx", "dy", "dz", "droll", "dpitch", "dyaw", "gripper"];
    let camera = |name: &str| CameraSpec {
        name: name.to_owned(),
        height: settings.camera_height,
        width: settings.camera_width,
    };
    let interface = Interface {
        name: settings.task.name.to_owned(),
        state: copy::state_spec(settings),
        cameras: CAMERAS.iter().map(|name| camera(name)).collect(),
        action: ActionSpec {
            names: names.map(str::to_owned).to_vec(),
            low: vec![-1.0; names.len()],
            high: vec![1.0; names.len()],
            grid: Vec::new(),
        },
        control_hz: CONTROL_HZ,
        max_episode_steps: settings.max_episode_steps,
        language: settings.language.to_string(),
    };
    EnvSpec {
        interface,
        discrete: None,
        is_control_hz_assumed: false,
        ends_on_success: true,
        decimation: DECIMATION,
        sim_dt: model.mj.opt().timestep,
    }
}

/// The copies of one task.
pub struct MujocoEnv {
    /// Names of `arena_env_args` without a meaning here, in the file's order.
    pub ignored: Vec<String>,
    spec: EnvSpec,
    /// Index of the worker that owns each copy.
    owners: Vec<usize>,
    workers: Vec<WorkerHandle>,
    answers: Arc<Inbox<(EnvIndex, Answer)>>,
}

impl VectorEnv for MujocoEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.owners.len()
    }

    fn open_renderers(&mut self) -> Result<Vec<String>, EnvError> {
        let (to, notes) = channel();
        self.workers
            .iter()
            .for_each(|worker| worker.send(WorkerMessage::OpenRenderer(to.clone())));
        // A thread that has ended reports that at its first command.
        drop(to);
        let notes: BTreeSet<_> = notes.iter().collect::<Result<_, _>>()?;
        Ok(notes.into_iter().flatten().collect())
    }

    fn send(&mut self, work: Vec<(EnvIndex, Command)>) {
        let turn = Arc::new(Turn {
            answered: Mutex::default(),
            inbox: Arc::clone(&self.answers),
        });
        let share = |_| WorkShare {
            work: VecDeque::new(),
            turn: Arc::clone(&turn),
        };
        let mut shares: Vec<_> = self.workers.iter().map(share).collect();
        for (env, command) in work {
            shares[self.owners[env.0]].work.push_back((env, command));
        }
        let busy = self.workers.iter().zip(shares);
        let busy = busy.filter(|(_, share)| !share.work.is_empty());
        busy.for_each(|(worker, share)| worker.send(WorkerMessage::Work(share)));
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.answers.bell()
    }

    fn take(&mut self) -> AnswerBatch {
        self.answers.take()
    }
}
