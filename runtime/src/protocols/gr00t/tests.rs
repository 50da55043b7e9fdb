//! Tests of the messages against those that the reference has sent.

use bytes::Bytes;
use jobs::policies::Gr00tRemote;
use serde_json::json;
use wire::{Dialect, Value};

use crate::env::Frame;
use crate::policy::remote::PolicyServer;
use crate::policy::tests::env_spec;
use crate::protocols::gr00t::client::{
    ServerModalities, actions, answer, pictures, request, vectors,
};
use crate::protocols::{ClientCodec as _, OnServer as _};

#[test]
fn arenas_fields_are_read() {
    let client = |given| {
        let given: Gr00tRemote =
            jobs::policies::read(serde_json::Value::as_object(&given).unwrap()).unwrap();
        let place = ("tcp", Gr00tRemote::PORT, Gr00tRemote::TIMEOUT);
        let server = PolicyServer::new(given.server().0, None, place).unwrap();
        assert_eq!(server.to_string(), "tcp://gpu7:5555");
        given.client(&server, &env_spec()).unwrap().facts()
    };
    let facts = client(json!({
        "remote_host": "gpu7", "remote_api_token": "x", "scheduler": "synced_batch",
        "policy_device": "cuda:0", "model_path": "nvidia/GR00T-N1.7-3B", "num_envs": 4,
    }));
    assert!(facts.notes[0].starts_with("scheduler synced_batch is treated as chunk"));
    assert_eq!(facts.reported, [("policy_seed", json!(10))]);
    let facts = client(json!({"remote_host": "gpu7", "remote_noise_seeds": false}));
    assert_eq!(facts.reported, [("policy_seed", json!(null))]);
}

fn golden(name: &str) -> Bytes {
    let path = format!(
        "{}/../tests/fixtures/gr00t/protocol/{name}.bin",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::read(&path)
        .unwrap_or_else(|err| panic!("{path}: {err}"))
        .into()
}

fn packed(value: &Value, dialect: Dialect) -> Bytes {
    wire::write(value, dialect).into()
}

#[test]
fn requests_are_those_of_the_reference() {
    let options = Value::map([("options", Value::Nil)]);
    for (endpoint, data, token, name) in [
        ("ping", None, None, "ping.request"),
        ("ping", None, Some("s3cret"), "token_right.request"),
        ("reset", Some(options), None, "reset.request"),
        (
            "get_modality_config",
            None,
            None,
            "get_modality_config.request",
        ),
    ] {
        let request = packed(&request(endpoint, data, token), Dialect::Kind);
        assert_eq!(request, golden(name), "{name}");
    }
}

/// Takes the pictures, vectors and texts of a golden request apart and puts them together
/// again.
fn again(name: &str, dialect: Dialect) -> Bytes {
    let value = wire::read(&golden(name)).unwrap().value;
    let observation = value
        .get("data")
        .and_then(|data| data.get("observation"))
        .unwrap()
        .clone();
    let member = |kind: &str| match observation.get(kind) {
        Some(Value::Map(members)) => members.clone(),
        other => panic!("{other:?}"),
    };
    let (video, state, language) = (member("video"), member("state"), member("language"));
    let frames: Vec<(String, Vec<Frame>)> = video
        .iter()
        .map(|(key, array)| (key.shown(), frames(array)))
        .collect();
    let texts = |value: &Value| {
        value.as_list().unwrap()[0].as_list().unwrap()[0]
            .as_text()
            .unwrap()
            .to_owned()
    };
    let words: Vec<(String, String)> = language
        .iter()
        .map(|(key, value)| (key.shown(), texts(value)))
        .collect();
    let video = frames.iter().map(|(key, frames)| {
        let steps = [1, frames.len()];
        let frames: Vec<&Frame> = frames.iter().collect();
        (key.as_str().into(), pictures(key, &frames, steps).unwrap())
    });
    let state = state.iter().map(|(key, array)| {
        let vector = array.as_array().unwrap().to_f32();
        (
            key.clone(),
            vectors(&key.shown(), &[vector], [1, 1]).unwrap(),
        )
    });
    let language = words.iter().map(|(key, text)| {
        let texts: Value = vec![text.as_str().into()].into();
        (key.as_str().into(), vec![texts].into())
    });
    let observation = Value::map([
        ("video", Value::Map(video.collect())),
        ("state", Value::Map(state.collect())),
        ("language", Value::Map(language.collect())),
    ]);
    let data = Value::map([("observation", observation), ("options", Value::Nil)]);
    packed(&request("get_action", Some(data), None), dialect)
}

fn frames(array: &Value) -> Vec<Frame> {
    let array = array.as_array().unwrap();
    let &[1, steps, height, width, 3] = array.shape() else {
        panic!("{:?}", array.shape())
    };
    let frame = |rgb: &[u8]| Frame {
        height: height as u32,
        width: width as u32,
        rgb: rgb.to_vec().into(),
    };
    assert_eq!(array.data().len(), steps * height * width * 3);
    array
        .data()
        .chunks_exact(height * width * 3)
        .map(frame)
        .collect()
}

#[test]
fn an_observation_is_packed_byte_for_byte_as_the_reference_packs_it() {
    for (name, dialect) in [
        ("get_action.request", Dialect::Kind),
        ("legacy_get_action.request", Dialect::Npy),
    ] {
        assert_eq!(again(name, dialect), golden(name), "{name}");
    }
}

#[test]
fn a_modality_configuration_says_keys_steps_and_dialect() {
    let read = |name: &str| ServerModalities::read(&answer(&golden(name)).unwrap()).unwrap();
    let modalities = read("get_modality_config.response");
    let views = ["exterior_image_1_left", "wrist_image_left"];
    assert_eq!(modalities.video.keys, views);
    assert_eq!(modalities.video.deltas, [-15, 0]);
    assert_eq!(modalities.action.deltas.len(), 40);
    let instruction = "annotation.language.language_instruction";
    assert_eq!(modalities.language.keys, [instruction]);
    assert_eq!(modalities.dialect, Dialect::Kind);
    let legacy = ServerModalities {
        dialect: Dialect::Npy,
        ..modalities
    };
    assert_eq!(read("legacy_get_modality_config.response"), legacy);
    let refused = ServerModalities::read(&Value::Nil).unwrap_err();
    assert!(refused.contains("no `action.as_json`"), "{refused}");
}

#[test]
fn a_server_that_wants_the_whole_past_is_refused() {
    let looks = |deltas: Vec<Value>| {
        let config = |deltas| {
            let keys: Vec<Value> = vec!["x".into()];
            let modality = [
                ("modality_keys", keys.into()),
                ("delta_indices", Value::List(deltas)),
            ];
            Value::map([("as_json", Value::map(modality))])
        };
        let action = config(vec![Value::Int(0)]);
        ServerModalities::read(&Value::map([("action", action), ("video", config(deltas))]))
    };
    assert!(looks(vec![Value::Int(-128), Value::Int(0)]).is_ok());
    let wanted = "its modality configuration looks back more than 128 steps in `video`";
    for deltas in [vec![Value::Int(-129)], vec![Value::Int(0); 129]] {
        assert_eq!(looks(deltas).unwrap_err(), wanted);
    }
}

#[test]
fn actions_are_read_by_key_and_row() {
    let keys = ["eef_9d", "gripper_position", "joint_position"].map(str::to_owned);
    for name in ["get_action.response", "legacy_get_action.response"] {
        let value = answer(&golden(name)).unwrap();
        let chunks = actions(&value, &keys, 1, 16).unwrap();
        let widths: Vec<_> = chunks[0]
            .iter()
            .map(|rows| (rows.width, rows.values.len()))
            .collect();
        assert_eq!(widths, [(9, 144), (1, 16), (7, 112)]);
    }
    let value = answer(&golden("get_action.response")).unwrap();
    let base = ["base".to_owned()];
    for (value, keys, rows, horizon, reason) in [
        (
            &value,
            &keys[..],
            2,
            16,
            "actions eef_9d are [1, 40, 9], expected [2, 16 or more, 1 or more]",
        ),
        (&value, &keys, 1, 41, "[1, 41 or more, 1 or more]"),
        (&value, &base, 1, 1, "its answer has no actions base"),
        (&Value::Nil, &keys, 1, 1, "not a list of actions"),
    ] {
        let refused = actions(value, keys, rows, horizon).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn what_a_server_says_is_wrong_is_an_error_in_its_words() {
    let error = |bytes: Bytes| answer(&bytes).unwrap_err();
    for (answer, reason) in [
        (
            golden("token_wrong.response"),
            "it answers with the error `Unauthorized: Invalid API token`",
        ),
        (
            golden("garbage.response"),
            "it answers with an error without a message",
        ),
        (Bytes::from_static(b"ERROR"), "it answers ERROR"),
        (Bytes::from_static(b"\xc1"), "its answer cannot be read: "),
    ] {
        let text = error(answer);
        assert!(text.starts_with(reason), "{text}");
    }
}
