//! The envelope of a message: written for requests, checked for answers.

use bytes::Bytes;

use wire::{Dialect, Key, Value, WireError};

/// The requests that are sent, each with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// The first message of a connection.
    Hello,
    /// Makes the model forget all episodes.
    Reset,
    /// Asks for actions.
    Infer,
    /// Says that an episode is over.
    TrialEnd,
}

impl MessageType {
    /// Returns the name of the request on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Reset => "reset",
            Self::Infer => "infer",
            Self::TrialEnd => "trial_end",
        }
    }

    /// Returns the name of its answer on the wire.
    pub fn answer(self) -> &'static str {
        match self {
            Self::Hello => "hello_ack",
            Self::Reset => "reset_result",
            Self::Infer => "infer_result",
            Self::TrialEnd => "trial_end_ack",
        }
    }
}

/// A request, without the observation that an `infer` carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestFrame<'a> {
    pub(super) message_type: MessageType,
    /// Unique among all messages that a server ever gets: newer servers answer a message that they
    /// have answered before from memory.
    pub(super) message_id: &'a str,
    /// Names this client.
    pub(super) evaluation_id: &'a str,
    /// Names the episode.
    pub(super) trial_id: Option<&'a str>,
    /// Number of earlier inferences of the episode.
    pub(super) step: u64,
}

impl RequestFrame<'_> {
    /// Returns the bytes of the request.
    pub(super) fn with(self, payload: Vec<(Key, Value)>) -> Bytes {
        let message = Value::map([
            ("message_type", self.message_type.name().into()),
            ("message_id", self.message_id.into()),
            ("evaluation_id", self.evaluation_id.into()),
            ("action_case_id", Value::Nil),
            ("trial_id", self.trial_id.map_or(Value::Nil, Value::from)),
            ("repeat_index", Value::Nil),
            ("step", self.step.into()),
            ("payload", Value::Map(payload)),
        ]);
        wire::write(&message, Dialect::Kind).into()
    }
}

/// The reason why a message is no answer to a request. The texts follow the name of the server.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// The message is not msgpack.
    #[error("its answer cannot be read: {0}")]
    Unreadable(#[from] WireError),
    /// The message lacks a field, or has it in another form.
    #[error("its answer has no `{field}`")]
    NoField {
        /// Name of the field.
        field: &'static str,
    },
    /// The message belongs to another request.
    #[error("it answers message `{found}`, and was asked `{wanted}`")]
    OtherRequest {
        /// Identifier in the answer.
        found: String,
        /// Identifier of the request.
        wanted: String,
    },
    /// The message has another type than the answer.
    #[error("its answer is of type `{found}`, expected `{wanted}`")]
    OtherType {
        /// Type of the answer.
        found: String,
        /// Type that belongs to the request.
        wanted: &'static str,
    },
    /// The server reports an error.
    #[error("it answers with the error `{code}`: {text}")]
    Reported {
        /// XPolicyLab's code of the error.
        code: String,
        /// The server's message.
        text: String,
    },
    /// The answer says that the request was not done.
    #[error("its answer says `ok: false`")]
    NotOk,
}

/// Returns the payload of the answer to a request.
///
/// # Errors
/// Returns a [`FrameError`] for an error that the server reports, and for any other message.
pub fn payload(
    answer: &Bytes,
    message_type: MessageType,
    message_id: &str,
) -> Result<Value, FrameError> {
    let answer = wire::read(answer)?.value;
    let found = text(&answer, "message_id")?;
    if found != message_id {
        return Err(FrameError::OtherRequest {
            found: found.to_owned(),
            wanted: message_id.to_owned(),
        });
    }
    let wanted = message_type.answer();
    let found = text(&answer, "message_type")?;
    let payload = answer
        .get("payload")
        .filter(|payload| matches!(payload, Value::Map(_)))
        .ok_or(FrameError::NoField { field: "payload" })?;
    if found == "error" {
        let of = |field| payload.get(field).and_then(Value::as_text).unwrap_or("");
        return Err(FrameError::Reported {
            code: of("code").to_owned(),
            text: of("message").to_owned(),
        });
    }
    if found != wanted {
        return Err(FrameError::OtherType {
            found: found.to_owned(),
            wanted,
        });
    }
    if payload.get("ok") == Some(&Value::Bool(false)) {
        return Err(FrameError::NotOk);
    }
    Ok(payload.clone())
}

fn text<'a>(answer: &'a Value, field: &'static str) -> Result<&'a str, FrameError> {
    answer
        .get(field)
        .and_then(Value::as_text)
        .ok_or(FrameError::NoField { field })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: &str, message_type: &str, payload: Value) -> Bytes {
        let message = Value::map([
            ("message_type", message_type.into()),
            ("message_id", id.into()),
            ("payload", payload),
        ]);
        wire::write(&message, Dialect::Kind).into()
    }

    #[test]
    fn a_request_has_every_field_of_the_envelope() {
        let frame = RequestFrame {
            message_type: MessageType::Reset,
            message_id: "a-1",
            evaluation_id: "a",
            trial_id: Some("3"),
            step: 7,
        };
        let bytes = frame.with(vec![(Key::from("trial_id"), "3".into())]);
        let message = wire::read(&bytes).unwrap().value;
        let text = |field: &str| message.get(field).and_then(Value::as_text).unwrap();
        let ids = ["message_type", "message_id", "evaluation_id", "trial_id"].map(text);
        assert_eq!(ids, ["reset", "a-1", "a", "3"]);
        assert_eq!(message.get("step"), Some(&Value::Int(7)));
        assert_eq!(message.get("action_case_id"), Some(&Value::Nil));
        let payload = message.get("payload").unwrap();
        assert_eq!(payload.get("trial_id").and_then(Value::as_text), Some("3"));
    }

    #[test]
    fn only_the_answer_to_the_request_counts_and_an_error_of_the_server_is_quoted() {
        let ok = || Value::map([("ok", true.into())]);
        let own = answer("a-1", "infer_result", ok());
        assert_eq!(payload(&own, MessageType::Infer, "a-1"), Ok(ok()));
        let no = Value::map([("ok", false.into())]);
        let error = Value::map([
            ("code", "infer_failed".into()),
            ("message", "the arm is on fire".into()),
            ("details", Value::map([])),
        ]);
        for (answer, reason) in [
            (
                answer("a-0", "infer_result", ok()),
                "it answers message `a-0`, and was asked `a-1`",
            ),
            (
                answer("a-1", "reset_result", ok()),
                "its answer is of type `reset_result`, expected `infer_result`",
            ),
            (
                answer("a-1", "infer_result", Value::Nil),
                "its answer has no `payload`",
            ),
            (
                answer("a-1", "infer_result", no),
                "its answer says `ok: false`",
            ),
            (
                answer("a-1", "error", error),
                "it answers with the error `infer_failed`: the arm is on fire",
            ),
            (
                Bytes::from_static(b"\xc0"),
                "its answer has no `message_id`",
            ),
            (Bytes::from_static(b"{}"), "its answer cannot be read: "),
        ] {
            let refused = payload(&answer, MessageType::Infer, "a-1");
            let text = refused.unwrap_err().to_string();
            assert!(text.starts_with(reason), "{text}");
        }
    }
}
