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
//! Policies return a list with a map for each step, `{"arm_joint_state": [6], "ee_joint_state":
//! [1]}`. Some return a single map, or numbers without names: `[steps, width]`.
//!
//! The protocol has no sessions: a server has one model, which answers one request at a time
//! whoever asks, and `reset` resets all of it. An observation has `env_idx`, by which some policies
//! keep what they remember. So a rank needs one connection, and asks for one environment after the
//! other, in the same order in every run. `prepare_case` and `heartbeat` are not sent: no policy of
//! the collection uses the first, and the pings of the websocket do what the second does.

mod client;

use bytes::Bytes;
use jobs::count::listed;
use wire::{Dialect, Key, Value};

use crate::policy::Chunk;
use crate::protocols::read;

/// Maximum number of actions of an answer that are used.
const MOST_ACTIONS: usize = 4096;

/// Maximum number of names in an error, because the server chooses them.
const MOST_NAMES: usize = 20;

/// The types of a request and of its answer.
pub type MessageTypes = [&'static str; 2];

/// The first message of a connection.
const HELLO: MessageTypes = ["hello", "hello_ack"];
/// Makes the model forget all episodes.
const RESET: MessageTypes = ["reset", "reset_result"];
/// Asks for actions.
pub const INFER: MessageTypes = ["infer", "infer_result"];
/// Says that an episode is over.
const TRIAL_END: MessageTypes = ["trial_end", "trial_end_ack"];

/// Returns the bytes of a request. `message_id` is unique among all messages that a server ever
/// gets: newer servers answer a message that they have answered before from memory. `evaluation_id`
/// names the client, and `trial_id` the episode, with its number of earlier inferences.
fn request(
    [message_type, _]: MessageTypes,
    [message_id, evaluation_id]: [&str; 2],
    (trial_id, step): (Option<&str>, u64),
    payload: Vec<(Key, Value)>,
) -> Bytes {
    let message = Value::map([
        ("message_type", message_type.into()),
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
    [_, wanted]: MessageTypes,
    message_id: &str,
) -> Result<Value, String> {
    let answer = read(answer)?;
    let found = text(&answer, "message_id")?;
    if found != message_id {
        return Err(format!(
            "it answers message `{found}`, and was asked `{message_id}`"
        ));
    }
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

/// Returns the first `most` actions of the payload of an `infer_result`: the values of `keys`, one
/// after the other.
///
/// # Errors
/// Says what is wrong with the first action that does not fit; the text follows the name of the
/// server.
pub fn read_chunk(
    payload: &Value,
    keys: &[String],
    dim: usize,
    most: usize,
) -> Result<Chunk, String> {
    let most = most.min(MOST_ACTIONS);
    let values = match payload.get("actions") {
        Some(Value::List(steps)) if !steps.is_empty() => {
            let mut values = Vec::new();
            for (step, action) in steps.iter().take(most).enumerate() {
                values.extend(read_action(step, action, keys, dim)?);
            }
            values
        }
        Some(action @ Value::Map(_)) => read_action(0, action, keys, dim)?,
        Some(Value::Array(array)) => match *array.shape() {
            [steps, width] if steps > 0 && width == dim => {
                let used = steps.min(most) * dim;
                array.to_f32()[..used].to_vec()
            }
            [width] if width == dim => array.to_f32(),
            ref found => {
                return Err(format!(
                    "its actions are {found:?}, expected [1 or more, {dim}]"
                ));
            }
        },
        _ => return Err("its answer has no `actions`".to_owned()),
    };
    Ok(Chunk::new(dim, values))
}

/// Returns the numbers of one action.
fn read_action(
    step: usize,
    action: &Value,
    keys: &[String],
    dim: usize,
) -> Result<Vec<f32>, String> {
    let (values, found) = match action {
        Value::Map(members) => {
            let (mut values, mut found) = (Vec::new(), Vec::new());
            for key in keys {
                let part = action.get(key).ok_or_else(|| {
                    let names = members.iter().map(|(key, _)| key.shown());
                    let found = match listed(&names.collect::<Vec<_>>(), MOST_NAMES) {
                        none if none.is_empty() => "nor anything else".to_owned(),
                        names => format!("only: {names}"),
                    };
                    format!("its action {step} has no `{key}`, {found}")
                })?;
                let part = numbers(step, part)?;
                found.push(format!("{key} [{}]", part.len()));
                values.extend(part);
            }
            (values, found.join(" + "))
        }
        unnamed => {
            let values = numbers(step, unnamed)?;
            let found = format!("{} numbers", values.len());
            (values, found)
        }
    };
    if values.len() == dim {
        return Ok(values);
    }
    Err(format!(
        "its action {step} has {found}, the environment takes {dim} numbers"
    ))
}

/// Reads a vector of numbers, or a single one.
fn numbers(step: usize, value: &Value) -> Result<Vec<f32>, String> {
    let wrong = |value: &Value| {
        let found = value.type_name();
        format!("its action {step} has {found} where a list of numbers is expected")
    };
    match value {
        Value::Array(array) if array.shape().len() <= 1 => Ok(array.to_f32()),
        Value::List(items) => {
            let number = |item: &Value| item.as_f32().ok_or_else(|| wrong(item));
            items.iter().map(number).collect()
        }
        single => {
            let number = single.as_f32().ok_or_else(|| wrong(single));
            number.map(|number| vec![number])
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::Array;

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
        let bytes = request(RESET, ["a-1", "a"], (Some("3"), 7), payload);
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
        assert_eq!(payload(&own, INFER, "a-1"), Ok(ok()));
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
            let refused = payload(&answer, INFER, "a-1");
            let text = refused.unwrap_err();
            assert!(text.starts_with(reason), "{text}");
        }
    }

    fn keys() -> Vec<String> {
        ["arm_joint_state", "ee_joint_state"]
            .map(str::to_owned)
            .to_vec()
    }

    fn chunk(actions: Value, most: usize) -> Result<Chunk, String> {
        let payload = Value::map([("actions", actions), ("latency_ms", Value::Float(1.5))]);
        read_chunk(&payload, &keys(), 3, most)
    }

    fn action(arm: Value, hand: Value) -> Value {
        let more = ("ee_pose", Value::Nil);
        Value::map([("ee_joint_state", hand), ("arm_joint_state", arm), more])
    }

    fn vector(numbers: &[f32]) -> Value {
        Array::of_f32(&[numbers.len()], numbers).into()
    }

    #[test]
    fn an_action_is_put_together_in_the_order_of_the_keys() {
        let first = action(vector(&[1.0, 2.0]), vector(&[3.0]));
        let plain = action(vec![Value::Int(4), Value::Float(5.5)].into(), Value::Int(6));
        let three = [first.clone(), plain, first].to_vec();
        let wanted = vec![1.0, 2.0, 3.0, 4.0, 5.5, 6.0];
        assert_eq!(chunk(three.into(), 2), Ok(Chunk::new(3, wanted)));
    }

    #[test]
    fn a_single_action_and_actions_without_names_are_read() {
        let one = action(vector(&[1.0, 2.0]), vector(&[3.0]));
        assert_eq!(chunk(one, 9), Ok(Chunk::new(3, vec![1.0, 2.0, 3.0])));
        let numbers: Vec<f32> = (0..12).map(|number| number as f32).collect();
        let table = Array::of_f32(&[4, 3], &numbers);
        assert_eq!(
            chunk(table.into(), 2),
            Ok(Chunk::new(3, numbers[..6].to_vec()))
        );
        let rows = vec![vector(&numbers[..3]), vector(&numbers[3..6])];
        assert_eq!(
            chunk(rows.into(), 9),
            Ok(Chunk::new(3, numbers[..6].to_vec()))
        );
    }

    #[test]
    fn the_names_in_an_action_that_lacks_one_are_shown_and_counted() {
        let refused = |count| {
            let names = (0..count).map(|at| (Key::Text(format!("n{at}")), Value::Nil));
            let action = Value::Map(names.collect());
            chunk(vec![action].into(), 9).unwrap_err()
        };
        let none = "its action 0 has no `arm_joint_state`, nor anything else";
        assert_eq!(refused(0), none);
        let text = refused(22);
        assert!(text.ends_with(", n18, n19 and 2 more"), "{text}");
    }

    #[test]
    fn an_answer_that_does_not_fit_is_refused_with_both_sides() {
        let dual = Value::map([("left_arm_joint_state", vector(&[1.0]))]);
        let long = action(vector(&[1.0, 2.0, 3.0]), vector(&[4.0]));
        for (actions, reason) in [
            (Value::Nil, "its answer has no `actions`"),
            (Vec::new().into(), "its answer has no `actions`"),
            (
                vec![dual].into(),
                "its action 0 has no `arm_joint_state`, only: left_arm_joint_state",
            ),
            (
                vec![long].into(),
                "its action 0 has arm_joint_state [3] + ee_joint_state [1], the environment takes 3 numbers",
            ),
            (
                vec![vector(&[1.0])].into(),
                "its action 0 has 1 numbers, the environment takes 3 numbers",
            ),
            (
                vec![action("fast".into(), Value::Nil)].into(),
                "its action 0 has str where a list of numbers is expected",
            ),
            (
                Array::of_f32(&[2, 2], &[0.0; 4]).into(),
                "its actions are [2, 2], expected [1 or more, 3]",
            ),
            (
                Array::of_f32(&[0, 3], &[]).into(),
                "its actions are [0, 3], expected [1 or more, 3]",
            ),
        ] {
            assert_eq!(chunk(actions, 9), Err(reason.to_owned()));
        }
        let many = (0..1000).map(|number| (Key::from(format!("k{number}").as_str()), Value::Nil));
        let refusal = chunk(vec![Value::Map(many.collect())].into(), 9);
        assert!(refusal.unwrap_err().len() < 300);
    }
}
