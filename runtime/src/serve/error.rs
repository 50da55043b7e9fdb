//! The reasons why a request is answered with an error.

use crate::policy::PolicyError;
use crate::serve::batcher::QueueRefusal;
use crate::serve::decoder::NotDecoded;
use crate::serve::limits::LimitExceeded;
use crate::serve::stats::Stats;
use crate::serve::vla_eval::error::ObservationError;
use jobs::refusal::Refusal;

/// The reason why a request is answered with an error. The text goes to the client, and is that of
/// the reference where it has one.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The message cannot be decoded.
    #[error("{reason}")]
    Unreadable {
        /// What is wrong with it.
        reason: String,
    },
    /// The request exceeds a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The server was too busy to decode the request, or failed to.
    #[error(transparent)]
    NotDecoded(#[from] NotDecoded),
    /// The queue is full, or the server stops.
    #[error(transparent)]
    Refused(#[from] QueueRefusal),
    /// The client has not sent the token.
    #[error("Unauthorized: Invalid API token")]
    Unauthorized,
    /// A ZeroMQ message has several parts, or none.
    #[error("found a message of {found} parts, expected one part")]
    Parts {
        /// Number of parts.
        found: usize,
    },
    /// The request is not a map.
    #[error("'{found}' object has no attribute 'get'")]
    NotAMap {
        /// Its type in Python.
        found: &'static str,
    },
    /// No endpoint has this name.
    #[error("Unknown endpoint: {endpoint}")]
    UnknownEndpoint {
        /// The name, shortened.
        endpoint: String,
    },
    /// The server ignores requests to stop.
    #[error("this server is not ended by clients (--ignore-kill)")]
    KillIgnored,
    /// The arguments of a method are not a map.
    #[error("BasePolicy.{method}() argument after ** must be a mapping, not {found}")]
    NoMapping {
        /// Name of the method.
        method: &'static str,
        /// Type of the arguments in Python.
        found: &'static str,
    },
    /// A method has no such argument.
    #[error("BasePolicy.{method}() got an unexpected keyword argument '{argument}'")]
    UnknownArgument {
        /// Name of the method.
        method: &'static str,
        /// Name of the argument.
        argument: String,
    },
    /// A request for actions has no observation.
    #[error("BasePolicy.get_action() missing 1 required positional argument: 'observation'")]
    NoObservation,
    /// The observation does not fit the checkpoint.
    #[error(transparent)]
    Observation(#[from] Refusal),
    /// An observation of vla-eval does not fit the checkpoint.
    #[error(transparent)]
    VlaEval(#[from] ObservationError),
    /// The seed of an episode is not a non-negative integer.
    #[error("options 'seed' must be a whole number that is not negative")]
    Seed,
    /// What shall reset the episode is neither a flag nor a map.
    #[error("'reset' must be true, false or {{'seed': a whole number that is not negative}}")]
    Reset,
    /// A client chooses the noise of a policy that has none.
    #[error(
        "options 'noise': policy {policy} has no noise to choose; `reset` with a 'seed' determines \
         its actions"
    )]
    NoNoise {
        /// Name of the policy.
        policy: &'static str,
    },
    /// The seeds of the noise are not one for each row.
    #[error("options 'noise_seeds' must be a list of {rows} whole numbers, one a row")]
    NoiseSeeds {
        /// Number of rows of the request.
        rows: usize,
    },
    /// The noise has another type or shape.
    #[error("options 'noise' must be a numpy array of shape ({rows}, {steps}, {width})")]
    Noise {
        /// Number of rows of the request.
        rows: usize,
        /// Number of steps of the noise.
        steps: usize,
        /// Number of values in a step.
        width: usize,
    },
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy's thread has ended.
    #[error("the policy's thread has ended")]
    PolicyGone,
}

impl RequestError {
    /// Counts the error among those for which a request reached no policy.
    pub fn count(&self, stats: &Stats) {
        match self {
            Self::Unreadable { .. } => stats.unreadable(),
            Self::Limit(_) => stats.limited(),
            _ => {}
        }
    }
}
