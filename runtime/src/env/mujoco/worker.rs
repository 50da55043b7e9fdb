//! Threads: each owns some copies, one scratch state for kinematics and at most one renderer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use mujoco_rs::prelude::{MjData, MjModel};

use super::args::Settings;
use super::copy::{Copy, Outcome};
use super::ffi::{Doing, set_doing};
use super::model::Model;
use super::render::Renderer;
use crate::env::{EnvError, EnvIndex, Observation, Render, Step};

/// What all threads of an environment share.
pub(super) struct Shared {
    pub(super) model: Model,
    pub(super) settings: Settings,
    pub(super) language: Arc<str>,
    pub(super) egl_device: Option<u32>,
}

/// Work for one thread, about its own copies only.
pub(super) enum Batch {
    Reset(Vec<(EnvIndex, u64)>, Render),
    Step(Vec<(EnvIndex, Vec<f32>)>, Render),
    #[cfg(test)]
    Corrupt(EnvIndex),
    #[cfg(test)]
    FatalError(EnvIndex),
}

/// Answers to a batch, in its order.
pub(super) enum Answers {
    Reset(Vec<Result<Observation, EnvError>>),
    Step(Vec<Result<Step, EnvError>>),
    #[cfg(test)]
    Corrupt,
}

/// The caller's end of a thread.
pub(super) struct Handle {
    // `None` once the thread is told to end.
    batches: Option<SyncSender<Batch>>,
    answers: Receiver<Answers>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Starts the thread that owns these copies.
    pub(super) fn spawn(shared: Arc<Shared>, index: usize, envs: Vec<EnvIndex>) -> Result<Self, EnvError> {
        let (batches, inbox) = sync_channel(1);
        let (outbox, answers) = sync_channel(1);
        let run = move || Worker::new(shared, &envs).run(&inbox, &outbox);
        let thread = std::thread::Builder::new().name(format!("mujoco-{index}")).spawn(run);
        let thread = thread.map_err(|error| EnvError::Setup(format!("cannot start a simulation thread: {error}")))?;
        Ok(Self { batches: Some(batches), answers, thread: Some(thread) })
    }

    /// Hands a batch over; it must be followed by [`Handle::receive`]. A dead thread shows up there.
    pub(super) fn send(&self, batch: Batch) {
        if let Some(batches) = &self.batches {
            batches.send(batch).ok();
        }
    }

    /// Waits for the answers; `None` if the thread is dead.
    pub(super) fn receive(&self) -> Option<Answers> {
        self.answers.recv().ok()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.batches.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}

/// The thread's side.
struct Worker {
    shared: Arc<Shared>,
    scratch: MjData<Arc<MjModel>>,
    copies: BTreeMap<EnvIndex, (Copy, Option<u64>)>,
    renderer: Option<Renderer>,
}

impl Worker {
    fn new(shared: Arc<Shared>, envs: &[EnvIndex]) -> Self {
        let copies = envs.iter().map(|&env| (env, (Copy::new(&shared.model), None))).collect();
        let scratch = MjData::new(Arc::clone(&shared.model.mj));
        Self { shared, scratch, copies, renderer: None }
    }

    fn run(&mut self, inbox: &Receiver<Batch>, outbox: &SyncSender<Answers>) {
        while let Ok(batch) = inbox.recv() {
            if outbox.send(self.answer(batch)).is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, batch: Batch) -> Answers {
        match batch {
            Batch::Reset(resets, render) => {
                Answers::Reset(resets.into_iter().map(|(env, seed)| self.reset(env, seed, render)).collect())
            }
            Batch::Step(actions, render) => {
                Answers::Step(actions.into_iter().map(|(env, action)| self.step(env, &action, render)).collect())
            }
            #[cfg(test)]
            Batch::Corrupt(env) => {
                self.copies.get_mut(&env).unwrap().0.corrupt();
                Answers::Corrupt
            }
            #[cfg(test)]
            Batch::FatalError(env) => {
                self.say(env);
                mujoco_rs::prelude::log_error("the stack is full")
            }
        }
    }

    fn reset(&mut self, env: EnvIndex, seed: u64, render: Render) -> Result<Observation, EnvError> {
        let Some((copy, episode)) = self.copies.get_mut(&env) else { return Err(no_such(env)) };
        *episode = Some(seed);
        copy.reset(&self.shared.model, &self.shared.settings, seed);
        self.say(env);
        self.observe(env, render)
    }

    fn step(&mut self, env: EnvIndex, action: &[f32], render: Render) -> Result<Step, EnvError> {
        self.say(env);
        let Some((copy, _)) = self.copies.get_mut(&env) else { return Err(no_such(env)) };
        let outcome = copy.step((&self.shared.model, &mut self.scratch), &self.shared.settings, action);
        let outcome = outcome.map_err(|reason| EnvError::Episode { env, reason })?;
        let observation = self.observe(env, render)?;
        let Outcome { reward, success, terminated, truncated } = outcome;
        Ok(Step { observation, reward, success, terminated, truncated })
    }

    fn observe(&mut self, env: EnvIndex, render: Render) -> Result<Observation, EnvError> {
        let Some((copy, _)) = self.copies.get_mut(&env) else { return Err(no_such(env)) };
        let mut observation = copy.observe(&self.shared.model, &self.shared.language);
        if render == Render::Yes {
            let renderer = match &mut self.renderer {
                Some(renderer) => renderer,
                none => {
                    none.insert(Renderer::new(&self.shared.model, self.shared.egl_device).map_err(EnvError::Setup)?)
                }
            };
            observation.video = renderer.draw(copy.data_mut()).map_err(EnvError::Setup)?;
        }
        Ok(observation)
    }

    /// Notes where this thread is, should MuJoCo stop the process.
    fn say(&self, env: EnvIndex) {
        let (step, seed) = self.copies.get(&env).map_or((0, None), |(copy, seed)| (copy.step_count(), *seed));
        set_doing(Doing { task: self.shared.settings.task.name, env: env.0, seed, step });
    }
}

fn no_such(env: EnvIndex) -> EnvError {
    EnvError::Episode { env, reason: "there is no such copy".to_owned() }
}
