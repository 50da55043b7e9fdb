//! Tests of the messages against those that the reference has sent.

use super::*;

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
    let token = Some("s3cret");
    assert_eq!(
        packed(&request("ping", None, None), Dialect::Kind),
        golden("ping.request")
    );
    assert_eq!(
        packed(&request("ping", None, token), Dialect::Kind),
        golden("token_right.request")
    );
    let options = || Value::map([("options", Value::Nil)]);
    assert_eq!(
        packed(&request("reset", Some(options()), None), Dialect::Kind),
        golden("reset.request")
    );
    assert_eq!(
        packed(&request("get_modality_config", None, None), Dialect::Kind),
        golden("get_modality_config.request")
    );
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
    let names: Vec<String> = state.iter().map(|(key, _)| key.shown()).collect();
    let seen = RequestInputs {
        video: frames
            .iter()
            .map(|(key, frames)| (key.as_str(), vec![frames.iter().collect()]))
            .collect(),
        state: names
            .iter()
            .zip(&state)
            .map(|(key, (_, array))| (key.as_str(), vec![vec![array.as_array().unwrap().to_f32()]]))
            .collect(),
        language: words
            .iter()
            .map(|(key, text)| (key.as_str(), vec![text.as_str()]))
            .collect(),
    };
    let data = Value::map([
        ("observation", seen.observation().unwrap()),
        ("options", Value::Nil),
    ]);
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
        rgb: Bytes::copy_from_slice(rgb),
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
    assert_eq!(
        again("get_action.request", Dialect::Kind),
        golden("get_action.request")
    );
    assert_eq!(
        again("legacy_get_action.request", Dialect::Npy),
        golden("legacy_get_action.request")
    );
}

#[test]
fn a_modality_configuration_says_keys_steps_and_dialect() {
    let read = |name: &str| ServerModalities::read(&answer(&golden(name)).unwrap()).unwrap();
    let modalities = read("get_modality_config.response");
    assert_eq!(
        modalities.video.keys,
        ["exterior_image_1_left", "wrist_image_left"]
    );
    assert_eq!(
        (
            modalities.video.deltas.as_slice(),
            modalities.action.deltas.len()
        ),
        (&[-15, 0][..], 40)
    );
    assert_eq!(
        modalities.language.keys,
        ["annotation.language.language_instruction"]
    );
    assert_eq!(modalities.dialect, Dialect::Kind);
    let legacy = read("legacy_get_modality_config.response");
    assert_eq!(
        legacy,
        ServerModalities {
            dialect: Dialect::Npy,
            ..modalities
        }
    );
    assert!(
        ServerModalities::read(&Value::Nil)
            .unwrap_err()
            .to_string()
            .contains("no `action.as_json`")
    );
}

#[test]
fn a_server_that_wants_the_whole_past_is_refused() {
    let looks = |deltas: Vec<Value>| {
        let config = |deltas| {
            let keys: Vec<Value> = vec!["x".into()];
            Value::map([(
                "as_json",
                Value::map([
                    ("modality_keys", keys.into()),
                    ("delta_indices", Value::List(deltas)),
                ]),
            )])
        };
        ServerModalities::read(&Value::map([
            ("action", config(vec![Value::Int(0)])),
            ("video", config(deltas)),
        ]))
    };
    assert!(looks(vec![Value::Int(-128), Value::Int(0)]).is_ok());
    let wanted = "its modality configuration looks back more than 128 steps in `video`";
    assert_eq!(
        looks(vec![Value::Int(-129)]).unwrap_err().to_string(),
        wanted
    );
    assert_eq!(
        looks(vec![Value::Int(0); 129]).unwrap_err().to_string(),
        wanted
    );
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
    let refusal = |rows, horizon| {
        actions(&value, &keys, rows, horizon)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal(2, 16),
        "actions eef_9d are [1, 40, 9], expected [2, 16 or more, 1 or more]"
    );
    assert!(refusal(1, 41).contains("[1, 41 or more, 1 or more]"));
    assert_eq!(
        actions(&value, &["base".to_owned()], 1, 1)
            .unwrap_err()
            .to_string(),
        "its answer has no actions base"
    );
    assert!(
        actions(&Value::Nil, &keys, 1, 1)
            .unwrap_err()
            .to_string()
            .contains("not a list of actions")
    );
}

#[test]
fn what_a_server_says_is_wrong_is_an_error_in_its_words() {
    let error = |bytes: Bytes| answer(&bytes).unwrap_err().to_string();
    assert_eq!(
        error(golden("token_wrong.response")),
        "it answers with the error `Unauthorized: Invalid API token`"
    );
    assert_eq!(
        error(golden("garbage.response")),
        "it answers with an error without a message"
    );
    assert_eq!(error(Bytes::from_static(b"ERROR")), "it answers ERROR");
    assert!(error(Bytes::from_static(b"\xc1")).starts_with("its answer cannot be read: "));
}
