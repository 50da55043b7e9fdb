//! Checks observations of clients in the reference's order and with its messages.

use jobs::refusal::Refusal;
use models::gr00t::processor::{Modalities, ModalityConfig};
use wire::{Array, Key, Value};

/// Maximum number of items of a list, and of letters of a text, that a refusal repeats.
const SHOWN: usize = 20;

/// What a valid observation shows, by the keys of the checkpoint.
#[derive(Debug, Default)]
pub struct Inputs<'a> {
    /// Pictures: `[rows, steps, height, width, 3]`, `u8`.
    pub video: Vec<(&'a str, &'a Array)>,
    /// Vectors: `[rows, steps, length]`, `f32`.
    pub state: Vec<(&'a str, &'a Array)>,
    /// The instruction of each row.
    pub language: Vec<&'a str>,
}

/// Reads `{"video": {…}, "state": {…}, "language": {…}}`.
///
/// # Errors
/// Returns [`Refusal`] with the reference's message for the first error.
pub fn validate<'a>(
    observation: &'a Value,
    modalities: &'a Modalities,
) -> Result<Inputs<'a>, Refusal> {
    for name in ["video", "state", "language"] {
        let Some(part) = observation.get(name) else {
            return refuse(format!("Observation must contain a '{name}' key"));
        };
        if !matches!(part, Value::Map(_)) {
            let (found, shown) = (class(part), shown(part));
            return refuse(format!(
                "Observation '{name}' must be a dictionary. Got {found}: {shown}"
            ));
        }
    }
    let member = |part: &str, key: &str| observation.get(part).and_then(|part| part.get(key));
    let mut batch = None;
    let mut arrays = |kind: &str, part: &str, modality: &'a ModalityConfig| {
        let array = |key: &'a String| {
            let value = present(kind, key, member(part, key))?;
            same_batch(kind, key, value, &mut batch)?;
            Ok((key.as_str(), checked(kind, key, value, modality)?))
        };
        let all = modality.keys.iter().map(array);
        all.collect::<Result<_, Refusal>>()
    };
    let video = arrays("Video", "video", &modalities.video)?;
    let state = arrays("State", "state", &modalities.state)?;
    let key = modalities.language_key();
    let value = present("Language", key, member("language", key))?;
    same_batch("Language", key, value, &mut batch)?;
    Ok(Inputs {
        video,
        state,
        language: language(key, value, modalities.language.horizon())?,
    })
}

/// Checks an observation of the simulation wrapper (`video.<key>`, `state.<key>` and the language
/// key side by side) and converts it to the form that [`validate`] checks. Batch sizes are not
/// compared here.
///
/// # Errors
/// Returns [`Refusal`] with the reference's message for the first error.
pub fn validate_flat(observation: &Value, modalities: &Modalities) -> Result<Value, Refusal> {
    let arrays = |kind: &str, part: &str, modality: &ModalityConfig| {
        let array = |key: &String| {
            let flat = format!("{part}.{key}");
            let value = present(kind, &flat, observation.get(&flat))?;
            checked(kind, &flat, value, modality)?;
            Ok((Key::from(key.as_str()), value.clone()))
        };
        let all = modality.keys.iter().map(array);
        all.collect::<Result<_, Refusal>>()
    };
    let video = arrays("Video", "video", &modalities.video)?;
    let state = arrays("State", "state", &modalities.state)?;
    let key = modalities.language_key();
    let coarse = "annotation.human.coarse_action";
    let used = if key == "task" && observation.get(coarse).is_some() {
        coarse
    } else {
        key
    };
    let value = present("Language", used, observation.get(used))?;
    let Value::List(items) = value else {
        return refuse(format!(
            "Language key '{used}' must be a tuple or list. Got {}",
            class(value)
        ));
    };
    let text = |item: &Value| text_item(item).map(|text| vec![Value::from(text)].into());
    let texts: Vec<Value> = items.iter().map(text).collect::<Result<_, Refusal>>()?;
    let language = vec![(Key::from(key), Value::List(texts))];
    Ok(Value::map([
        ("video", Value::Map(video)),
        ("state", Value::Map(state)),
        ("language", Value::Map(language)),
    ]))
}

fn refuse<T>(text: String) -> Result<T, Refusal> {
    Err(Refusal::new(text))
}

fn present<'a>(kind: &str, key: &str, value: Option<&'a Value>) -> Result<&'a Value, Refusal> {
    value.ok_or_else(|| Refusal::new(format!("{kind} key '{key}' must be in observation")))
}

/// Checks that a key has the same batch size as the first key.
fn same_batch(
    kind: &str,
    key: &str,
    value: &Value,
    batch: &mut Option<usize>,
) -> Result<(), Refusal> {
    let found = length(value)?;
    match *batch.get_or_insert(found) {
        wanted if wanted == found => Ok(()),
        wanted => refuse(format!(
            "{kind} key '{key}' must have batch size {wanted}. Got {found}"
        )),
    }
}

/// Returns the array of a key, which has as many steps as its modality.
fn checked<'a>(
    kind: &str,
    key: &str,
    value: &'a Value,
    modality: &ModalityConfig,
) -> Result<&'a Array, Refusal> {
    let (dtype, shape) = match kind {
        "Video" => ("uint8", "(B, T, H, W, C)"),
        _ => ("float32", "(B, T, D)"),
    };
    let (named, must) = (format!("{kind} key '{key}'"), "must be a numpy array");
    let Value::Array(array) = value else {
        return refuse(format!("{named} {must}. Got {}", class(value)));
    };
    let found = array.dtype().name();
    if found != dtype {
        return refuse(format!("{named} {must} of type np.{dtype}. Got {found}"));
    }
    if array.shape().len() != shape.split(',').count() {
        let found = tuple(array.shape());
        return refuse(format!("{named} {must} of shape {shape}, got {found}"));
    }
    let (found, wanted) = (array.shape()[1], modality.horizon());
    if found != wanted {
        return refuse(format!("{named}s horizon must be {wanted}. Got {found}"));
    }
    match *array.shape() {
        [_, _, _, _, other] if other != 3 => {
            refuse(format!("{named}s channel 'C' must be 3. Got {other}"))
        }
        _ => Ok(array),
    }
}

fn language<'a>(key: &str, value: &'a Value, horizon: usize) -> Result<Vec<&'a str>, Refusal> {
    let Value::List(batch) = value else {
        let found = class(value);
        return refuse(format!("Language key '{key}' must be a list. Got {found}"));
    };
    let text = |item: &'a Value| {
        if length(item)? != horizon {
            // The reference reports the length of the batch here, not that of the item.
            let found = batch.len();
            return refuse(format!(
                "Language key '{key}'s horizon must be {horizon}. Got {found}"
            ));
        }
        match item {
            Value::List(texts) => match &texts[..] {
                [text] => text_item(text),
                texts => {
                    let (must, found) = ("must have exactly one item", texts.len());
                    refuse(format!("Language batch item {must}. Got {found}"))
                }
            },
            other => {
                let found = class(other);
                refuse(format!("Language batch item must be a list. Got {found}"))
            }
        }
    };
    batch.iter().map(text).collect()
}

fn text_item(item: &Value) -> Result<&str, Refusal> {
    item.as_text().ok_or_else(|| {
        let found = class(item);
        Refusal::new(format!("Language batch item must be a string. Got {found}"))
    })
}

/// Returns `str(type(value))`.
fn class(value: &Value) -> String {
    format!("<class '{}'>", value.type_name())
}

/// Returns `len(value)`, or Python's `TypeError`.
fn length(value: &Value) -> Result<usize, Refusal> {
    match value {
        Value::Text(text) => Ok(text.chars().count()),
        Value::Bytes(bytes) => Ok(bytes.len()),
        Value::List(items) => Ok(items.len()),
        Value::Map(members) => Ok(members.len()),
        Value::Array(array) => match array.shape() {
            [] => refuse("len() of unsized object".to_owned()),
            [first, ..] => Ok(*first),
        },
        other => refuse(format!(
            "object of type '{}' has no len()",
            other.type_name()
        )),
    }
}

/// Returns a value as Python shows it, but only the beginning of a long one, and only the type of
/// what is inside lists and maps.
fn shown(value: &Value) -> String {
    let items = |items: &[Value]| -> Vec<String> { items.iter().take(SHOWN).map(inner).collect() };
    match value {
        Value::List(all) => format!("[{}]", items(all).join(", ")),
        other => inner(other),
    }
}

fn inner(value: &Value) -> String {
    match value {
        Value::Nil => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Large(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Text(text) => format!("'{}'", text.chars().take(SHOWN).collect::<String>()),
        other => class(other),
    }
}

/// Returns `str` of a tuple of numbers.
fn tuple(numbers: &[usize]) -> String {
    match numbers {
        [only] => format!("({only},)"),
        _ => format!("{numbers:?}").replace('[', "(").replace(']', ")"),
    }
}
