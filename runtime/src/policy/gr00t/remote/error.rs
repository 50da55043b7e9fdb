//! What is wrong with a request to a GR00T server, or with its answer.

use wire::WireError;

/// Maximum number of steps that a checkpoint may look back, and of steps at which it may use
/// pictures and states. GR00T N1.7 uses two, fifteen steps apart. This many observations of each
/// environment are kept, and sent with each request.
pub(super) const LONGEST_LOOK: i64 = 128;

/// The reason why a request cannot be made, or its answer cannot be used. The texts about answers
/// follow the name of the server.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The server could not even pack its error.
    #[error("it answers ERROR")]
    Raw,
    /// The answer is not msgpack.
    #[error("its answer cannot be read: {0}")]
    Unreadable(#[from] WireError),
    /// The server reports an error.
    #[error("it answers with the error `{text}`")]
    Reported {
        /// The server's message.
        text: String,
    },
    /// The server reports an error and does not say which.
    #[error("it answers with an error without a message")]
    NoWords,
    /// The modality configuration has no action keys or no action steps.
    #[error("its modality configuration has no actions")]
    NoActions,
    /// The modality configuration looks back further than observations are kept.
    #[error("its modality configuration looks back more than {LONGEST_LOOK} steps in `{name}`")]
    LooksBack {
        /// Name of the modality.
        name: String,
    },
    /// The modality configuration lacks a field.
    #[error("its modality configuration has no `{name}.{field}`")]
    NoField {
        /// Name of the modality.
        name: String,
        /// Name of the field.
        field: &'static str,
    },
    /// The rows of a request have pictures of different sizes.
    #[error("pictures of {key} have different sizes, one request takes pictures of one size")]
    PictureSizes {
        /// The video key.
        key: String,
    },
    /// The rows of a request have states of different lengths.
    #[error("state {key} has different lengths")]
    StateLengths {
        /// The state key.
        key: String,
    },
    /// The answer to `get_action` is not `[actions, info]`.
    #[error("its answer is not a list of actions and info")]
    NoList,
    /// The answer lacks an action key.
    #[error("its answer has no actions {key}")]
    NoKey {
        /// The action key.
        key: String,
    },
    /// An array of actions does not have three axes.
    #[error("actions {key} are {found:?}, expected [rows, horizon, width]")]
    Axes {
        /// The action key.
        key: String,
        /// Shape of the array.
        found: Vec<usize>,
    },
    /// An array of actions has other rows, too few steps, or no width.
    #[error("actions {key} are {found:?}, expected [{rows}, {horizon} or more, 1 or more]")]
    Shape {
        /// The action key.
        key: String,
        /// Shape of the array.
        found: Vec<usize>,
        /// Number of rows of the request.
        rows: usize,
        /// Number of steps that are used.
        horizon: usize,
    },
}
