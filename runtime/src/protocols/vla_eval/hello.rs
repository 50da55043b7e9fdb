//! What a server says of itself in `hello`, and whether it fits the job.
//!
//! The specifications are informal: vla-eval's own runner compares them with those of a benchmark
//! and logs what differs. Here, what cannot work is refused before the first episode, and what only
//! looks wrong is a note.

use wire::{VLA_EVAL_VERSION, Value};

use jobs::refusal::Refusal;
use jobs::wiring::{Sides, Wiring};

/// The format of a picture in a specification.
const PICTURE: &str = "rgb_hwc_uint8";

/// The format of an instruction.
const LANGUAGE: &str = "language";

/// Characters of a server's names that are kept.
const LONGEST_NAME: usize = 100;

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VlaEvalHello {
    /// The class of the model server.
    pub model: String,
    /// The version of vla-eval, or of another program that speaks its protocol.
    pub version: String,
    /// Number of values of each component of an action; 0 if it is not known.
    actions: Vec<usize>,
    /// The names of the pictures that it expects.
    pictures: Vec<String>,
    /// States that it expects: name, and number of values; 0 if it is not known.
    states: Vec<(String, usize)>,
    /// Whether it expects an instruction.
    pub needs_language: bool,
    /// Whether it asks benchmarks for states.
    sends_state: bool,
    /// Whether it asks benchmarks for a picture of the wrist camera, the second one.
    sends_wrist: bool,
}

impl VlaEvalHello {
    /// Reads the content of a server's `hello`. What is missing or malformed in its specifications
    /// counts as not said.
    ///
    /// # Errors
    /// Says why it cannot be spoken to, if it does not speak this version of the protocol.
    pub(super) fn read(payload: &Value) -> Result<Self, String> {
        match payload.get("protocol_version").and_then(Value::as_u64) {
            Some(VLA_EVAL_VERSION) => {}
            Some(found) => {
                return Err(format!(
                    "it speaks version {found} of vla-eval's protocol, expected {VLA_EVAL_VERSION}"
                ));
            }
            None => {
                return Err(format!(
                    "its hello has no protocol_version, expected version {VLA_EVAL_VERSION} of \
                     vla-eval's protocol"
                ));
            }
        }
        let name = |key: &str| {
            let text = payload.get(key).and_then(Value::as_text);
            short(text.unwrap_or("unknown"))
        };
        let asks = |key: &str| {
            let parameters = payload.get("observation_params");
            parameters.and_then(|all| all.get(key)) == Some(&Value::Bool(true))
        };
        let mut hello = Self {
            model: name("model_server"),
            version: name("harness_version"),
            sends_state: asks("send_state"),
            sends_wrist: asks("send_wrist_image"),
            ..Self::default()
        };
        let actions = specifications(payload, "action_spec");
        hello.actions = actions.map(|(_, dims, _)| dims).collect();
        for (name, dims, format) in specifications(payload, "observation_spec") {
            match format {
                PICTURE => hello.pictures.push(name),
                LANGUAGE => hello.needs_language = true,
                _ => hello.states.push((name, dims)),
            }
        }
        Ok(hello)
    }

    /// Compares what the server says with what it will get and what the environment takes; returns
    /// notes for the user.
    ///
    /// # Errors
    /// Refuses with both sides if they cannot fit.
    pub(super) fn check(&self, sides: Sides, wiring: &Wiring) -> Result<Vec<String>, Refusal> {
        let server = format!("for model server {}", self.model);
        let images = wiring.cameras().map(|(key, _)| key);
        let sent: Vec<&str> = images
            .filter_map(|key| key.strip_prefix("images/"))
            .collect();
        let wanted = self.pictures.len().max(usize::from(self.sends_wrist) * 2);
        if sent.len() < wanted {
            let names = self.pictures.join(", ");
            let wanted = format!("{wanted} images ({names}) {server}");
            let found = format!("{} in observation_mapping: {}", sent.len(), sent.join(", "));
            return Err(sides.mismatch(wanted, found));
        }
        let length = wiring.state_length(sides);
        if length == 0 && (self.sends_state || !self.states.is_empty()) {
            let wanted = format!("a state (`states`) {server}");
            return Err(sides.mismatch(wanted, "none in observation_mapping"));
        }
        let mut notes = Vec::new();
        if let [(name, dims)] = &self.states[..]
            && *dims > 0
            && length != *dims
        {
            notes.push(format!(
                "model server {} expects {dims} values as {name}, and gets {length}: see \
                 observation_mapping",
                self.model
            ));
        }
        let width = sides.face.action.names.len();
        let told: usize = self.actions.iter().sum();
        if told > width {
            sides.action(told, format_args!(" {server}"))?;
        }
        if told < width && !self.actions.is_empty() && self.actions.iter().all(|dims| *dims > 0) {
            notes.push(format!(
                "model server {} says that its actions have {told} values; the environment takes \
                 {width}",
                self.model
            ));
        }
        Ok(notes)
    }
}

/// Returns name, number of values and format of each part of a specification.
fn specifications<'a>(
    payload: &'a Value,
    key: &str,
) -> impl Iterator<Item = (String, usize, &'a str)> {
    let members = match payload.get(key) {
        Some(Value::Map(members)) => &members[..],
        _ => &[],
    };
    members.iter().map(|(name, part)| {
        let dims = part.get("dims").and_then(Value::as_u64).unwrap_or(0);
        let format = part.get("format").and_then(Value::as_text);
        (
            short(&name.shown()),
            // No robot has more values; this keeps sums from overflowing.
            dims.min(1 << 20) as usize,
            format.unwrap_or_default(),
        )
    })
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST_NAME).collect()
}
