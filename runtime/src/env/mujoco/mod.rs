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
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use jobs::interface::Interface;

use crate::env::egl::EglRequest;
use crate::env::{
    ActionSpec, Answer, AnswerBatch, CameraSpec, Command, EnvError, EnvIndex, EnvSpec, VectorEnv,
};
use crate::inbox::Inbox;
use crate::joined::JoinedThread;
use copy::{DECIMATION, EnvCopy};
use model::{CAMERAS, SceneModel};
use task::CONTROL_HZ;
use worker::{Charge, Turn, WorkShare, WorkerMessage, spawn};

pub(crate) mod arm;
mod copy;
mod ffi;
mod model;
mod render;
pub(crate) mod rotation;
mod task;
mod worker;

#[cfg(test)]
pub(crate) mod tests;

pub use ffi::draw_without_threads;
pub use render::{DrawnPicture, draw_pair};
pub use task::MujocoSettings;

/// Builds a copy for each EGL device that is asked for, in some threads. OpenGL is only needed from
/// the first step with [`Render::Yes`](crate::env::Render::Yes).
///
/// Known `arena_env_args` are `camera_height`, `camera_width`,
/// `max_episode_steps` or `episode_length_s`, `success_hold_steps`, `success_threshold` (m),
/// `object`, `light_intensity` (500 is normal), `render_quality` (`fast` or `high`) and
/// `task_description`.
///
/// # Errors
/// Returns [`EnvError::Setup`] if a scene does not compile or a thread does not start.
pub fn make(
    settings: MujocoSettings,
    egl: &[EglRequest],
    threads: usize,
) -> Result<MujocoEnv, EnvError> {
    ffi::install_log_handler();
    let model = Arc::new(SceneModel::new(settings)?);
    let answers =
        Inbox::new().map_err(|err| EnvError::Setup(format!("cannot make an eventfd: {err}")))?;
    let mut env = MujocoEnv {
        spec: spec(&model),
        owners: vec![0; egl.len()],
        workers: Vec::new(),
        answers: Arc::new(answers),
    };
    for (index, charge) in charges(egl, threads).into_iter().enumerate() {
        let envs = charge.envs.iter();
        envs.for_each(|copy| env.owners[copy.0] = index);
        env.workers.push(spawn(Arc::clone(&model), index, charge)?);
    }
    Ok(env)
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

fn spec(model: &SceneModel) -> EnvSpec {
    let settings = &model.settings;
    let state = EnvCopy::new(model).state(model).into_iter();
    let names = ["dx", "dy", "dz", "droll", "dpitch", "dyaw", "gripper"];
    let camera = |name: &str| CameraSpec {
        name: name.to_owned(),
        height: settings.camera_height,
        width: settings.camera_width,
    };
    let interface = Interface {
        name: settings.task.name.to_owned(),
        state: state.map(|(name, values)| (name, values.len())).collect(),
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
        ends_on_success: true,
        decimation: DECIMATION,
        sim_dt: model.mj.opt().timestep,
        ..EnvSpec::seen(interface)
    }
}

/// The copies of one task.
pub struct MujocoEnv {
    spec: EnvSpec,
    /// Index of the worker that owns each copy.
    owners: Vec<usize>,
    workers: Vec<JoinedThread<Sender<WorkerMessage>>>,
    answers: Arc<Inbox<(EnvIndex, Answer)>>,
}

impl Drop for MujocoEnv {
    /// Closes all channels before the first thread is waited for: they end at the same time.
    fn drop(&mut self) {
        let workers = self.workers.iter_mut();
        workers.for_each(|worker| worker.end = channel().0);
    }
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
        for worker in &self.workers {
            // A thread that has ended reports that at its first command.
            let message = WorkerMessage::OpenRenderer(to.clone());
            worker.end.send(message).ok();
        }
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
        for (worker, share) in busy.filter(|(_, share)| !share.work.is_empty()) {
            // If the thread has ended, the commands are dropped here, and with that answered.
            worker.end.send(WorkerMessage::Work(share)).ok();
        }
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.answers.bell()
    }

    fn take(&mut self) -> AnswerBatch {
        self.answers.take()
    }
}
