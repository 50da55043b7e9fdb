//! The errors of policies.

use std::path::PathBuf;

use jobs::refusal::Refusal;
use tch::TchError;

use crate::policy::python::WorkerError;

/// The errors of a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The policy type is not known.
    #[error("unknown policy_type `{name}`: expected one of {known}")]
    Unknown {
        /// The requested type.
        name: String,
        /// The known types, separated by commas.
        known: String,
    },
    /// A setting has a wrong name or value, or is missing.
    #[error(transparent)]
    Setting(#[from] Refusal),
    /// A file that the policy is made from cannot be used.
    #[error("`{}`: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
    },
    /// A checkpoint cannot be used.
    #[error("{0}")]
    Checkpoint(String),
    /// The inference of some rows failed, or of all.
    #[error(transparent)]
    Inference(#[from] InferenceError),
    /// The policy answers no row any more.
    #[error(
        "policy `{policy}` has answered none of {rows} observations in succession, at last: {reason}"
    )]
    Failing {
        /// Type of the policy.
        policy: String,
        /// Number of rows that have failed since the last one that was answered.
        rows: usize,
        /// Why the last one failed.
        reason: String,
    },
    /// The process has lost its GPU; only a new process can use it again.
    #[error("{0}")]
    DeviceLost(String),
    /// The worker of a Python policy cannot be started, or failed too often.
    #[error("policy `{policy}`: {err}")]
    Worker {
        /// Name of the policy: file or module, and factory.
        policy: String,
        /// What happened.
        #[source]
        err: WorkerError,
    },
    /// A policy server is unreachable, or cannot be used at all.
    #[error("policy server {server}: {reason}")]
    Remote {
        /// Address of the server.
        server: String,
        /// The request and what happened to it.
        reason: String,
    },
}

/// The reason why an inference failed.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    /// The observation lacks a picture or a state that the policy reads.
    #[error("the observation has no {what} {name}")]
    Missing {
        /// `picture of camera` or `state`.
        what: &'static str,
        /// Name of the camera or of the state.
        name: String,
    },
    /// A picture or a state has another size than in the first observation.
    #[error("the observation has no {what} {name} of the size it began with")]
    Resized {
        /// `picture of camera` or `state`.
        what: &'static str,
        /// Name of the camera or of the state.
        name: String,
    },
    /// A state has another length than the scripted expert reads.
    #[error("policy `scripted`: state `{key}` has {found} values, expected {wanted}")]
    StateLength {
        /// Name of the state.
        key: String,
        /// Number of its values.
        found: usize,
        /// The number that is needed.
        wanted: usize,
    },
    /// Nothing says what is to be done.
    #[error("neither job nor environment has an instruction; set language_instruction")]
    NoInstruction,
    /// The inference of a row failed.
    #[error("{reason}")]
    Row {
        /// What the policy said.
        reason: String,
    },
    /// An action is NaN or infinite.
    #[error("policy `{policy}` gave {value} as `{name}` of action {step}")]
    NotFinite {
        /// Type of the policy.
        policy: String,
        /// The number.
        value: f32,
        /// Name of the component of the action.
        name: String,
        /// Index of the action in its chunk.
        step: usize,
    },
    /// The network gave no result for a row.
    #[error("the row was not inferred")]
    NotInferred,
    /// An observation, the inputs of the network or its output do not fit the checkpoint.
    #[error(transparent)]
    Input(#[from] Refusal),
    /// libtorch refuses a tensor.
    #[error(transparent)]
    Tensor(#[from] TchError),
    /// libtorch failed.
    #[error("{reason}")]
    Torch {
        /// libtorch's message.
        reason: String,
    },
    /// The tokenizer of an instruction fails.
    #[error("{reason}")]
    Tokenizer {
        /// The tokenizer's message.
        reason: String,
    },
    /// Not even one row fits into the memory of the device.
    #[error(
        "out of memory: not even one row fits into an inference ({shortage}); fewer num_envs leave \
         more for the policy, and so does a higher --gpu-memory if it is given (--num-envs N is \
         for all jobs; `rrun fit` shows which N fits)"
    )]
    OutOfMemory {
        /// What libtorch says about the memory.
        shortage: String,
    },
    /// A policy server rejects a request, or its answer cannot be used.
    #[error("policy server {server}: {reason}")]
    Refused {
        /// Address of the server.
        server: String,
        /// The request and what the server said.
        reason: String,
    },
    /// The worker of a Python policy gave no actions for a row.
    #[error("policy `{policy}`: {err}")]
    Worker {
        /// Name of the policy: file or module, and factory.
        policy: String,
        /// What happened.
        #[source]
        err: WorkerError,
    },
    /// The thread that runs the policy has ended.
    #[error("the policy's thread has ended")]
    ThreadEnded,
    /// Chunks were asked for before a policy was made.
    #[error("no policy was made")]
    NoPolicy,
    /// The policy gave another number of chunks than of rows, or actions of another length.
    #[error("policy `{policy}` gave {found} chunks for {rows} rows of {dim} actions")]
    Chunks {
        /// Type of the policy.
        policy: String,
        /// Number of chunks.
        found: usize,
        /// Number of rows.
        rows: usize,
        /// Number of components of an action.
        dim: usize,
    },
}

impl PolicyError {
    /// Returns whether no later call of the policy can succeed in this process.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::DeviceLost(_)
                | Self::Worker { .. }
                | Self::Inference(InferenceError::ThreadEnded)
        )
    }
}

impl InferenceError {
    /// Returns the error about a camera that an observation does not show.
    pub(crate) fn no_picture(camera: &str) -> Self {
        Self::Missing {
            what: "picture of camera",
            name: camera.to_owned(),
        }
    }

    /// Returns the error about a state that an observation does not have.
    pub(crate) fn no_state(name: &str) -> Self {
        Self::Missing {
            what: "state",
            name: name.to_owned(),
        }
    }
}
