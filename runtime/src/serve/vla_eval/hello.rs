//! What the server says of itself.

use serde_json::{Value as Json, json};
use wire::{VLA_EVAL_VERSION, Value, VlaEvalKind, VlaEvalMessage};

use crate::clock::unix_seconds;
use crate::serve::card::ServedSpec;

/// Returns the `hello` that answers message `seq`.
///
/// `observation_params` makes the runner of vla-eval ask its benchmark for states and for the wrist
/// camera, and the specifications are compared with those of the benchmark.
pub(super) fn message(card: &ServedSpec, seq: u64) -> VlaEvalMessage {
    let views = &card.modalities.video.keys;
    let lengths: Option<Vec<usize>> = card.states.iter().map(|(_, length)| *length).collect();
    let state: usize = lengths.unwrap_or_default().iter().sum();
    let actions: usize = card.actions.iter().map(|(_, width)| width).sum();
    let images = views
        .iter()
        .map(|view| (view.clone(), part("image", 0, "rgb_hwc_uint8")));
    let mut expected: serde_json::Map<_, _> = images.collect();
    if !card.modalities.state.keys.is_empty() {
        expected.insert("state".to_owned(), part("state", state, "raw"));
    }
    expected.insert("language".to_owned(), part("language", 0, "language"));
    let payload = json!({
        "harness_version": concat!("rrun ", env!("CARGO_PKG_VERSION")),
        "protocol_version": VLA_EVAL_VERSION,
        "model_server": "rrun",
        "capabilities": {},
        "observation_params": {
            "send_state": !card.modalities.state.keys.is_empty(),
            "send_wrist_image": views.len() > 1,
        },
        "action_spec": {"actions": part("actions", actions, "raw")},
        "observation_spec": expected,
    });
    VlaEvalMessage {
        kind: VlaEvalKind::Hello,
        payload: Value::from(&payload),
        seq,
    }
}

/// Returns a part of a specification; 0 as `dims` means that the number of values is not told.
fn part(name: &str, dims: usize, format: &str) -> Json {
    json!({"name": name, "dims": dims, "format": format})
}

/// Makes openpi's metadata a `hello`, too: a client of vla-eval takes it for the answer to its own,
/// whose number it does not compare.
pub fn greet_early(metadata: &mut Value, card: &ServedSpec) {
    if let Value::Map(members) = message(card, 0).into_value(unix_seconds())
        && let Value::Map(metadata) = metadata
    {
        metadata.extend(members);
    }
}
