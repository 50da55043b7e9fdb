//! The earlier observations of a client's episode, for checkpoints whose inputs include them.

use std::collections::VecDeque;

use models::gr00t::processor::Modalities;
use wire::Value;

use crate::serve::vla_eval::picture;

/// The last observations of an episode, as they were sent.
#[derive(Debug)]
pub(super) struct PastObservations {
    video: Vec<i64>,
    state: Vec<i64>,
    /// How many observations are kept; 0 if only the current one counts.
    most: usize,
    seen: VecDeque<(Value, usize)>,
    bytes: usize,
}

/// The observations that one inference needs.
#[derive(Clone, Debug)]
pub(super) struct ObservationSteps {
    /// The current observation.
    pub now: Value,
    /// Those whose pictures are needed, in order.
    pub video: Vec<Value>,
    /// Those whose states are needed, in order.
    pub state: Vec<Value>,
}

impl PastObservations {
    /// Keeps as many observations as the checkpoint looks back.
    pub(super) fn new(modalities: &Modalities) -> Self {
        let (video, state) = (&modalities.video, &modalities.state);
        let deltas = video.delta_indices.iter().chain(&state.delta_indices);
        let most = deltas.map(|delta| back(*delta)).max().unwrap_or(0);
        Self {
            video: video.delta_indices.clone(),
            state: state.delta_indices.clone(),
            most,
            seen: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Returns how many bytes of messages are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets the episode.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.bytes = 0;
    }

    /// Adds an observation from a message of `bytes` bytes.
    pub(super) fn push(&mut self, observation: Value, bytes: usize) {
        if self.most == 0 {
            return;
        }
        self.seen.push_back((observation, bytes));
        self.bytes += bytes;
        if self.seen.len() > self.most
            && let Some((_, bytes)) = self.seen.pop_front()
        {
            self.bytes -= bytes;
        }
    }

    /// Returns the observations for an inference. Steps before the episode's first observation
    /// repeat that one, as in an evaluation.
    pub(super) fn steps(&self, now: &Value) -> ObservationSteps {
        let at = |delta: &i64| match back(*delta) {
            0 => now.clone(),
            steps => {
                let found = self.seen.get(self.seen.len().saturating_sub(steps));
                found.map_or_else(|| now.clone(), |(seen, _)| seen.clone())
            }
        };
        ObservationSteps {
            now: now.clone(),
            video: self.video.iter().map(at).collect(),
            state: self.state.iter().map(at).collect(),
        }
    }
}

impl ObservationSteps {
    /// Returns an upper bound of the memory for the pictures once they are decoded. Those with a
    /// longer edge than `longest_edge` are refused, and take none.
    pub(super) fn decoded_bytes(&self, longest_edge: usize) -> usize {
        let images = self
            .video
            .iter()
            .filter_map(|step| match step.get("images") {
                Some(Value::Map(members)) => Some(members),
                _ => None,
            });
        let images = images.flatten();
        let bytes = images.map(|(_, image)| picture::decoded_bytes(image, longest_edge));
        bytes.fold(0, usize::saturating_add)
    }
}

fn back(delta: i64) -> usize {
    usize::try_from(delta.saturating_neg()).unwrap_or(0)
}
