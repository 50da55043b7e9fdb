//! Messages of GR00T's `PolicyClient` and `PolicyServer` (gr00t/policy/server_client.py, N1.7):
//! values only, no connections.

use bytes::Bytes;

use crate::env::Frame;
use crate::policy::gr00t::remote::error::{LONGEST_LOOK, ProtocolError};
use gr00t::processor::KeyActions;
use wire::{Array, Dialect, Key, Value};

/// Prefix of a raw answer that is sent if not even an error could be packed.
const RAW_ERROR: &[u8] = b"ERROR";

/// Builds a request from its endpoint, its arguments, and the token if there is one.
pub(super) fn request(endpoint: &str, data: Option<Value>, token: Option<&str>) -> Value {
    let mut members = vec![(Key::from("endpoint"), Value::from(endpoint))];
    members.extend(data.map(|data| (Key::from("data"), data)));
    members.extend(token.map(|token| (Key::from("api_token"), Value::from(token))));
    Value::Map(members)
}

/// Returns the value of an answer.
///
/// # Errors
/// Returns the error that the server reports, or what is wrong with its answer.
pub(super) fn answer(bytes: &Bytes) -> Result<Value, ProtocolError> {
    if bytes.starts_with(RAW_ERROR) {
        return Err(ProtocolError::Raw);
    }
    let value = wire::read(bytes)?.value;
    match value.get("error") {
        None => Ok(value),
        Some(Value::Text(text)) if !text.is_empty() => {
            Err(ProtocolError::Reported { text: text.clone() })
        }
        Some(_) => Err(ProtocolError::NoWords),
    }
}

/// One modality: the keys and time steps of a kind of input or output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerModality {
    /// Key names, in order.
    pub keys: Vec<String>,
    /// Time steps relative to now, with 0 for now.
    pub deltas: Vec<i64>,
}

/// The modalities of a server's checkpoint, and the dialect in which it writes arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerModalities {
    pub video: ServerModality,
    pub state: ServerModality,
    pub action: ServerModality,
    pub language: ServerModality,
    pub dialect: Dialect,
}

impl ServerModalities {
    /// Reads the answer to `get_modality_config`.
    ///
    /// # Errors
    /// Returns the name of what is missing.
    pub fn read(answer: &Value) -> Result<Self, ProtocolError> {
        let is_marked = |dialect: Dialect| {
            answer
                .get("action")
                .is_some_and(|config| config.get(dialect.modality_marker()).is_some())
        };
        let dialect = if is_marked(Dialect::Npy) {
            Dialect::Npy
        } else {
            Dialect::Kind
        };
        let action = modality(answer, "action")?;
        if action.keys.is_empty() || action.deltas.is_empty() {
            return Err(ProtocolError::NoActions);
        }
        let optional = |name: &str| {
            if answer.get(name).is_some() {
                seen(answer, name)
            } else {
                Ok(ServerModality::default())
            }
        };
        let (video, state, language) = (
            optional("video")?,
            optional("state")?,
            optional("language")?,
        );
        Ok(Self {
            video,
            state,
            action,
            language,
            dialect,
        })
    }
}

/// Reads an input modality and checks that its number of steps is within the limit.
fn seen(answer: &Value, name: &str) -> Result<ServerModality, ProtocolError> {
    let seen = modality(answer, name)?;
    if seen.deltas.len() as i64 > LONGEST_LOOK
        || seen.deltas.iter().any(|delta| *delta < -LONGEST_LOOK)
    {
        let name = name.to_owned();
        return Err(ProtocolError::LooksBack { name });
    }
    Ok(seen)
}

fn modality(answer: &Value, name: &str) -> Result<ServerModality, ProtocolError> {
    let wrong = |field: &'static str| ProtocolError::NoField {
        name: name.to_owned(),
        field,
    };
    let config = answer
        .get(name)
        .and_then(|config| config.get("as_json"))
        .ok_or_else(|| wrong("as_json"))?;
    let list = |field: &'static str| {
        config
            .get(field)
            .and_then(Value::as_list)
            .ok_or_else(|| wrong(field))
    };
    let keys = list("modality_keys")?
        .iter()
        .map(|key| key.as_text().map(str::to_owned));
    let deltas = list("delta_indices")?.iter().map(|delta| match delta {
        Value::Int(delta) if (-4096..=4096).contains(delta) => Some(*delta),
        _ => None,
    });
    Ok(ServerModality {
        keys: keys
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("modality_keys"))?,
        deltas: deltas
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("delta_indices"))?,
    })
}

/// The inputs of all rows of a request, by key. Each row has all steps of a key, oldest first.
#[derive(Debug, Default)]
pub(super) struct RequestInputs<'a> {
    pub video: Vec<(&'a str, Vec<Vec<&'a Frame>>)>,
    pub state: Vec<(&'a str, Vec<Vec<Vec<f32>>>)>,
    pub language: Vec<(&'a str, Vec<&'a str>)>,
}

impl RequestInputs<'_> {
    /// Returns `{"video": {key: uint8 [rows, steps, height, width, 3]}, "state": {key: float32
    /// [rows, steps, width]}, "language": {key: [[text], …]}}`.
    ///
    /// # Errors
    /// Returns an error if rows differ in size.
    pub fn observation(&self) -> Result<Value, ProtocolError> {
        let video = self
            .video
            .iter()
            .map(|(key, rows)| Ok((Key::from(*key), pictures(key, rows)?)));
        let state = self
            .state
            .iter()
            .map(|(key, rows)| Ok((Key::from(*key), vectors(key, rows)?)));
        let language = self.language.iter().map(|(key, rows)| {
            let texts: Vec<Value> = rows
                .iter()
                .map(|text| vec![Value::from(*text)].into())
                .collect();
            (Key::from(*key), Value::from(texts))
        });
        Ok(Value::map([
            (
                "video",
                Value::Map(video.collect::<Result<_, ProtocolError>>()?),
            ),
            (
                "state",
                Value::Map(state.collect::<Result<_, ProtocolError>>()?),
            ),
            ("language", Value::Map(language.collect())),
        ]))
    }
}

fn pictures(key: &str, rows: &[Vec<&Frame>]) -> Result<Value, ProtocolError> {
    let all = || rows.iter().flatten();
    let (height, width) = all().next().map_or((0, 0), |frame| {
        (frame.height as usize, frame.width as usize)
    });
    if all().any(|frame| (frame.height as usize, frame.width as usize) != (height, width)) {
        let key = key.to_owned();
        return Err(ProtocolError::PictureSizes { key });
    }
    let steps = rows.first().map_or(0, Vec::len);
    let mut bytes = Vec::with_capacity(rows.len() * steps * height * width * 3);
    all().for_each(|frame| bytes.extend_from_slice(&frame.rgb));
    Ok(Array::of_u8(&[rows.len(), steps, height, width, 3], bytes.into()).into())
}

fn vectors(key: &str, rows: &[Vec<Vec<f32>>]) -> Result<Value, ProtocolError> {
    let all = || rows.iter().flatten();
    let width = all().next().map_or(0, Vec::len);
    if all().any(|vector| vector.len() != width) {
        let key = key.to_owned();
        return Err(ProtocolError::StateLengths { key });
    }
    let numbers: Vec<f32> = all().flatten().copied().collect();
    Ok(Array::of_f32(
        &[rows.len(), rows.first().map_or(0, Vec::len), width],
        &numbers,
    )
    .into())
}

/// Returns the actions of each row from the answer to `get_action`: `[{key: float32 [rows, horizon
/// or more, width]}, info]`.
///
/// # Errors
/// Returns what is missing or has another shape.
pub(super) fn actions(
    answer: &Value,
    keys: &[String],
    rows: usize,
    horizon: usize,
) -> Result<Vec<Vec<KeyActions>>, ProtocolError> {
    let map = answer
        .as_list()
        .and_then(<[Value]>::first)
        .ok_or(ProtocolError::NoList)?;
    let mut chunks: Vec<Vec<KeyActions>> =
        (0..rows).map(|_| Vec::with_capacity(keys.len())).collect();
    for key in keys {
        let array = map
            .get(key)
            .and_then(Value::as_array)
            .ok_or_else(|| ProtocolError::NoKey { key: key.clone() })?;
        let &[found, steps, width] = array.shape() else {
            return Err(ProtocolError::Axes {
                key: key.clone(),
                found: array.shape().to_vec(),
            });
        };
        if found != rows || steps < horizon || width == 0 {
            return Err(ProtocolError::Shape {
                key: key.clone(),
                found: array.shape().to_vec(),
                rows,
                horizon,
            });
        }
        let numbers = array.to_f32();
        for (chunk, values) in chunks.iter_mut().zip(numbers.chunks_exact(steps * width)) {
            chunk.push(KeyActions {
                key: key.clone(),
                width,
                values: values[..horizon * width].to_vec(),
            });
        }
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
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
                .map(|(key, (_, array))| {
                    (key.as_str(), vec![vec![array.as_array().unwrap().to_f32()]])
                })
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
            "actions eef_9d are [1, 40, 9], [2, 16 or more, 1 or more] is needed"
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
                .contains("no list of actions")
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
            "it answers with an error without words"
        );
        assert_eq!(error(Bytes::from_static(b"ERROR")), "it answers ERROR");
        assert!(error(Bytes::from_static(b"\xc1")).starts_with("its answer cannot be read: "));
    }
}
