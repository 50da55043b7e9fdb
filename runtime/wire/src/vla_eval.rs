//! The messages of vla-eval's protocol, version 1: a msgpack map `{type, payload, seq, timestamp}`
//! for each websocket message. The reference is the module `vla_eval.protocol` of the package
//! `vla-eval` 0.8.0.
//!
//! ```text
//! client ─ hello 1 ─────────► server      client ─ episode_start 2 ──► server   (no answer)
//! client ◄──────── hello 1 ── server      client ─ observation 3 ────► server
//!                                         client ◄──────── action 3 ── server   or error 3
//!                                         client ─ episode_end 4 ────► server   (no answer)
//! ```
//! An answer has the number (`seq`) of the message that it answers. Arrays are in the dialect
//! [`Dialect::VlaEval`].

use bytes::Bytes;

use crate::{Dialect, Value, read, write};

/// The version of the protocol, which both sides send in `hello`.
pub const VLA_EVAL_VERSION: u64 = 1;

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlaEvalKind {
    /// Who speaks: the first message of a client, and its answer.
    Hello,
    /// What an environment shows; answered with an action or an error.
    Observation,
    /// What to do: `{"actions": …}`.
    Action,
    /// An episode begins.
    EpisodeStart,
    /// An episode has ended.
    EpisodeEnd,
    /// A message could not be served: `{"error": text}`.
    Error,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct VlaEvalMessage {
    /// Its kind.
    pub kind: VlaEvalKind,
    /// Its content, a map.
    pub payload: Value,
    /// The sender's number of the message, or that of the message that it answers.
    pub seq: u64,
}

/// Characters of an unknown type that are shown.
const SHOWN: usize = 40;

impl VlaEvalKind {
    const NAMES: [(Self, &str); 6] = [
        (Self::Hello, "hello"),
        (Self::Observation, "observation"),
        (Self::Action, "action"),
        (Self::EpisodeStart, "episode_start"),
        (Self::EpisodeEnd, "episode_end"),
        (Self::Error, "error"),
    ];

    /// Returns the word for it in messages.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    fn of(name: &str) -> Option<Self> {
        let known = Self::NAMES.into_iter().find(|(_, word)| *word == name);
        known.map(|(kind, _)| kind)
    }
}

impl VlaEvalMessage {
    /// Decodes a message.
    ///
    /// # Errors
    /// Returns the reason for the first problem.
    pub fn read(bytes: &Bytes) -> Result<Self, String> {
        let message = read(bytes)?.value;
        let needs = |member: &str| format!("a message needs {member}");
        let name = message.get("type").and_then(Value::as_text);
        let name = name.ok_or_else(|| needs("`type`, a string"))?;
        let kind = VlaEvalKind::of(name).ok_or_else(|| {
            let found: String = name.chars().take(SHOWN).collect();
            format!("unknown message type `{found}`")
        })?;
        let seq = message.get("seq").and_then(Value::as_u64);
        let seq = seq.ok_or_else(|| needs("`seq`, a whole number from 0"))?;
        let payload = message.get("payload");
        let payload = payload.filter(|payload| matches!(payload, Value::Map(_)));
        let payload = payload.ok_or_else(|| needs("`payload`, a map"))?.clone();
        Ok(Self { kind, payload, seq })
    }

    /// Returns the message as a value; `timestamp` is in seconds since 1970.
    pub fn into_value(self, timestamp: f64) -> Value {
        Value::map([
            ("type", self.kind.name().into()),
            ("payload", self.payload),
            ("seq", self.seq.into()),
            ("timestamp", Value::Float(timestamp)),
        ])
    }

    /// Encodes the message.
    pub fn write(self, timestamp: f64) -> Bytes {
        write(&self.into_value(timestamp), Dialect::VlaEval).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Array;

    /// The output of vla-eval 0.8.0: `pack_message(Message(OBSERVATION, {"images": {"a":
    /// np.arange(6, dtype=np.uint8).reshape(1, 2, 3)}, "states": np.array([1.5, -2], np.float32),
    /// "task_description": "go", "n": np.float32(1.5)}, seq=3, timestamp=1.0))`, raw pictures.
    const REFERENCE: &str = "84a474797065ab6f62736572766174696f6ea77061796c6f616484a6696d616765738\
        1a16184ab5f5f6e6461727261795f5fc3a464617461c406000102030405a56474797065a37c7531a57368617065\
        93010203a673746174657384ab5f5f6e6461727261795f5fc3a464617461c4080000c03f000000c0a5647479706\
        5a33c6634a573686170659102b07461736b5f6465736372697074696f6ea2676fa16ecb3ff8000000000000a373\
        657103a974696d657374616d70cb3ff0000000000000";

    fn reference() -> Bytes {
        let pairs = REFERENCE.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        pairs.map(|pair| byte(pair).unwrap()).collect()
    }

    fn observation() -> VlaEvalMessage {
        let picture = Array::of_u8(&[1, 2, 3], vec![0, 1, 2, 3, 4, 5].into());
        VlaEvalMessage {
            kind: VlaEvalKind::Observation,
            payload: Value::map([
                ("images", Value::map([("a", picture.into())])),
                ("states", Array::of_f32(&[2], &[1.5, -2.0]).into()),
                ("task_description", "go".into()),
                ("n", Value::Float(1.5)),
            ]),
            seq: 3,
        }
    }

    #[test]
    fn a_message_of_the_reference_is_read_and_written_byte_for_byte() {
        assert_eq!(VlaEvalMessage::read(&reference()), Ok(observation()));
        assert_eq!(observation().write(1.0), reference());
    }

    #[test]
    fn what_is_no_message_is_refused_by_its_first_problem() {
        let refusal = |members: &[(&str, Value)]| {
            let members = members.iter();
            let members = members.map(|(key, value)| (crate::Key::from(*key), value.clone()));
            let bytes = write(&Value::Map(members.collect()), Dialect::VlaEval).into();
            VlaEvalMessage::read(&bytes).unwrap_err().to_string()
        };
        let (hello, seq) = (("type", "hello".into()), ("seq", 1u64.into()));
        assert_eq!(refusal(&[]), "a message needs `type`, a string");
        assert_eq!(
            refusal(&[("type", "x".repeat(9999).into())]),
            format!("unknown message type `{}`", "x".repeat(40))
        );
        assert_eq!(
            refusal(&[hello.clone(), ("seq", Value::Int(-1))]),
            "a message needs `seq`, a whole number from 0"
        );
        assert_eq!(
            refusal(&[hello, seq, ("payload", Value::Nil)]),
            "a message needs `payload`, a map"
        );
        assert!(VlaEvalMessage::read(&Bytes::from_static(b"\xc1")).is_err());
    }
}
