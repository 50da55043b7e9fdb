//! What a rank refuses before it starts anything; a retry would fail in the same way.

use jobs::known;
use jobs::plan::RunFolderError;
use jobs::rank_env::RankEnvError;
use jobs::refusal::Refusal;

use crate::device::DeviceError;
use crate::eval::rollout::job::error::JobError;
use c10d::DistError;

/// The reason why a rank does not start.
#[derive(Debug, thiserror::Error)]
pub enum SetupRefusal {
    /// The variables of the launcher are incomplete.
    #[error(transparent)]
    Env(#[from] RankEnvError),
    /// The command line names what cannot be read or does not fit together.
    #[error(transparent)]
    Setup(#[from] Refusal),
    /// `--quick` under another launcher, which does not replace the folder of an earlier quick run.
    #[error("--quick needs the launcher `rrun`; leave it out under another one")]
    Quick,
    /// The jobs file has names that nobody knows.
    #[error("`{file}`: {err}")]
    Unknown {
        /// The jobs file.
        file: String,
        /// The first such name.
        #[source]
        err: Box<known::JobRefusal>,
    },
    /// A job has arguments with which it cannot run.
    #[error("`{file}`: job {index} ({name}): {err}")]
    Job {
        /// The jobs file.
        file: String,
        /// Index of the job in the file.
        index: usize,
        /// Name of the job.
        name: String,
        /// What its environment or its policy says.
        #[source]
        err: Box<JobError>,
    },
    /// The placement is for another number of ranks.
    #[error(
        "the placement has {found} rollout worker(s), each of which is a rank, but WORLD_SIZE is \
         {world_size}"
    )]
    WorldSize {
        /// Number of ranks in the placement.
        found: usize,
        /// Number of ranks of the launch.
        world_size: usize,
    },
    /// The run folder belongs to another run or cannot be used.
    #[error(transparent)]
    RunFolder(#[from] RunFolderError),
    /// The requested device is not available.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The GPU's driver does not answer.
    #[error(transparent)]
    Driver(#[from] DistError),
}
