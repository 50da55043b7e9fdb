//! Environments: what a policy acts in.
//!
//! A [`VectorEnv`] holds `num_envs` copies of one simulator. The eval loop resets a copy with the seed of an episode,
//! steps the copies that have an action, and never looks inside. Words follow gymnasium: observation, reward,
//! terminated, truncated.
//!
//! ```text
//! loop ── send(Reset | Step) ──► VectorEnv: threads or processes
//!      ◄─────── Answers ────────────┘        Lockstep: the two in one call, for tools and tests
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

mod answers;
mod display;
pub mod egl;
mod feedback;
mod lockstep;
pub mod mujoco;
pub mod python;
mod registry;
mod shm;

pub use answers::{Answer, Answers, Command};
pub use egl::Gpu;
pub use feedback::{Discrete, Feedback};
pub use lockstep::Lockstep;
pub use registry::{Made, Place, check, make};

/// Index of one copy inside a [`VectorEnv`], `0..num_envs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvIndex(pub usize);

/// One camera picture: `[height, width, 3]`, `u8`, RGB, row 0 on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// `height * width * 3` bytes, shared with recorder and policy without a copy.
    pub rgb: Bytes,
}

/// What one environment shows before a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// State vectors by name (`joint_position` `[7]`, …), SI units.
    pub state: BTreeMap<String, Vec<f32>>,
    /// Pictures by camera name; empty when the step was not rendered.
    pub video: BTreeMap<String, Frame>,
    /// The task in words.
    pub language: Arc<str>,
    /// Full simulator state by Isaac Lab's recorder path (`articulation/robot/joint_position`, …).
    pub sim_state: BTreeMap<String, Vec<f32>>,
    /// What the environment says beside it, if it says anything.
    pub feedback: Option<Arc<Feedback>>,
}

impl Observation {
    /// Shows nothing: what there is of an episode that could not begin.
    pub fn empty() -> Self {
        Self {
            state: BTreeMap::new(),
            video: BTreeMap::new(),
            language: Arc::from(""),
            sim_state: BTreeMap::new(),
            feedback: None,
        }
    }
}

/// Size of one camera's pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraSpec {
    /// Name, the key in [`Observation::video`].
    pub name: String,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

/// The action vector: one name and one range per dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionSpec {
    /// Dimension names, in order.
    pub names: Vec<String>,
    /// Lowest accepted value of each dimension.
    pub low: Vec<f32>,
    /// Highest accepted value of each dimension.
    pub high: Vec<f32>,
    /// Distance of neighbouring values of each dimension, from the lowest on; 0 where every number is one (a float), as
    /// everywhere if the list is empty.
    pub grid: Vec<f32>,
}

impl ActionSpec {
    /// See [`ActionSpec::grid`].
    pub fn grid_of(&self, dimension: usize) -> f32 {
        self.grid.get(dimension).copied().unwrap_or(0.0)
    }
}

/// What does not change while a [`VectorEnv`] lives.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvSpec {
    /// The name it was made by.
    pub name: String,
    /// Keys and lengths of [`Observation::state`].
    pub state: Vec<(String, usize)>,
    /// Cameras, in the order in which a video shows them from left to right.
    pub cameras: Vec<CameraSpec>,
    /// The action vector.
    pub action: ActionSpec,
    /// The action is one of a list, and the vector has its number alone.
    pub discrete: Option<Discrete>,
    /// Steps a second, also the frame rate of videos.
    pub control_hz: u32,
    /// Steps after which an episode is truncated.
    pub max_episode_steps: u32,
    /// The task in words, unless the job says otherwise.
    pub language: String,
    /// An episode is over when the success predicate holds, whether or not the environment says so; else it goes on
    /// until the environment ends it, and the success is remembered.
    pub ends_on_success: bool,
    /// Physics steps in one step.
    pub decimation: u32,
    /// Seconds of one physics step.
    pub sim_dt: f64,
}

/// What one step led to.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// After the step.
    pub observation: Observation,
    /// What the environment took: the action after transforms, rounding and clamping.
    pub processed_action: Vec<f32>,
    /// Before the clamping, if there is any, a number of it was beyond the range of the environment.
    pub out_of_bounds: bool,
    /// Reward of this step.
    pub reward: f32,
    /// The success predicate holds (in the built-in tasks, has held long enough).
    pub success: bool,
    /// The task ended (success, or a state from which it cannot go on).
    pub terminated: bool,
    /// The time limit ended it.
    pub truncated: bool,
}

/// Whether pictures are made at a reset or step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Render {
    /// Fill [`Observation::video`].
    Yes,
    /// Leave it empty.
    No,
}

/// What can go wrong in a simulator.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// The name is not known.
    #[error("unknown environment `{name}`: known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is, comma separated.
        known: String,
    },
    /// An environment argument has a wrong name, type or value.
    #[error("`arena_env_args.{field}` is {found}, {wanted}")]
    Argument {
        /// The argument.
        field: String,
        /// Its value as JSON.
        found: String,
        /// What is accepted, as a clause: "a number above 0 is needed".
        wanted: String,
    },
    /// This episode cannot go on; the environment can be reset.
    #[error("environment {}: {reason}", env.0)]
    Episode {
        /// Which copy.
        env: EnvIndex,
        /// What happened, with step and values.
        reason: String,
    },
    /// The process of this copy is gone; its episode can be run again, the next reset starts another process.
    #[error("environment {}: {reason}", env.0)]
    Lost {
        /// Which copy.
        env: EnvIndex,
        /// What happened, with step and last call.
        reason: String,
        /// The last lines that the process wrote to its standard error.
        stderr: Vec<String>,
    },
    /// The simulator or its renderer cannot be made.
    #[error("{0}")]
    Setup(String),
}

/// `num_envs` copies of one simulator, each at work on its own.
pub trait VectorEnv {
    /// What does not change.
    fn spec(&self) -> &EnvSpec;

    /// Number of copies.
    fn num_envs(&self) -> usize;

    /// Hands work to copies and returns at once; copies that are not named stand still. Each command is answered once,
    /// through the [`Answers`] that the environment was made with, in any order. A copy has one command at a time.
    ///
    /// The initial state of an episode is a function of the seed alone: not of the copy, of `num_envs`, or of what the
    /// copy did before.
    fn send(&mut self, work: Vec<(EnvIndex, Command)>, render: Render);

    /// Opens what draws pictures, before the first is asked for. The answer is what the user should know of it, once.
    ///
    /// # Errors
    /// [`EnvError::Setup`] if nothing can be drawn; it would be the answer to the first [`Render::Yes`].
    fn open_renderers(&mut self) -> Result<Vec<String>, EnvError>;
}
