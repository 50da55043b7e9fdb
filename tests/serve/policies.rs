//! Tests of policies that act for an interface: several types, both protocols, and clients whose
//! episodes do not mix.

use std::path::{Path, PathBuf};

use rig::wait::until;
use serde_json::json;
use wire::{Array, Value};

use crate::serve::client::{Client, error, numbers, with};
use crate::serve::server::Server;
use crate::serve::websocket::infer;

/// A robot with one camera of 2 × 2 pixels, one state and two actions.
fn interface(folder: &Path) -> PathBuf {
    let interface = json!({
        "cameras": {"front": [2, 2]},
        "states": {"eef_position": 3},
        "actions": {"names": (0..7).map(|index| format!("a{index}")).collect::<Vec<_>>(),
                    "low": [-1, -1, -1, -1, -1, -1, -1], "high": [1, 1, 1, 1, 1, 1, 1]},
        "control_hz": 20,
        "language": "wait",
    });
    let path = folder.join("interface.json");
    std::fs::write(&path, interface.to_string()).unwrap();
    path
}

/// Starts a server for the robot.
fn serve(folder: &Path, policy: &str, config: &serde_json::Value, more: &[&str]) -> Server {
    let (interface, config) = (interface(folder), config.to_string());
    let words = [
        "--interface",
        interface.to_str().unwrap(),
        "--policy-config",
        &config,
    ];
    Server::of(Path::new(policy), &[&words[..], more].concat())
}

/// Returns the settings of a Python policy with this source.
fn python(folder: &Path, source: &str) -> serde_json::Value {
    let path = folder.join("own.py");
    std::fs::write(&path, source).unwrap();
    json!({"policy": format!("{}:make", path.display()), "python": interpreter()})
}

fn interpreter() -> PathBuf {
    rig::fixture("../../.venv")
}

/// A policy whose actions say what it was asked for.
const TELLING: &str = "
import numpy as np
class make:
    spec = {'action_horizon': 2}
    def __init__(self, spec, device, seed):
        pass
    def act(self, observations, episodes):
        rows = [[e.env, e.seed, e.step, e.episode, picture.mean(), state[0], len(text)]
                for e, picture, state, text in zip(episodes, observations['pictures']['front'],
                    observations['state']['eef_position'], observations['instruction'])]
        return np.array(rows, np.float32)[:, None].repeat(2, 1)
";

fn picture(level: u8, axes: &[usize]) -> Value {
    let shape = [axes, &[2, 2, 3]].concat();
    Array::of_u8(&shape, vec![level; 12].into()).into()
}

/// Returns a request for actions with a picture of one level, a position and an instruction.
fn get_action(level: u8, x: f32, text: &str) -> Value {
    let state = Array::of_f32(&[1, 1, 3], &[x, 0.0, 0.0]);
    let texts: Value = vec![Value::from(vec![Value::from(text)])].into();
    let observation = Value::map([
        ("video", Value::map([("front", picture(level, &[1, 1]))])),
        ("state", Value::map([("eef_position", state.into())])),
        ("language", Value::map([("task", texts)])),
    ]);
    Value::map([
        ("endpoint", "get_action".into()),
        ("data", Value::map([("observation", observation)])),
    ])
}

fn reset(seed: u64) -> Value {
    let options = Value::map([("seed", seed.into())]);
    Value::map([
        ("endpoint", "reset".into()),
        ("data", Value::map([("options", options)])),
    ])
}

/// Returns an observation of openpi's client.
fn observation(level: u8, x: f32, seed: u64) -> Value {
    Value::map([
        ("observation/front", picture(level, &[])),
        (
            "observation/eef_position",
            Array::of_f32(&[3], &[x, 0.0, 0.0]).into(),
        ),
        ("reset", Value::map([("seed", seed.into())])),
    ])
}

/// Asks a server by both protocols in the first request of an episode; returns both actions.
fn both(server: &Server, seed: u64) -> [Vec<f32>; 2] {
    let mut client = Client::connect(server.address);
    client.ask_value(&reset(seed));
    let zmq = numbers(&client.ask_value(&get_action(9, 0.5, "wait")));
    [zmq, infer(server, &observation(9, 0.5, seed))]
}

#[test]
fn a_python_policy_sees_what_the_clients_of_both_protocols_send() {
    let folder = tempfile::tempdir().unwrap();
    let config = python(folder.path(), TELLING);
    let server = serve(folder.path(), "python", &config, &[]);
    for (slot, actions) in both(&server, 5).into_iter().enumerate() {
        let number = actions[3];
        let row = [slot as f32, 5.0, 0.0, number, 9.0, 0.5, 4.0];
        assert_eq!(actions, [row, row].concat());
    }
}

#[test]
fn a_torchscript_module_answers_both_protocols() {
    let folder = tempfile::tempdir().unwrap();
    // The sum of the position and the first byte of the instruction, seven times.
    let path = rig::fixture("modules/sum.pt");
    let config = json!({"model_path": path, "max_tokens": 8});
    let server = serve(folder.path(), "torchscript", &config, &[]);
    let wanted = vec![0.5 + f32::from(b'w') + 9.0; 7];
    assert_eq!(both(&server, 5), [wanted.clone(), wanted]);
}

#[test]
fn a_robot_gets_an_error_instead_of_nan() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"model_path": rig::fixture("modules/root.pt"), "max_tokens": 8});
    let server = serve(folder.path(), "torchscript", &config, &[]);
    let mut client = Client::connect(server.address);
    assert_eq!(
        error(&client.ask_value(&get_action(9, -1.0, "wait"))),
        "policy `torchscript` gave NaN as `a0` of action 0"
    );
    let answer = client.ask_value(&get_action(9, 0.25, "wait"));
    assert_eq!(numbers(&answer), [0.5; 7], "the client goes on");
}

#[test]
fn random_actions_follow_from_the_seed_of_the_episode() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), "random_action", &json!({}), &[]);
    let [first, second] = both(&server, 5);
    assert_eq!(first, second);
    assert_ne!(first, both(&server, 6)[0]);
}

#[test]
fn the_episodes_of_clients_do_not_mix_and_end_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = python(folder.path(), TELLING);
    let server = serve(folder.path(), "python", &config, &["--max-batch", "8"]);
    let ask = |client: &mut Client| {
        let actions = numbers(&client.ask_value(&get_action(0, 0.0, "")));
        [actions[0], actions[1], actions[2], actions[3]]
    };
    let mut one = Client::connect(server.address);
    let mut other = Client::connect(server.address);
    one.ask_value(&reset(7));
    other.ask_value(&reset(8));
    assert_eq!(ask(&mut one), [0.0, 7.0, 0.0, 1.0]);
    assert_eq!(ask(&mut other), [1.0, 8.0, 0.0, 1.0]);
    assert_eq!(ask(&mut one), [0.0, 7.0, 2.0, 1.0]);
    other.ask_value(&reset(9));
    assert_eq!(ask(&mut other), [1.0, 9.0, 0.0, 2.0]);
    assert_eq!(ask(&mut one), [0.0, 7.0, 4.0, 1.0]);
    drop(one);
    // The server forgets the client before it counts the scrape alone and the other one.
    until("the client has left", || {
        server.metric("rrun_serve_connections") <= 2.0
    });
    let mut third = Client::connect(server.address);
    assert_eq!(ask(&mut third)[..1], [0.0]);
    assert_eq!(ask(&mut other), [1.0, 9.0, 2.0, 2.0]);
}

#[test]
fn a_worker_that_dies_costs_the_requests_of_its_call_alone() {
    let folder = tempfile::tempdir().unwrap();
    let toy = rig::fixture("policies/toy.py");
    let config = json!({
        "policy": format!("{}:Toy", toy.display()), "python": interpreter(),
        "policy_kwargs": {"fault": "die"}, "max_restarts": 1,
    });
    let server = serve(folder.path(), "python", &config, &[]);
    let mut client = Client::connect(server.address);
    let mut faulty = Client::connect(server.address);
    faulty.ask_value(&reset(13));
    client.ask_value(&reset(1));
    let request = get_action(0, 0.25, "");
    assert_eq!(numbers(&client.ask_value(&request))[1], 0.25);
    let text = faulty.ask_value(&request);
    assert!(error(&text).contains("SIGKILL"), "{text:?}");
    assert_eq!(numbers(&client.ask_value(&request))[4], 2.0);
    // The second death uses up the restarts, and then the server ends, for `rrun` to restart it.
    assert!(error(&faulty.ask_value(&request)).contains("SIGKILL"));
    assert!(error(&client.ask_value(&request)).contains("the policy's thread has ended"));
    server.wait().fails_with(1).stderr_has("toy.py:Toy");
}

#[test]
fn noise_is_refused_where_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), "zero_action", &json!({}), &[]);
    let noise = Array::of_f32(&[1, 1, 1], &[0.0]);
    let options = Value::map([("noise", noise.into())]);
    let request = with(&get_action(0, 0.0, ""), "data/options", options);
    let answer = Client::connect(server.address).ask_value(&request);
    assert!(
        error(&answer).contains("policy zero_action has no noise"),
        "{answer:?}"
    );
}
