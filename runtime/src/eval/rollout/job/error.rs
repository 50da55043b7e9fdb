//! Why a job did not run to its end.

use std::io;
use std::path::PathBuf;

use jobs::refusal::Refusal;

use crate::env::EnvError;
use crate::eval::lease::LeaseError;
use crate::policy::PolicyError;
use crate::record::RecordError;

/// The reason why a job did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The simulator failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A file that decides the outcomes was changed while the run was under way.
    #[error(
        "{0}, was changed since the run was begun; put it back and repeat the command, or start its \
         jobs over with --accept-changed-jobs"
    )]
    Inputs(String),
    /// A package that decides the outcomes has another version than before.
    #[error(
        "packages have other versions than when the run was begun ({0}); install those again, or \
         choose another --output"
    )]
    Versions(String),
    /// Writing the dataset or a video failed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The recorder lost an episode.
    #[error("episode {episode} is not recorded: {reason}")]
    Unrecorded {
        /// Episode number within the job.
        episode: u64,
        /// The recorder's reason.
        reason: String,
    },
    /// Writing to the journal failed.
    #[error("cannot write `{}`: {err}", path.display())]
    Journal {
        /// Path of the journal.
        path: PathBuf,
        /// The I/O error.
        #[source]
        err: io::Error,
    },
    /// The journals cannot be read.
    #[error("cannot read the journals in `{}`: {err}", folder.display())]
    Journals {
        /// Folder of the journals.
        folder: PathBuf,
        /// The I/O error.
        #[source]
        err: io::Error,
    },
    /// Neither the job nor the policy says when it ends.
    #[error(
        "neither num_episodes nor num_steps is given, and policy `{policy}` has no length of its \
         own; use --num-steps"
    )]
    NoLength {
        /// Policy type of the job.
        policy: String,
    },
    /// The job cannot have its latency.
    #[error(transparent)]
    Latency(#[from] Refusal),
    /// The store of the leases failed.
    #[error(transparent)]
    Leases(#[from] LeaseError),
    /// The job was a single lease, and another rank has taken it over.
    #[error("another rank has taken it over, because this one made no progress for too long")]
    TakenOver,
    /// Another rank has taken over an episode that is in the dataset and not in the journal.
    #[error("another rank has taken over episode {episode}, which this one has recorded")]
    Overtaken {
        /// Episode number within the job.
        episode: u64,
    },
    /// A signal asked the rank to stop.
    #[error("stopped by a signal")]
    Stopped,
}
