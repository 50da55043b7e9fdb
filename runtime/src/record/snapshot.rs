//! The parts of an observation that the recorder thread needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::env::{Frame, Observation};

/// Selects the parts of an observation that the plan needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// State vectors and simulator state, for the dataset.
    pub(super) state: bool,
    /// Images, for the dataset or a video.
    pub(super) pictures: bool,
}

/// The selected parts of one observation. Images are shared, not copied.
#[derive(Clone, Debug, Default)]
pub(super) struct StepSnapshot {
    /// State vectors by name.
    pub(super) state: BTreeMap<String, Vec<f32>>,
    /// Simulator state by recorder path.
    pub(super) sim_state: BTreeMap<String, Vec<f32>>,
    /// Images by camera.
    pub(super) video: Arc<BTreeMap<String, Frame>>,
}

impl StepSnapshot {
    /// Copies the selected parts.
    pub(super) fn of(observation: &Observation, wanted: Selection) -> Self {
        let mut snapshot = Self::default();
        if wanted.state {
            snapshot.state.clone_from(&observation.state);
            snapshot.sim_state.clone_from(&observation.sim_state);
        }
        if wanted.pictures {
            snapshot.video = Arc::new(observation.video.clone());
        }
        snapshot
    }
}
