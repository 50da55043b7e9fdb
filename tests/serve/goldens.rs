//! Tests with recorded exchanges of the reference's client and server, over a real socket.

use bytes::Bytes;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use wire::{Array, Dialect, Value, read, write};

use crate::serve::client::{Client, file, get_action};
use crate::serve::server::Server;

/// The dtype of the recording.
const AS_RECORDED: &[&str] = &["--policy-config", r#"{"dtype": "bfloat16"}"#];

/// Returns an answer without the numbers of its arrays.
fn form(bytes: &[u8]) -> (Value, usize) {
    fn without_numbers(value: Value) -> Value {
        match value {
            Value::Array(array) => Array::new(
                array.dtype().clone(),
                array.shape().to_vec(),
                vec![0; array.data().len()].into(),
            )
            .unwrap()
            .into(),
            Value::List(items) => Value::List(items.into_iter().map(without_numbers).collect()),
            Value::Map(members) => Value::Map(
                members
                    .into_iter()
                    .map(|(k, v)| (k, without_numbers(v)))
                    .collect(),
            ),
            other => other,
        }
    }
    (
        without_numbers(read(&Bytes::copy_from_slice(bytes)).unwrap().value),
        bytes.len(),
    )
}

#[test]
fn recorded_requests_get_the_recorded_answers() {
    let server = Server::start(AS_RECORDED);
    let mut client = Client::connect(server.address);
    let exact = [
        "ping",
        "get_modality_config",
        "reset",
        "unknown_endpoint",
        "bad_dtype",
        "bad_argument",
        "object_array",
    ];
    for name in exact {
        let answer = client.ask(&file(&format!("{name}.request.bin")));
        let recorded = file(&format!("{name}.response.bin"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&answer), text(&recorded), "{name}");
    }
    // Requests without their own noise use another noise than the recording: everything but the
    // numbers is the same.
    for name in [
        "get_action",
        "get_action_default_endpoint",
        "legacy_get_action",
    ] {
        let recorded = name.replace("_default_endpoint", "");
        let answer = client.ask(&file(&format!("{name}.request.bin")));
        assert_eq!(
            form(&answer),
            form(&file(&format!("{recorded}.response.bin"))),
            "{name}"
        );
    }
    // The last message of the client was in the older dialect.
    assert_eq!(
        client.ask(&file("get_modality_config.request.bin")),
        file("legacy_get_modality_config.response.bin")
    );
    assert_eq!(
        client.ask(&file("legacy_ping.request.bin")),
        file("ping.response.bin")
    );
    assert_eq!(
        client.ask(&file("kill.request.bin")),
        file("kill.response.bin")
    );
    let ended = server.wait().succeeds();
    ended.stderr_has("stopping: a client asked for it");
}

#[test]
fn actions_are_those_of_the_reference() {
    let server = Server::start(AS_RECORDED);
    let bytes = file("get_action.expected.safetensors");
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let noise = expected.tensor("noise").unwrap();
    assert_eq!(noise.dtype(), Dtype::BF16);
    // As float32, whose upper half is bfloat16.
    let halves = noise.data().as_chunks::<2>().0.iter();
    let noise = halves.flat_map(|[low, high]| [0, 0, *low, *high]).collect();
    let noise = array(&expected.tensor("noise").unwrap(), noise);
    let request = get_action(Value::map([("noise", noise.into())]));
    let answer = Client::connect(server.address).ask_value(&request);
    let actions = &answer.as_list().unwrap()[0];
    for (name, expected) in expected.tensors() {
        let Some(key) = name.strip_prefix("action.") else {
            continue;
        };
        let found = actions.get(key).and_then(Value::as_array).unwrap();
        assert_eq!(found.shape(), expected.shape(), "{name}");
        let expected = array(&expected, expected.data().to_vec()).to_f32();
        let found = found.to_f32();
        let square = |numbers: &mut dyn Iterator<Item = f32>| {
            numbers
                .map(|x| f64::from(x) * f64::from(x))
                .sum::<f64>()
                .sqrt()
        };
        let distance = square(&mut found.iter().zip(&expected).map(|(a, b)| a - b))
            / square(&mut expected.iter().copied());
        // The bound of the recording is 0.015 on normalised actions; a pose relative to the robot's
        // is closer.
        assert!(distance < 0.02, "{name}: {distance}");
    }
}

/// Returns the array of a tensor's shape with these elements of float32.
fn array(tensor: &TensorView, elements: Vec<u8>) -> Array {
    let dtype = wire::Dtype::new("<f4").unwrap();
    Array::new(dtype, tensor.shape().to_vec(), elements.into()).unwrap()
}

#[test]
fn a_token_is_asked_for() {
    let server = Server::start(&["--api-token", "s3cret"]);
    let mut client = Client::connect(server.address);
    for name in ["token_missing", "token_wrong", "token_right"] {
        let answer = client.ask(&file(&format!("{name}.request.bin")));
        assert_eq!(answer, file(&format!("{name}.response.bin")), "{name}");
    }
    assert_eq!(
        server.metric("rrun_serve_rejected_total{reason=\"unauthorized\"}"),
        2.0
    );
}

#[test]
fn a_client_that_sent_no_array_has_the_form_that_was_chosen() {
    let server = Server::start(&["--arrays", "npy"]);
    let mut client = Client::connect(server.address);
    let request = write(
        &Value::map([("endpoint", "get_modality_config".into())]),
        Dialect::Kind,
    );
    assert_eq!(
        client.ask(&request),
        file("legacy_get_modality_config.response.bin")
    );
}
