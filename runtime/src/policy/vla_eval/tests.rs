use std::net::TcpListener;

use bytes::Bytes;
use jobs::wiring::{Sides, Wiring, vla_eval};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};
use tungstenite::Message;
use wire::{Array, Dialect, Value, VlaEvalKind, VlaEvalMessage};

use crate::env::{EnvSpec, Observation};
use crate::policy::remote::{Lifeline, PolicyServer};
use crate::policy::tests::{env_with, frame, row};
use crate::policy::vla_eval::VlaEvalSettings;
use crate::policy::vla_eval::answer::chunk;
use crate::policy::vla_eval::hello::VlaEvalHello;
use crate::policy::vla_eval::policy::shown;
use crate::policy::vla_eval::session::{SessionError, VlaEvalSession};
use crate::policy::{Chunk, PolicyRow};

fn env() -> EnvSpec {
    let mut env = env_with(&["front", "wrist"], [1, 2]);
    env.state = vec![("joints".to_owned(), 2), ("gripper".to_owned(), 1)];
    env
}

fn sides(env: &EnvSpec) -> Sides<'_> {
    Sides {
        policy: "vla_eval_remote",
        face: env,
    }
}

fn wiring(given: Json) -> Result<Wiring, String> {
    vla_eval(sides(&env()), given.as_object()).map_err(|err| err.to_string())
}

fn observation() -> Observation {
    let mut observation = Observation::empty();
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
    rig::cases::check("src/policy/vla_eval/hellos.txt", |given| {
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
    rig::cases::check("src/policy/vla_eval/answers.txt", taken);
    let list = Value::map([("action", vec![0.0.into(), 1i64.into()].into())]);
    assert_eq!(chunk(&list, None, 2), Ok(Chunk::new(2, vec![0.0, 1.0])));
    let row = Value::List(vec![0.0.into(), 1.0.into()]);
    let lists = Value::map([("actions", vec![row.clone(), row].into())]);
    let two = Chunk::new(2, vec![0.0, 1.0, 0.0, 1.0]);
    assert_eq!(chunk(&lists, Some(2), 2), Ok(two));
    let nothing = Value::map([("actions", Value::Nil)]);
    let refusal = chunk(&nothing, None, 2).unwrap_err();
    assert_eq!(refusal, "its answer has no numbers as `actions`");
}

/// What a server does: its replies to each message of a connection. It closes the connection after
/// an observation without a reply.
type Script = fn(usize, &VlaEvalMessage) -> Vec<VlaEvalMessage>;

fn message(kind: VlaEvalKind, seq: u64, payload: Value) -> VlaEvalMessage {
    VlaEvalMessage { kind, payload, seq }
}

/// Starts a server for `connections` connections, one after the other. The thread returns the names
/// of the messages that it got.
fn serve(
    connections: usize,
    script: Script,
) -> (PolicyServer, std::thread::JoinHandle<Vec<&'static str>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let mut heard = Vec::new();
        for connection in 0..connections {
            let mut socket = tungstenite::accept(listener.accept().unwrap().0).unwrap();
            while let Ok(Message::Binary(bytes)) = socket.read() {
                let message = VlaEvalMessage::read(&bytes).unwrap();
                heard.push(message.kind.name());
                let replies = script(connection, &message);
                let is_over = replies.is_empty() && message.kind == VlaEvalKind::Observation;
                for reply in replies {
                    socket.send(Message::Binary(reply.write(0.0))).unwrap();
                }
                if is_over {
                    break;
                }
            }
        }
        heard
    });
    let config = json!({"remote_host": "127.0.0.1", "remote_port": port, "remote_timeout_s": 60, "remote_retry_s": 60});
    let settings = VlaEvalSettings::read(config.as_object().unwrap()).unwrap();
    (settings.server, thread)
}

fn greeting(message: &VlaEvalMessage) -> Vec<VlaEvalMessage> {
    match message.kind {
        VlaEvalKind::Hello => {
            let hello = hello(json!({}));
            vec![self::message(VlaEvalKind::Hello, message.seq, hello)]
        }
        _ => Vec::new(),
    }
}

fn session(server: &PolicyServer) -> VlaEvalSession {
    VlaEvalSession::new(server, &Lifeline::alone(), None)
}

fn episode(number: u64) -> PolicyRow {
    PolicyRow {
        episode: number,
        seed: 7,
        ..row(0, Observation::empty())
    }
}

fn ask(session: &mut VlaEvalSession) -> Result<Value, SessionError> {
    let observation = Value::map([]);
    session.begin(&observation);
    session.finish(&observation)
}

#[test]
fn a_session_tells_of_episodes_and_skips_late_answers() {
    let (server, thread) = serve(1, |_, message| match message.kind {
        VlaEvalKind::Observation => vec![
            self::message(VlaEvalKind::Action, message.seq - 1, actions(&[3])),
            self::message(VlaEvalKind::Action, message.seq, actions(&[2])),
        ],
        VlaEvalKind::EpisodeStart => {
            let task = message.payload.get("task").unwrap();
            assert_eq!(task.get("seed").and_then(Value::as_u64), Some(7));
            assert_eq!(task.get("suite").and_then(Value::as_text), Some("s"));
            Vec::new()
        }
        _ => greeting(message),
    });
    let mut session = session(&server);
    let more = Map::from_iter([("suite".to_owned(), "s".into())]);
    for number in 0..2 {
        session.start_episode(&episode(number), "toy", &more);
        for _ in 0..2 {
            assert_eq!(ask(&mut session).unwrap(), actions(&[2]));
        }
    }
    drop(session);
    let each = ["episode_start", "observation", "observation"];
    let wanted = [&["hello"][..], &each, &["episode_end"], &each].concat();
    assert_eq!(thread.join().unwrap(), wanted);
}

#[test]
fn a_first_observation_is_sent_again_and_a_later_one_costs_its_episode() {
    let (server, thread) = serve(3, |connection, message| match message.kind {
        VlaEvalKind::Observation if connection == 0 || message.seq == 7 => Vec::new(),
        _ => answering(message, VlaEvalKind::Action, message.seq, actions(&[2])),
    });
    let mut session = session(&server);
    session.start_episode(&episode(0), "toy", &Map::new());
    assert_eq!(ask(&mut session).unwrap(), actions(&[2]));
    match ask(&mut session) {
        Err(SessionError::Episode(text)) => assert!(
            text.ends_with(
                "observation: it closed the connection; the server has lost the session of this \
                 episode"
            ),
            "{text}"
        ),
        other => panic!("{other:?}"),
    }
    session.start_episode(&episode(1), "toy", &Map::new());
    assert_eq!(ask(&mut session).unwrap(), actions(&[2]));
    drop(session);
    let each = ["hello", "episode_start", "observation"];
    let wanted = [&each[..], &each, &["observation"], &each].concat();
    assert_eq!(thread.join().unwrap(), wanted);
}

/// Answers an observation so, and greets.
fn answering(
    message: &VlaEvalMessage,
    kind: VlaEvalKind,
    seq: u64,
    payload: Value,
) -> Vec<VlaEvalMessage> {
    match message.kind {
        VlaEvalKind::Observation => vec![self::message(kind, seq, payload)],
        _ => greeting(message),
    }
}

#[test]
fn nonsense_costs_its_episode_alone() {
    let nonsense: [(Script, &str); 4] = [
        (
            |_, message| {
                let text = Value::map([("error", "the arm is on fire".into())]);
                answering(message, VlaEvalKind::Error, message.seq, text)
            },
            "it answers with an error: the arm is on fire",
        ),
        (
            |_, message| answering(message, VlaEvalKind::Action, 99, actions(&[2])),
            "it answers observation 3 with action 99",
        ),
        (
            |_, message| {
                let nothing = Value::map([]);
                answering(message, VlaEvalKind::EpisodeEnd, message.seq, nothing)
            },
            "it answers observation 3 with episode_end 3",
        ),
        (
            |_, message| match message.kind {
                VlaEvalKind::Hello => {
                    let other = hello(json!({"protocol_version": 9}));
                    vec![self::message(VlaEvalKind::Hello, message.seq, other)]
                }
                _ => Vec::new(),
            },
            "it speaks version 9 of vla-eval's protocol, expected 1",
        ),
    ];
    for (script, reason) in nonsense {
        let (server, _thread) = serve(1, script);
        let mut session = session(&server);
        session.start_episode(&episode(0), "toy", &Map::new());
        let reason = format!("observation: {reason}");
        match ask(&mut session) {
            Err(SessionError::Episode(text)) => assert!(text.ends_with(&reason), "{text}"),
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
            Just(Value::List(vec![1.0.into()])),
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
