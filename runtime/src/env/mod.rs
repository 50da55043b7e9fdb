//! Environments: the simulators in which a policy acts.
//!
//! A [`VectorEnv`] holds `num_envs` copies of one simulator. The evaluation loop resets a copy with
//! the seed of an episode, and steps the copies that have an action. The terms are gymnasium's:
//! observation, reward, terminated, truncated.
//!
//! ```text
//! loop ── send(Reset | Step) ──► VectorEnv: threads or processes
//!      ◄─ ready, take: answers ─────┘
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use bytes::Bytes;
use jobs::interface::Interface;
use jobs::journal::Blame;
use jobs::refusal::Refusal;
use serde::Deserialize;

mod display;
pub mod egl;
pub mod mujoco;
mod python;
mod registry;
#[cfg(test)]
pub mod tests;

pub use egl::Gpu;
pub use jobs::interface::{ActionSpec, CameraSpec};
pub use registry::{EnvPlacement, NewEnv, check, make};

/// Index of one copy inside a [`VectorEnv`], `0..num_envs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvIndex(pub usize);

/// One camera image: `[height, width, 3]`, `u8`, RGB, with row 0 at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Height in pixels.
    pub height: u32,
    /// Width in pixels.
    pub width: u32,
    /// `height * width * 3` bytes, shared by recorder and policy.
    pub rgb: Pixels,
}

impl Frame {
    /// Returns height and width.
    pub fn size(&self) -> ImageSize {
        ImageSize {
            height: self.height,
            width: self.width,
        }
    }
}

/// Height and width of an image in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Height in pixels.
    pub height: u32,
    /// Width in pixels.
    pub width: u32,
}

impl ImageSize {
    /// Returns the number of bytes of an RGB image of this size.
    pub fn rgb_bytes(self) -> usize {
        self.height as usize * self.width as usize * 3
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.height, self.width)
    }
}

/// The observation of one environment; the default is without contents, for an episode that could
/// not start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// State vectors by name (`joint_position` `[7]`, …), SI units.
    pub state: BTreeMap<String, Vec<f32>>,
    /// Images by camera name; empty if the step was not rendered.
    pub video: BTreeMap<String, Frame>,
    /// The task instruction.
    pub language: Arc<str>,
    /// The full simulator state by Isaac Lab's recorder path (`articulation/robot/joint_position`,
    /// …).
    pub sim_state: BTreeMap<String, Vec<f32>>,
    /// Feedback beside the observation, if the environment has any.
    pub feedback: Option<Arc<Feedback>>,
}

/// Feedback of an environment about the last action, and about the available actions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Feedback {
    /// `info["last_action_success"]`: whether the last action had its intended effect.
    pub last_action_success: Option<bool>,
    /// `info["env_feedback"]`: the same as text.
    pub env_feedback: Option<String>,
    /// `info["task_progress"]`, from 0 to 1.
    pub task_progress: Option<f64>,
    /// Names of the actions in this episode, by action number; sent with the first observation.
    pub action_names: Option<Vec<String>>,
}

impl Feedback {
    /// Returns whether there is no feedback.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// gymnasium's `Discrete`: one of `count` actions, numbered from `start`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Discrete {
    /// Number of the first action.
    pub start: i64,
    /// Number of actions.
    pub count: usize,
    /// Names of the actions, if the environment has them (`language_skill_set` or `action_names`).
    /// An episode may have different names.
    #[serde(default)]
    pub names: Vec<String>,
}

/// The properties of a [`VectorEnv`] that do not change.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvSpec {
    /// What policies see of it.
    pub interface: Interface,
    /// The discrete action space, if there is one; then the action vector has one number.
    pub discrete: Option<Discrete>,
    /// True if the control frequency is a default, because the environment does not say it.
    pub is_control_hz_assumed: bool,
    /// True if a success ends the episode, whether or not the environment terminates it. Otherwise
    /// the episode goes on until the environment ends it, and the success is remembered.
    pub ends_on_success: bool,
    /// Number of physics steps per control step.
    pub decimation: u32,
    /// Duration of one physics step in seconds.
    pub sim_dt: f64,
}

impl EnvSpec {
    /// Returns the spec of an environment of which nothing else is known. One control step counts
    /// as one physics step, because nothing else is visible from outside.
    pub fn seen(interface: Interface) -> Self {
        Self {
            discrete: None,
            is_control_hz_assumed: false,
            ends_on_success: false,
            decimation: 1,
            sim_dt: 1.0 / f64::from(interface.control_hz),
            interface,
        }
    }
}

/// An environment is an interface, and what only its simulation has beside it.
impl Deref for EnvSpec {
    type Target = Interface;

    fn deref(&self) -> &Interface {
        &self.interface
    }
}

impl DerefMut for EnvSpec {
    fn deref_mut(&mut self) -> &mut Interface {
        &mut self.interface
    }
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Observation after the step.
    pub observation: Observation,
    /// The action that the environment took, after transforms, rounding and clamping.
    pub processed_action: Vec<f32>,
    /// True if the action had a value outside the environment's range, before any clamping.
    pub out_of_bounds: bool,
    /// Reward of this step.
    pub reward: f32,
    /// The success predicate holds (in the built-in tasks, it has held long enough).
    pub success: bool,
    /// The task ended: success, or a state from which it cannot continue.
    pub terminated: bool,
    /// The time limit ended the episode.
    pub truncated: bool,
}

/// Whether a reset or step renders images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Render {
    /// Render images into [`Observation::video`].
    Yes,
    /// Leave [`Observation::video`] empty.
    No,
}

/// An error of a simulator.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// The name of the environment or one of its arguments is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This episode cannot continue; the environment can be reset.
    #[error("environment {}: {reason}", env.0)]
    Episode {
        /// The copy of the environment.
        env: EnvIndex,
        /// What happened, with step and values.
        reason: String,
    },
    /// The process of this copy is gone. Its episode can be run again; the next reset starts
    /// another process.
    #[error("environment {}: {reason}", env.0)]
    Lost {
        /// The copy of the environment.
        env: EnvIndex,
        /// Who is to blame.
        blame: Blame,
        /// What happened, with step and last call.
        reason: String,
        /// The last lines of the process's stderr.
        stderr: Vec<String>,
    },
    /// The simulator or its renderer cannot be created.
    #[error("{0}")]
    Setup(String),
}

/// A command to one copy of an environment.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Starts an episode.
    Reset {
        /// Seed of all randomness in the episode.
        seed: u64,
        /// Number of the episode in the job, for simulators with a list of initial states.
        episode: u64,
        /// Whether images are rendered.
        render: Render,
    },
    /// Takes one step.
    Step {
        /// The action, `[action.names.len()]`, clamped to its range.
        action: Vec<f32>,
        /// Whether images are rendered.
        render: Render,
    },
}

/// The answer to a command.
#[derive(Debug)]
pub enum Answer {
    /// The first observation of an episode.
    Reset(Result<Observation, EnvError>),
    /// The result of a step.
    Step(Result<Step, EnvError>),
}

impl Answer {
    /// Returns the answer to a command that failed with `err`.
    pub fn refuse(command: &Command, err: EnvError) -> Self {
        match command {
            Command::Reset { .. } => Self::Reset(Err(err)),
            Command::Step { .. } => Self::Step(Err(err)),
        }
    }
}

/// Answers of copies, in any order.
pub type AnswerBatch = Vec<(EnvIndex, Answer)>;

/// `num_envs` copies of one simulator that work independently of each other.
pub trait VectorEnv {
    /// Returns the properties that do not change.
    fn spec(&self) -> &EnvSpec;

    /// Returns the number of copies.
    fn num_envs(&self) -> usize;

    /// Sends commands to copies and returns at once; copies without a command do nothing,
    /// except as [`VectorEnv::steps_together`] says. Each command is answered once, in any
    /// order. A copy has at most one command at a time.
    ///
    /// The initial state of an episode is a function of the seed alone: not of the copy, of
    /// `num_envs`, or of what the copy did before.
    fn send(&mut self, work: Vec<(EnvIndex, Command)>);

    /// Returns the descriptor that is readable when [`VectorEnv::take`] has something to do.
    fn ready(&self) -> BorrowedFd<'_>;

    /// Returns the time at which [`VectorEnv::take`] has to be called anyway.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Takes the answers that have come. Never blocks.
    fn take(&mut self) -> AnswerBatch;

    /// Returns the copies that share a process with this one, itself included: what ends the process
    /// ends the episodes of them all.
    fn company(&self, env: EnvIndex) -> Range<usize> {
        env.0..env.0 + 1
    }

    /// Returns whether the copies of a process only step together. Then a copy that gets no action
    /// while another of its process steps takes one that nobody chose.
    fn steps_together(&self) -> bool {
        false
    }

    /// Opens the renderers before the first image is requested. Returns messages for the user, to
    /// be shown once.
    ///
    /// # Errors
    /// Returns [`EnvError::Setup`] if nothing can be rendered; the first [`Render::Yes`] would
    /// return the same error.
    fn open_renderers(&mut self) -> Result<Vec<String>, EnvError>;
}

type Copy = Box<dyn FnOnce() -> Bytes + Send>;

/// The bytes of an image. Clones share them.
#[derive(Clone)]
pub struct Pixels {
    len: usize,
    bytes: Arc<LazyLock<Bytes, Copy>>,
}

impl Pixels {
    /// Returns `len` bytes that are copied by the thread that first looks at them.
    fn copied(len: usize, copy: impl FnOnce() -> Bytes + Send + 'static) -> Self {
        let bytes = Arc::new(LazyLock::new(Box::new(copy) as Copy));
        Self { len, bytes }
    }

    /// Returns the number of bytes, without a look at them.
    #[expect(clippy::len_without_is_empty, reason = "an image has pixels")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns whether there is no clone of it.
    fn is_alone(&self) -> bool {
        Arc::strong_count(&self.bytes) == 1
    }
}

impl Deref for Pixels {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B: Into<Bytes>> From<B> for Pixels {
    fn from(bytes: B) -> Self {
        let bytes = bytes.into();
        Self::copied(bytes.len(), move || bytes)
    }
}

impl PartialEq for Pixels {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Pixels {}

impl fmt::Debug for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}
