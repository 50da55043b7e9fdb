//! Messages of GR00T's `PolicyClient` and `PolicyServer` (gr00t/policy/server_client.py, N1.7):
//! values only, no connections.

use bytes::Bytes;

use crate::env::Frame;
use models::gr00t::processor::KeyActions;
use wire::{Array, Dialect, Key, Value};

/// Maximum number of steps that a checkpoint may look back, and of steps at which it may use
/// pictures and states. GR00T N1.7 uses two, fifteen steps apart. This many observations of each
/// environment are kept, and sent with each request.
const LONGEST_LOOK: i64 = 128;

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
pub(super) fn answer(bytes: &Bytes) -> Result<Value, String> {
    if bytes.starts_with(RAW_ERROR) {
        return Err("it answers ERROR".to_owned());
    }
    let value = wire::read(bytes).map_err(|err| format!("its answer cannot be read: {err}"))?;
    let value = value.value;
    match value.get("error") {
        None => Ok(value),
        Some(Value::Text(text)) if !text.is_empty() => {
            Err(format!("it answers with the error `{text}`"))
        }
        Some(_) => Err("it answers with an error without a message".to_owned()),
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
    pub fn read(answer: &Value) -> Result<Self, String> {
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
            return Err("its modality configuration has no actions".to_owned());
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
fn seen(answer: &Value, name: &str) -> Result<ServerModality, String> {
    let seen = modality(answer, name)?;
    if seen.deltas.len() as i64 > LONGEST_LOOK
        || seen.deltas.iter().any(|delta| *delta < -LONGEST_LOOK)
    {
        return Err(format!(
            "its modality configuration looks back more than {LONGEST_LOOK} steps in `{name}`"
        ));
    }
    Ok(seen)
}

fn modality(answer: &Value, name: &str) -> Result<ServerModality, String> {
    let wrong = |field: &str| format!("its modality configuration has no `{name}.{field}`");
    let config = answer
        .get(name)
        .and_then(|config| config.get("as_json"))
        .ok_or_else(|| wrong("as_json"))?;
    let list = |field: &str| {
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
    pub fn observation(&self) -> Result<Value, String> {
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
            ("video", Value::Map(video.collect::<Result<_, String>>()?)),
            ("state", Value::Map(state.collect::<Result<_, String>>()?)),
            ("language", Value::Map(language.collect())),
        ]))
    }
}

fn pictures(key: &str, rows: &[Vec<&Frame>]) -> Result<Value, String> {
    let all = || rows.iter().flatten();
    let (height, width) = all().next().map_or((0, 0), |frame| {
        (frame.height as usize, frame.width as usize)
    });
    if all().any(|frame| (frame.height as usize, frame.width as usize) != (height, width)) {
        return Err(format!(
            "pictures of {key} have different sizes, one request takes pictures of one size"
        ));
    }
    let steps = rows.first().map_or(0, Vec::len);
    let mut bytes = Vec::with_capacity(rows.len() * steps * height * width * 3);
    all().for_each(|frame| bytes.extend_from_slice(&frame.rgb));
    Ok(Array::of_u8(&[rows.len(), steps, height, width, 3], bytes.into()).into())
}

fn vectors(key: &str, rows: &[Vec<Vec<f32>>]) -> Result<Value, String> {
    let all = || rows.iter().flatten();
    let width = all().next().map_or(0, Vec::len);
    if all().any(|vector| vector.len() != width) {
        return Err(format!("state {key} has different lengths"));
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
) -> Result<Vec<Vec<KeyActions>>, String> {
    let map = answer
        .as_list()
        .and_then(<[Value]>::first)
        .ok_or("its answer is not a list of actions and info")?;
    let mut chunks: Vec<Vec<KeyActions>> =
        (0..rows).map(|_| Vec::with_capacity(keys.len())).collect();
    for key in keys {
        let array = map
            .get(key)
            .and_then(Value::as_array)
            .ok_or_else(|| format!("its answer has no actions {key}"))?;
        let &[found, steps, width] = array.shape() else {
            let found = array.shape();
            return Err(format!(
                "actions {key} are {found:?}, expected [rows, horizon, width]"
            ));
        };
        if found != rows || steps < horizon || width == 0 {
            let found = array.shape();
            return Err(format!(
                "actions {key} are {found:?}, expected [{rows}, {horizon} or more, 1 or more]"
            ));
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
mod tests;
