//! The reasons for refusing a processor's files or an observation: what a [`LoadError`] says about a
//! file, and what only the processor can say.

use crate::LoadError;

/// The reason why a processor's files or an observation are refused.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    /// A file of the processor cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The name is not an embodiment tag of the checkpoint.
    #[error("unknown embodiment tag `{tag}`: this checkpoint has {known}")]
    Tag {
        /// The requested tag.
        tag: String,
        /// The tags of the checkpoint, separated by commas.
        known: String,
    },
    /// An observation, an instruction or the network's output does not fit the checkpoint.
    #[error("{what} is {found}, {wanted}")]
    Input {
        /// The affected input, such as "state `eef_9d`".
        what: String,
        /// The given value, such as "3 values wide".
        found: String,
        /// The accepted values, as a clause, such as "expected 9".
        wanted: String,
    },
}

impl ProcessorError {
    pub(crate) fn input(
        what: impl Into<String>,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Self {
        Self::Input {
            what: what.into(),
            found: found.into(),
            wanted: wanted.into(),
        }
    }
}
