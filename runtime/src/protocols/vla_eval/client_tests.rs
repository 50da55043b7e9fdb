use bytes::Bytes;
use jobs::policies::VlaEval;
use jobs::wiring::{Wiring, vla_eval};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use wire::{Array, Dialect, Value, VlaEvalKind, VlaEvalMessage};

use crate::env::{EnvSpec, Observation};
use crate::policy::remote::PolicyServer;
use crate::policy::tests::{env_with, frame, row};
use crate::policy::{Chunk, PolicyRow};
use crate::protocols::script_tests::Script;
use crate::protocols::vla_eval::client::{VlaEvalClient, chunk, shown, sides};
use crate::protocols::vla_eval::hello::VlaEvalHello;
use crate::protocols::{CallError, ClientCodec as _, OnServer as _};

fn env() -> EnvSpec {
    let mut env = env_with(&["front", "wrist"], [1, 2]);
    env.state = vec![("joints".to_owned(), 2), ("gripper".to_owned(), 1)];
    env
}

fn wiring(given: Json) -> Result<Wiring, String> {
    vla_eval(sides(&env()), given.as_object()).map_err(|err| err.to_string())
}

fn observation() -> Observation {
    let mut observation = Observation::default();
    for (name, colour) in [("front", 1), ("wrist", 2)] {
        let frame = frame([1, 2], colour);
        observation.video.insert(name.to_owned(), frame);
    }
    let mut state = |name: &str, values| observation.state.insert(name.to_owned(), values);
    state("joints", vec![1.0, 2.0]);
    state("gripper", vec![3.0]);
    observation
}

fn picture(colour: u8) -> Value {
    Array::of_u8(&[1, 2, 3], vec![colour; 6].into()).into()
}

fn numbers(numbers: &[f32]) -> Value {
    Array::of_f32(&[numbers.len()], numbers).into()
}

#[test]
fn without_a_mapping_everything_is_sent_under_its_name() {
    let wiring = wiring(Json::Null).unwrap();
    let sent = shown(&wiring, None, &observation(), "go");
    let images = Value::map([("front", picture(1)), ("wrist", picture(2))]);
    let wanted = Value::map([
        ("images", images),
        ("states", numbers(&[1.0, 2.0, 3.0])),
        ("state", numbers(&[1.0, 2.0, 3.0])),
        ("task_description", "go".into()),
    ]);
    assert_eq!(sent.unwrap(), wanted);
}

#[test]
fn a_mapping_names_what_is_sent_and_nothing_else_is() {
    let given = json!({"images/agentview": "wrist", "states": ["gripper", "joints"]});
    let sent = shown(&wiring(given).unwrap(), None, &observation(), "");
    let wanted = Value::map([
        ("images", Value::map([("agentview", picture(2))])),
        ("states", numbers(&[3.0, 1.0, 2.0])),
        ("task_description", "".into()),
    ]);
    assert_eq!(sent.unwrap(), wanted);
}

fn hello(more: Json) -> Value {
    let mut hello = json!({"harness_version": "0.8.0", "protocol_version": 1, "model_server": "M"});
    hello
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Value::from(&hello)
}

fn part(dims: u64, format: &str) -> Json {
    json!({"name": "x", "dims": dims, "format": format})
}

/// Returns what a client says of a server's hello, whose fields stand in the first line, if it has
/// the mapping of the second.
fn checked(given: &str) -> Result<Vec<String>, String> {
    let (more, given) = given.split_once('\n').unwrap();
    let read = |text: &str| serde_json::from_str(text).unwrap();
    let hello = VlaEvalHello::read(&hello(read(more)))?;
    let wiring = wiring(read(given))?;
    hello
        .check(sides(&env()), &wiring)
        .map_err(|err| err.to_string())
}

#[test]
fn a_server_that_does_not_fit_is_refused_with_both_sides_and_what_only_looks_wrong_is_a_note() {
    rig::cases::check("src/protocols/vla_eval/hellos.txt", |given| {
        match checked(given) {
            Ok(notes) if notes.is_empty() => "it fits".to_owned(),
            Ok(notes) => format!("note: {}", notes.join("\nnote: ")),
            Err(reason) => reason,
        }
    });
}

fn actions(shape: &[usize]) -> Value {
    let count = shape.iter().product::<usize>();
    let numbers: Vec<f32> = (0..count).map(|number| number as f32).collect();
    Value::map([("actions", Array::of_f32(shape, &numbers).into())])
}

/// Returns the chunk that is taken of an answer with numbers from 0 on, whose shape is given, and
/// of which as many actions of two numbers are wanted as is given, if it is.
fn taken(given: &str) -> String {
    let (shape, wanted) = given.split_once(": ").unwrap_or((given, ""));
    let shape: Vec<usize> = serde_json::from_str(shape).unwrap();
    match chunk(&actions(&shape), wanted.parse().ok(), 2) {
        Ok(chunk) => format!("{:?}", chunk.values()),
        Err(reason) => reason,
    }
}

#[test]
fn an_answer_is_one_action_or_a_chunk_or_is_refused_with_both_sides() {
    rig::cases::check("src/protocols/vla_eval/answers.txt", taken);
    let list = Value::map([("action", vec![Value::Float(0.0), Value::Int(1)].into())]);
    assert_eq!(chunk(&list, None, 2), Ok(Chunk::new(2, vec![0.0, 1.0])));
    let row = Value::List(vec![Value::Float(0.0), Value::Float(1.0)]);
    let lists = Value::map([("actions", vec![row.clone(), row].into())]);
    let two = Chunk::new(2, vec![0.0, 1.0, 0.0, 1.0]);
    assert_eq!(chunk(&lists, Some(2), 2), Ok(two));
    let nothing = Value::map([("actions", Value::Nil)]);
    let refusal = chunk(&nothing, None, 2).unwrap_err();
    assert_eq!(refusal, "its answer has no numbers as `actions`");
}

/// Returns a client that has met a server, and what it has said so far is forgotten.
async fn met(script: &mut Script) -> VlaEvalClient {
    let config = json!({"remote_host": "gpu7", "task": {"suite": "s"}});
    let given: VlaEval = jobs::policies::read(config.as_object().unwrap()).unwrap();
    let place = ("ws", VlaEval::PORT, VlaEval::TIMEOUT);
    let server = PolicyServer::new(given.server().0, None, place).unwrap();
    let mut env = env();
    env.name = "toy".to_owned();
    env.action.names.truncate(2);
    let mut client = given.client(&server, &env).unwrap();
    script.answers.push_front(greeting());
    client.greet(script).await.unwrap();
    client
}

fn greeting() -> Bytes {
    message(VlaEvalKind::Hello, 1, hello(json!({})))
}

fn message(kind: VlaEvalKind, seq: u64, payload: Value) -> Bytes {
    VlaEvalMessage { kind, payload, seq }.write(0.0)
}

/// Returns the names of the messages that the server got.
fn heard(script: &Script) -> Vec<&'static str> {
    let name = |message| VlaEvalMessage::read(message).unwrap().kind.name();
    script.heard.iter().map(name).collect()
}

/// Returns a row of an episode that has had so many chunks.
fn row_of(episode: u64, inference: u64) -> PolicyRow {
    PolicyRow {
        episode,
        seed: 7,
        inference,
        ..row(0, observation())
    }
}

#[tokio::test]
async fn a_session_tells_of_episodes_and_skips_late_answers() {
    let action = |seq, dim| message(VlaEvalKind::Action, seq, actions(&[dim]));
    // Message 1 is hello; 2, 3 and 4 are of the first episode, 5 to 8 of the second.
    let all = [3, 4, 7, 8].map(|seq| [action(seq - 1, 3), action(seq, 2)]);
    let mut script = Script::of(all.concat());
    let mut client = met(&mut script).await;
    for episode in 0..2 {
        for inference in 0..2 {
            let row = row_of(episode, inference);
            let chunks = client.infer(&mut script, &[&row]).await.unwrap();
            assert_eq!(chunks, [Chunk::new(2, vec![0.0, 1.0])]);
        }
    }
    let each = ["episode_start", "observation", "observation"];
    let wanted = [&["hello"][..], &each, &["episode_end"], &each].concat();
    assert_eq!(heard(&script), wanted);
    let start = VlaEvalMessage::read(&script.heard[1]).unwrap();
    let task = start.payload.get("task").unwrap();
    assert_eq!(task.get("seed").and_then(Value::as_u64), Some(7));
    assert_eq!(task.get("suite").and_then(Value::as_text), Some("s"));
}

#[tokio::test]
async fn a_first_observation_is_sent_again_and_a_later_one_costs_its_episode() {
    let mut script = Script::default();
    let mut client = met(&mut script).await;
    let first = row_of(0, 0);
    let away = client.infer(&mut script, &[&first]).await;
    assert!(matches!(away, Err(CallError::Away(_))), "{away:?}");
    assert!(!client.is_lost(&first));
    // The next connection.
    let action = message(VlaEvalKind::Action, 6, actions(&[2]));
    let mut script = Script::of([greeting(), action]);
    client.greet(&mut script).await.unwrap();
    client.infer(&mut script, &[&first]).await.unwrap();
    assert_eq!(heard(&script), ["hello", "episode_start", "observation"]);
    assert!(client.is_lost(&row_of(0, 1)));
    assert!(!client.is_lost(&row_of(1, 0)));
}

#[tokio::test]
async fn nonsense_is_refused_with_what_it_is() {
    let text = Value::map([("error", "the arm is on fire".into())]);
    let nothing = Value::map([]);
    for (answer, reason) in [
        (
            message(VlaEvalKind::Error, 3, text),
            "it answers with an error: the arm is on fire",
        ),
        (
            message(VlaEvalKind::Action, 99, actions(&[2])),
            "it answers observation 3 with action 99",
        ),
        (
            message(VlaEvalKind::EpisodeEnd, 3, nothing),
            "it answers observation 3 with episode_end 3",
        ),
    ] {
        let mut script = Script::of([answer]);
        let mut client = met(&mut script).await;
        match client.infer(&mut script, &[&row_of(0, 0)]).await {
            Err(CallError::Wrong(text)) => assert_eq!(text, reason),
            other => panic!("{other:?}"),
        }
    }
    let mut script = Script::default();
    let mut client = met(&mut script).await;
    for (more, reason) in [
        (
            json!({"protocol_version": 9}),
            "it speaks version 9 of vla-eval's protocol, expected 1",
        ),
        (
            json!({"model_server": "N"}),
            "another model server than before: N of 0.8.0, it was M of 0.8.0",
        ),
    ] {
        let mut script = Script::of([message(VlaEvalKind::Hello, 1, hello(more))]);
        match client.greet(&mut script).await {
            Err(CallError::Wrong(text)) => assert_eq!(text, reason),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns any message's content: maps, lists, numbers and arrays that may be actions.
fn payloads() -> impl Strategy<Value = Value> {
    let array = (proptest::collection::vec(0usize..4, 0..4), any::<bool>());
    let array = array.prop_map(|(shape, is_text)| match is_text {
        true => Value::Text("x".to_owned()),
        false => actions(&shape)
            .get("actions")
            .cloned()
            .unwrap_or(Value::Nil),
    });
    let list = proptest::collection::vec(
        prop_oneof![
            Just(Value::Nil),
            (-1e9..1e9f64).prop_map(Value::Float),
            Just(Value::List(vec![Value::Float(1.0)])),
            Just(Value::List(Vec::new())),
        ],
        0..5,
    );
    prop_oneof![array, list.prop_map(Value::List)]
        .prop_map(|actions| Value::map([("actions", actions)]))
}

proptest! {
    #[test]
    fn any_answer_is_a_chunk_or_refused(
        payload in payloads(),
        length in proptest::option::of(1usize..5),
    ) {
        if let Ok(chunk) = chunk(&payload, length, 2) {
            prop_assert_eq!(chunk.horizon(), length.unwrap_or(1));
        }
    }

    #[test]
    fn any_hello_is_read_or_refused(at in 0usize..200, with in any::<u8>()) {
        let image = part(0, "rgb_hwc_uint8");
        let spec = json!({"action_spec": {"a": part(3, "x")}, "observation_spec": {"i": image}});
        let mut bytes = wire::write(&hello(spec), Dialect::VlaEval);
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(message) = wire::read(&Bytes::from(bytes))
            && let Ok(hello) = VlaEvalHello::read(&message.value)
        {
            let _ = hello.check(sides(&env()), &wiring(Json::Null).unwrap());
        }
    }
}
