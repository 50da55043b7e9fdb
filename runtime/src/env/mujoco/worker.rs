//! The simulation threads: each owns some copies, one scratch state for kinematics and at most one
//! renderer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use mujoco_rs::prelude::{MjData, MjModel};

use crate::env::egl::EglRequest;
use crate::env::mujoco::args::MujocoSettings;
use crate::env::mujoco::copy::{EnvCopy, StepOutcome};
use crate::env::mujoco::ffi::{CurrentWork, set_doing};
use crate::env::mujoco::model::SceneModel;
use crate::env::mujoco::no_such;
use crate::env::mujoco::render::Renderer;
use crate::env::{Answer, Command, EnvError, EnvIndex, Observation, Render, Step};
use crate::inbox::Inbox;

/// Where the threads put their answers.
type Answers = Inbox<(EnvIndex, Answer)>;

/// The data that all threads of an environment share.
pub(super) struct SharedSetup {
    pub(super) model: SceneModel,
    pub(super) settings: MujocoSettings,
    pub(super) language: Arc<str>,
}

/// The copies of one thread, and its EGL device.
pub(super) struct Charge {
    pub(super) envs: Vec<EnvIndex>,
    pub(super) egl: EglRequest,
}

/// Work for one thread, about its own copies only.
pub(super) enum WorkerMessage {
    Work(Vec<(EnvIndex, Command)>),
    /// Opens the renderer and sends a message for the user, if there is one.
    OpenRenderer(Sender<Result<Option<String>, EnvError>>),
    #[cfg(test)]
    Corrupt(EnvIndex),
    #[cfg(test)]
    FatalError(EnvIndex),
}

/// The caller's handle of a thread.
pub(super) struct WorkerHandle {
    // `None` after the thread was told to end.
    batches: Option<Sender<WorkerMessage>>,
    answers: Arc<Answers>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerHandle {
    /// Starts the thread that owns the copies in `charge`.
    pub(super) fn spawn(
        shared: Arc<SharedSetup>,
        index: usize,
        charge: Charge,
        answers: Arc<Answers>,
    ) -> Result<Self, EnvError> {
        let (batches, inbox) = channel();
        let outbox = Arc::clone(&answers);
        let run = move || SimulationThread::new(shared, charge).run(&inbox, &outbox);
        let thread = std::thread::Builder::new()
            .name(format!("mujoco-{index}"))
            .spawn(run);
        let thread = thread.map_err(|error| {
            EnvError::Setup(format!("cannot start a simulation thread: {error}"))
        })?;
        Ok(Self {
            batches: Some(batches),
            answers,
            thread: Some(thread),
        })
    }

    /// Sends a batch. If the thread has ended, the commands are answered here with errors.
    pub(super) fn send(&self, batch: WorkerMessage) {
        let Some(batches) = &self.batches else { return };
        if let Err(unsent) = batches.send(batch)
            && let WorkerMessage::Work(work) = unsent.0
        {
            work.iter().for_each(|(env, command)| {
                self.answers
                    .put((*env, Answer::refuse(command, dead(*env))))
            });
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.batches.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}

/// Work that a thread has taken. On drop, the rest of it is answered with errors, so that a panic
/// leaves no command without an answer.
struct Taken<'a> {
    work: std::vec::IntoIter<(EnvIndex, Command)>,
    current: Option<(EnvIndex, Command)>,
    answers: &'a Answers,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let left = self.current.take().into_iter().chain(self.work.by_ref());
        left.for_each(|(env, command)| {
            self.answers.put((env, Answer::refuse(&command, dead(env))))
        });
    }
}

fn dead(env: EnvIndex) -> EnvError {
    EnvError::Setup(format!(
        "the simulation thread of environment {} has ended",
        env.0
    ))
}

/// A copy with the seed of its episode.
struct OwnedCopy {
    copy: EnvCopy,
    seed: Option<u64>,
}

impl OwnedCopy {
    fn new(model: &SceneModel) -> Self {
        Self {
            copy: EnvCopy::new(model),
            seed: None,
        }
    }
}

/// The state of a simulation thread.
struct SimulationThread {
    shared: Arc<SharedSetup>,
    scratch: MjData<Arc<MjModel>>,
    copies: BTreeMap<EnvIndex, OwnedCopy>,
    egl: EglRequest,
    renderer: Option<Renderer>,
}

impl SimulationThread {
    fn new(shared: Arc<SharedSetup>, charge: Charge) -> Self {
        let copies = charge
            .envs
            .iter()
            .map(|&env| (env, OwnedCopy::new(&shared.model)))
            .collect();
        let scratch = MjData::new(Arc::clone(&shared.model.mj));
        Self {
            shared,
            scratch,
            copies,
            egl: charge.egl,
            renderer: None,
        }
    }

    fn run(&mut self, inbox: &Receiver<WorkerMessage>, answers: &Answers) {
        while let Ok(batch) = inbox.recv() {
            match batch {
                WorkerMessage::Work(work) => self.work(work, answers),
                WorkerMessage::OpenRenderer(to) => {
                    let note = self
                        .renderer()
                        .map(|renderer| renderer.note().map(str::to_owned));
                    // If the caller no longer waits, the renderer is open anyway.
                    to.send(note).ok();
                }
                #[cfg(test)]
                WorkerMessage::Corrupt(env) => self.copies.get_mut(&env).unwrap().copy.corrupt(),
                #[cfg(test)]
                WorkerMessage::FatalError(env) => {
                    self.say(env);
                    mujoco_rs::prelude::log_error("the stack is full")
                }
            }
        }
    }

    fn work(&mut self, work: Vec<(EnvIndex, Command)>, answers: &Answers) {
        let mut taken = Taken {
            work: work.into_iter(),
            current: None,
            answers,
        };
        loop {
            taken.current = taken.work.next();
            let Some((env, command)) = &taken.current else {
                return;
            };
            let answer = match command {
                Command::Reset { seed, render, .. } => {
                    Answer::Reset(self.reset(*env, *seed, *render))
                }
                Command::Step { action, render, .. } => {
                    Answer::Step(self.step(*env, action, *render))
                }
            };
            answers.put((*env, answer));
        }
    }

    fn reset(&mut self, env: EnvIndex, seed: u64, render: Render) -> Result<Observation, EnvError> {
        let Some(owned) = self.copies.get_mut(&env) else {
            return Err(no_such(env));
        };
        owned.seed = Some(seed);
        owned
            .copy
            .reset(&self.shared.model, &self.shared.settings, seed);
        self.say(env);
        self.observe(env, render)
    }

    fn step(&mut self, env: EnvIndex, action: &[f32], render: Render) -> Result<Step, EnvError> {
        self.say(env);
        let Some(owned) = self.copies.get_mut(&env) else {
            return Err(no_such(env));
        };
        let outcome = owned.copy.step(
            &self.shared.model,
            &mut self.scratch,
            &self.shared.settings,
            action,
        );
        let outcome = outcome.map_err(|reason| EnvError::Episode { env, reason })?;
        let observation = self.observe(env, render)?;
        let StepOutcome {
            action: taken,
            reward,
            success,
            terminated,
            truncated,
        } = outcome;
        let (processed_action, out_of_bounds) = (taken.to_vec(), taken[..] != *action);
        Ok(Step {
            observation,
            processed_action,
            out_of_bounds,
            reward,
            success,
            terminated,
            truncated,
        })
    }

    fn observe(&mut self, env: EnvIndex, render: Render) -> Result<Observation, EnvError> {
        if render == Render::Yes {
            self.renderer()?;
        }
        let Some(OwnedCopy { copy, .. }) = self.copies.get_mut(&env) else {
            return Err(no_such(env));
        };
        let mut observation = copy.observe(&self.shared.model, &self.shared.language);
        if let (Render::Yes, Some(renderer)) = (render, &mut self.renderer) {
            observation.video = renderer.draw(copy.data_mut())?;
        }
        Ok(observation)
    }

    /// Returns the renderer of this thread, which is opened at the first call.
    fn renderer(&mut self) -> Result<&mut Renderer, EnvError> {
        match &mut self.renderer {
            Some(renderer) => Ok(renderer),
            none => Ok(none.insert(Renderer::new(&self.shared.model, &self.egl)?)),
        }
    }

    /// Records what this thread simulates, for the message if MuJoCo ends the process.
    fn say(&self, env: EnvIndex) {
        let (step, seed) = self
            .copies
            .get(&env)
            .map_or((0, None), |owned| (owned.copy.step_count(), owned.seed));
        set_doing(CurrentWork {
            task: self.shared.settings.task.name,
            env: env.0,
            seed,
            step,
        });
    }
}
