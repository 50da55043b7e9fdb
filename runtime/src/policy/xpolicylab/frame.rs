//! The envelope of a message: written for requests, checked for answers.

use bytes::Bytes;

use wire::{Dialect, Key, Value};

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

/// Returns the payload of the answer to a request.
///
/// # Errors
/// Says which error the server reports, and why any other message is no answer; the text follows
/// the name of the server.
pub fn payload(
    answer: &Bytes,
    message_type: MessageType,
    message_id: &str,
) -> Result<Value, String> {
    let answer = wire::read(answer).map_err(|err| format!("its answer cannot be read: {err}"))?;
    let answer = answer.value;
    let found = text(&answer, "message_id")?;
    if found != message_id {
        return Err(format!(
            "it answers message `{found}`, and was asked `{message_id}`"
        ));
    }
    let wanted = message_type.answer();
    let found = text(&answer, "message_type")?;
    let payload = answer
        .get("payload")
        .filter(|payload| matches!(payload, Value::Map(_)))
        .ok_or("its answer has no `payload`")?;
    if found == "error" {
        let of = |field| payload.get(field).and_then(Value::as_text).unwrap_or("");
        let (code, text) = (of("code"), of("message"));
        return Err(format!("it answers with the error `{code}`: {text}"));
    }
    if found != wanted {
        return Err(format!(
            "its answer is of type `{found}`, expected `{wanted}`"
        ));
    }
    if payload.get("ok") == Some(&Value::Bool(false)) {
        return Err("its answer says `ok: false`".to_owned());
    }
    Ok(payload.clone())
}

fn text<'a>(answer: &'a Value, field: &str) -> Result<&'a str, String> {
    let found = answer.get(field).and_then(Value::as_text);
    found.ok_or_else(|| format!("its answer has no `{field}`"))
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
            let text = refused.unwrap_err();
            assert!(text.starts_with(reason), "{text}");
        }
    }
}
