//! The reasons why an observation of vla-eval is refused.

/// The reason why an observation of vla-eval does not fit the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObservationError {
    /// There are other images than the checkpoint has views.
    #[error("the observation has {found}, expected {wanted}, or as many images in this order")]
    Images {
        /// The names of those that were sent, as a clause.
        found: String,
        /// Names of the views.
        wanted: String,
    },
    /// An image cannot be used.
    #[error("image `{name}`: {reason}")]
    Image {
        /// Name of the view.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An image or a state has another size than in an earlier step of the episode.
    #[error("`{name}` has another size than in an earlier step of the episode")]
    Resized {
        /// Name of the view or of the state.
        name: String,
    },
    /// The state cannot be divided into those of the checkpoint.
    #[error("the state has {found} values, expected {wanted}")]
    State {
        /// Number of its values.
        found: usize,
        /// The states of the checkpoint, with their lengths.
        wanted: String,
    },
}
