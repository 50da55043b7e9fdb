//! A policy behind XPolicyLab's `PolicyServer`, which serves the policies of its collection over a
//! websocket.
//!
//! ```text
//! connection  hello                              ─► hello_ack
//! episode     reset … trial_end                  ─► reset_result, trial_end_ack
//! chunk       infer: one observation             ─► infer_result: a list of actions ─► Chunk
//! ```
//! Follows `client_server/ws` of XPolicyLab, commit 7198143e of July 2026. Every message is a
//! binary frame of msgpack with the arrays of msgpack-numpy: a map with `message_type`,
//! `message_id`, `evaluation_id`, `trial_id`, `step` and `payload`. An answer repeats the
//! `message_id`; an error is a message of type `error` with `code` and `message`.
//!
//! The protocol has no sessions: a server has one model, which answers one request at a time
//! whoever asks, and `reset` resets all of it. An observation has `env_idx`, by which some policies
//! keep what they remember. So a rank needs one connection, and asks for one environment after the
//! other, in the same order in every run. `prepare_case` and `heartbeat` are not sent: no policy of
//! the collection uses the first, and the pings of the websocket do what the second does.

mod actions;
mod client;

use bytes::Bytes;
use wire::{Dialect, Key, Value};

pub use actions::read_chunk;

use crate::protocols::read;

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
    /// Returns the names of the request and of its answer on the wire.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Hello => ["hello", "hello_ack"],
            Self::Reset => ["reset", "reset_result"],
            Self::Infer => ["infer", "infer_result"],
            Self::TrialEnd => ["trial_end", "trial_end_ack"],
        }
    }
}

/// Returns the bytes of a request. `message_id` is unique among all messages that a server ever
/// gets: newer servers answer a message that they have answered before from memory. `evaluation_id`
/// names the client, and `trial_id` the episode, with its number of earlier inferences.
fn request(
    message_type: MessageType,
    [message_id, evaluation_id]: [&str; 2],
    (trial_id, step): (Option<&str>, u64),
    payload: Vec<(Key, Value)>,
) -> Bytes {
    let [name, _] = message_type.names();
    let message = Value::map([
        ("message_type", name.into()),
        ("message_id", message_id.into()),
        ("evaluation_id", evaluation_id.into()),
        ("action_case_id", Value::Nil),
        ("trial_id", trial_id.map_or(Value::Nil, Value::from)),
        ("repeat_index", Value::Nil),
        ("step", step.into()),
        ("payload", Value::Map(payload)),
    ]);
    wire::write(&message, Dialect::Kind).into()
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
    let answer = read(answer)?;
    let found = text(&answer, "message_id")?;
    if found != message_id {
        return Err(format!(
            "it answers message `{found}`, and was asked `{message_id}`"
        ));
    }
    let [_, wanted] = message_type.names();
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
        let payload = vec![(Key::from("trial_id"), "3".into())];
        let bytes = request(MessageType::Reset, ["a-1", "a"], (Some("3"), 7), payload);
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
