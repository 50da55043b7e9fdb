//! What the settings of every policy can do once they are read.

use std::path::PathBuf;

use crate::env::EnvSpec;
use crate::policy::remote::Lifeline;
use crate::policy::{Checkpoints, Policy, PolicyError};

/// What a policy is made with, beside its settings.
pub(crate) struct MakeContext<'a> {
    /// The environment in which it acts.
    pub(crate) env: &'a EnvSpec,
    /// The checkpoints that this process has loaded, and its device.
    pub(crate) models: &'a mut Checkpoints,
    /// Reports waiting for servers, and ends it.
    pub(crate) lifeline: &'a Lifeline,
}

/// The checked settings of a policy, from which it is made.
pub(crate) trait PolicySettings {
    /// Checks what only this machine can tell, such as files that must exist.
    ///
    /// # Errors
    /// Refuses the first setting that cannot be.
    fn check(&self) -> Result<(), PolicyError> {
        Ok(())
    }

    /// Returns how many actions of a chunk are executed; `None` means all of them, as for a policy
    /// that cuts its chunks itself.
    fn chunk_length(&self) -> Option<usize> {
        None
    }

    /// Returns the files and folders that the policy is made from, whose checksums go to the
    /// journal.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Makes the policy.
    ///
    /// # Errors
    /// Fails for an environment that lacks what the policy needs, for a checkpoint that cannot be
    /// loaded, and for an unreachable server.
    fn make(self: Box<Self>, context: MakeContext<'_>) -> Result<Box<dyn Policy>, PolicyError>;
}

/// Checks that files exist.
///
/// # Errors
/// Returns an error for the first that does not.
pub(crate) fn files_exist(paths: &[PathBuf]) -> Result<(), PolicyError> {
    match paths.iter().find(|path| !path.is_file()) {
        Some(path) => Err(PolicyError::file(path, "there is no such file")),
        None => Ok(()),
    }
}
