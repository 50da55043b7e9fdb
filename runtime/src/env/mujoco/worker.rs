//! The simulation threads: each owns some copies, one scratch state for kinematics and at most one
//! renderer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use mujoco_rs::prelude::{MjData, MjModel};

use crate::env::egl::EglRequest;
use crate::env::mujoco::copy::EnvCopy;
use crate::env::mujoco::ffi::{CurrentWork, DOING};
use crate::env::mujoco::model::SceneModel;
use crate::env::mujoco::render::Renderer;
use crate::env::{Answer, AnswerBatch, Command, EnvError, EnvIndex, Observation, Render, Step};
use crate::inbox::Inbox;
use crate::joined::JoinedThread;

/// The answers to commands that were sent together. When the last thread has done its part, they go
/// to the loop together, which can do nothing before.
pub(super) struct Turn {
    pub(super) answered: Mutex<AnswerBatch>,
    pub(super) inbox: Arc<Inbox<(EnvIndex, Answer)>>,
}

impl Turn {
    fn answer(&self, env: EnvIndex, answer: Answer) {
        let answered = self.answered.lock();
        answered
            .unwrap_or_else(PoisonError::into_inner)
            .push((env, answer));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let answered = self.answered.get_mut();
        let answered = answered.unwrap_or_else(PoisonError::into_inner);
        self.inbox.put_all(std::mem::take(answered));
    }
}

/// Why a thread has each copy that its commands are for.
const OWN: &str = "a command goes to the thread that owns the copy";

/// The copies of one thread, and its EGL device.
pub(super) struct Charge {
    pub(super) envs: Vec<EnvIndex>,
    pub(super) egl: EglRequest,
}

/// Work for one thread, about its own copies only.
pub(super) enum WorkerMessage {
    Work(WorkShare),
    /// Opens the renderer and sends a message for the user, if there is one.
    OpenRenderer(Sender<Result<Option<String>, EnvError>>),
    #[cfg(test)]
    Test(EnvIndex, fn(&mut EnvCopy)),
}

/// Starts the thread that owns the copies in `charge`.
pub(super) fn spawn(
    model: Arc<SceneModel>,
    index: usize,
    charge: Charge,
) -> Result<JoinedThread<Sender<WorkerMessage>>, EnvError> {
    let (work, inbox) = channel();
    let run = move || SimulationThread::new(model, charge).run(&inbox);
    let thread = Builder::new().name(format!("mujoco-{index}"));
    let cannot = |err| EnvError::Setup(format!("cannot start a simulation thread: {err}"));
    JoinedThread::spawn(thread, work, run).map_err(cannot)
}

/// The commands of a turn for one thread. On drop, the rest of them is answered with errors, so that
/// a panic leaves no command without an answer.
pub(super) struct WorkShare {
    pub(super) work: VecDeque<(EnvIndex, Command)>,
    pub(super) turn: Arc<Turn>,
}

impl Drop for WorkShare {
    fn drop(&mut self) {
        for (env, command) in self.work.drain(..) {
            let reason = format!("the simulation thread of environment {} has ended", env.0);
            let answer = Answer::refuse(&command, EnvError::Setup(reason));
            self.turn.answer(env, answer);
        }
    }
}

/// The state of a simulation thread.
struct SimulationThread {
    model: Arc<SceneModel>,
    scratch: MjData<Arc<MjModel>>,
    copies: BTreeMap<EnvIndex, EnvCopy>,
    egl: EglRequest,
    renderer: Option<Renderer>,
}

impl SimulationThread {
    fn new(model: Arc<SceneModel>, charge: Charge) -> Self {
        let copies = charge.envs.into_iter();
        Self {
            copies: copies.map(|env| (env, EnvCopy::new(&model))).collect(),
            scratch: MjData::new(Arc::clone(&model.mj)),
            model,
            egl: charge.egl,
            renderer: None,
        }
    }

    fn run(&mut self, inbox: &Receiver<WorkerMessage>) {
        while let Ok(batch) = inbox.recv() {
            match batch {
                WorkerMessage::Work(share) => self.work(share),
                WorkerMessage::OpenRenderer(to) => {
                    let note = self.renderer().map(|renderer| renderer.gl.note.clone());
                    // If the caller no longer waits, the renderer is open anyway.
                    to.send(note).ok();
                }
                #[cfg(test)]
                WorkerMessage::Test(env, harm) => {
                    self.say(env);
                    harm(self.copies.get_mut(&env).expect(OWN));
                }
            }
        }
    }

    fn work(&mut self, mut share: WorkShare) {
        while let Some((env, command)) = share.work.front() {
            let env = *env;
            let answer = match command {
                Command::Reset { seed, render, .. } => {
                    Answer::Reset(self.reset(env, *seed, *render))
                }
                Command::Step { action, render, .. } => {
                    Answer::Step(self.step(env, action, *render))
                }
            };
            share.work.pop_front();
            share.turn.answer(env, answer);
        }
    }

    fn reset(&mut self, env: EnvIndex, seed: u64, render: Render) -> Result<Observation, EnvError> {
        let copy = self.copies.get_mut(&env).expect(OWN);
        copy.reset(&self.model, seed);
        let observation = copy.observe(&self.model);
        self.say(env);
        self.shown(env, observation, render)
    }

    fn step(&mut self, env: EnvIndex, action: &[f32], render: Render) -> Result<Step, EnvError> {
        self.say(env);
        let copy = self.copies.get_mut(&env).expect(OWN);
        let stepped = copy.step(&self.model, &mut self.scratch, action);
        let step = stepped.map_err(|reason| EnvError::Episode { env, reason })?;
        Ok(Step {
            observation: self.shown(env, step.observation, render)?,
            ..step
        })
    }

    /// Adds the images to an observation, if they are wanted.
    fn shown(
        &mut self,
        env: EnvIndex,
        mut observation: Observation,
        render: Render,
    ) -> Result<Observation, EnvError> {
        if render == Render::Yes {
            let mut copy = self.copies.remove(&env).expect(OWN);
            let drawn = self
                .renderer()
                .and_then(|renderer| renderer.draw(&mut copy.data));
            self.copies.insert(env, copy);
            observation.video = drawn?;
        }
        Ok(observation)
    }

    /// Returns the renderer of this thread, which is opened at the first call.
    fn renderer(&mut self) -> Result<&mut Renderer, EnvError> {
        match &mut self.renderer {
            Some(renderer) => Ok(renderer),
            none => Ok(none.insert(Renderer::new(&self.model, &self.egl)?)),
        }
    }

    /// Records what this thread simulates, for the message if MuJoCo ends the process.
    fn say(&self, env: EnvIndex) {
        let copy = &self.copies[&env];
        DOING.set(Some(CurrentWork {
            task: self.model.settings.task.name,
            env: env.0,
            seed: copy.seed,
            step: copy.step,
        }));
    }
}
