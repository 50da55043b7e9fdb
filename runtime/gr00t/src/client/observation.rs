//! Observations of Python clients: checks them in the reference's order and with its messages, then
//! splits them into rows.

use std::collections::BTreeMap;

use jobs::refusal::Refusal;

use crate::client::value::{PyArray, PyObject, tuple};
use crate::processor::{Modalities, ModalityConfig, RgbPicture, RowInputs, StateSteps};

/// Checks `{"video": {…}, "state": {…}, "language": {…}}`.
///
/// # Errors
/// Returns [`Refusal`] with the reference's message for the first error.
pub fn validate(observation: &PyObject, modalities: &Modalities) -> Result<(), Refusal> {
    let parts = ["video", "state", "language"];
    for name in parts {
        let Some(part) = observation.get(name) else {
            return refuse(format!("Observation must contain a '{name}' key"));
        };
        if !matches!(part, PyObject::Map(_)) {
            return refuse(format!(
                "Observation '{name}' must be a dictionary. Got {}: {}",
                part.class(),
                part.repr()
            ));
        }
    }
    let member = |part: &str, key: &str| observation.get(part).and_then(|part| part.get(key));
    let mut batch = None;
    for key in &modalities.video.keys {
        let value = present("Video", key, member("video", key))?;
        same_batch("Video", key, value, &mut batch)?;
        video(key, value, &modalities.video)?;
    }
    for key in &modalities.state.keys {
        let value = present("State", key, member("state", key))?;
        same_batch("State", key, value, &mut batch)?;
        state(key, value, &modalities.state)?;
    }
    let key = modalities.language_key();
    let value = present("Language", key, member("language", key))?;
    same_batch("Language", key, value, &mut batch)?;
    language(key, value, modalities.language.horizon())
}

/// Checks an observation of the simulation wrapper (`video.<key>`, `state.<key>` and the language
/// key side by side) and converts it to the form that [`validate`] checks. Batch sizes are not
/// compared here.
///
/// # Errors
/// Returns [`Refusal`] with the reference's message for the first error.
pub fn validate_flat(observation: &PyObject, modalities: &Modalities) -> Result<PyObject, Refusal> {
    let mut videos = Vec::new();
    for key in &modalities.video.keys {
        let flat = format!("video.{key}");
        let value = present("Video", &flat, observation.get(&flat))?;
        video(&flat, value, &modalities.video)?;
        videos.push((key.clone(), value.clone()));
    }
    let mut states = Vec::new();
    for key in &modalities.state.keys {
        let flat = format!("state.{key}");
        let value = present("State", &flat, observation.get(&flat))?;
        state(&flat, value, &modalities.state)?;
        states.push((key.clone(), value.clone()));
    }
    let key = modalities.language_key();
    let coarse = "annotation.human.coarse_action";
    let used = if key == "task" && observation.get(coarse).is_some() {
        coarse
    } else {
        key
    };
    let value = present("Language", used, observation.get(used))?;
    let (PyObject::List(items) | PyObject::Tuple(items)) = value else {
        return refuse(format!(
            "Language key '{used}' must be a tuple or list. Got {}",
            value.class()
        ));
    };
    items.iter().try_for_each(text_item)?;
    let texts = items
        .iter()
        .map(|item| PyObject::List(vec![item.clone()]))
        .collect();
    let language = vec![(key.to_owned(), PyObject::List(texts))];
    let parts = [("video", videos), ("state", states), ("language", language)];
    Ok(PyObject::Map(
        parts
            .map(|(name, members)| (name.to_owned(), PyObject::Map(members)))
            .into(),
    ))
}

fn refuse<T>(text: String) -> Result<T, Refusal> {
    Err(Refusal::new(text))
}

fn present<'a>(
    kind: &str,
    key: &str,
    value: Option<&'a PyObject>,
) -> Result<&'a PyObject, Refusal> {
    value.ok_or_else(|| Refusal::new(format!("{kind} key '{key}' must be in observation")))
}

/// Checks that a key has the same batch size as the first key.
fn same_batch(
    kind: &str,
    key: &str,
    value: &PyObject,
    batch: &mut Option<usize>,
) -> Result<(), Refusal> {
    let found = value.len()?;
    let wanted = *batch.get_or_insert(found);
    if found == wanted {
        return Ok(());
    }
    refuse(format!(
        "{kind} key '{key}' must have batch size {wanted}. Got {found}"
    ))
}

fn array<'a>(
    kind: &str,
    key: &str,
    value: &'a PyObject,
    dtype: &str,
    shape: &str,
) -> Result<&'a PyArray, Refusal> {
    let PyObject::Array(array) = value else {
        return refuse(format!(
            "{kind} key '{key}' must be a numpy array. Got {}",
            value.class()
        ));
    };
    if array.dtype() != dtype {
        return refuse(format!(
            "{kind} key '{key}' must be a numpy array of type np.{dtype}. Got {}",
            array.dtype()
        ));
    }
    if array.shape().len() != shape.split(',').count() {
        let found = tuple(array.shape());
        return refuse(format!(
            "{kind} key '{key}' must be a numpy array of shape {shape}, got {found}"
        ));
    }
    Ok(array)
}

fn horizon(kind: &str, key: &str, found: usize, modality: &ModalityConfig) -> Result<(), Refusal> {
    let wanted = modality.horizon();
    if found == wanted {
        return Ok(());
    }
    refuse(format!(
        "{kind} key '{key}'s horizon must be {wanted}. Got {found}"
    ))
}

fn video(key: &str, value: &PyObject, modality: &ModalityConfig) -> Result<(), Refusal> {
    let array = array("Video", key, value, "uint8", "(B, T, H, W, C)")?;
    horizon("Video", key, array.shape()[1], modality)?;
    match array.shape()[4] {
        3 => Ok(()),
        other => refuse(format!(
            "Video key '{key}'s channel 'C' must be 3. Got {other}"
        )),
    }
}

fn state(key: &str, value: &PyObject, modality: &ModalityConfig) -> Result<(), Refusal> {
    let array = array("State", key, value, "float32", "(B, T, D)")?;
    horizon("State", key, array.shape()[1], modality)
}

fn language(key: &str, value: &PyObject, horizon: usize) -> Result<(), Refusal> {
    let PyObject::List(batch) = value else {
        return refuse(format!(
            "Language key '{key}' must be a list. Got {}",
            value.class()
        ));
    };
    for item in batch {
        if item.len()? != horizon {
            // The reference reports the length of the batch here, not that of the item.
            return refuse(format!(
                "Language key '{key}'s horizon must be {horizon}. Got {}",
                batch.len()
            ));
        }
        let PyObject::List(texts) = item else {
            return refuse(format!(
                "Language batch item must be a list. Got {}",
                item.class()
            ));
        };
        let [text] = &texts[..] else {
            return refuse(format!(
                "Language batch item must have exactly one item. Got {}",
                texts.len()
            ));
        };
        text_item(text)?;
    }
    Ok(())
}

fn text_item(item: &PyObject) -> Result<(), Refusal> {
    match item {
        PyObject::Text(_) => Ok(()),
        other => refuse(format!(
            "Language batch item must be a string. Got {}",
            other.class()
        )),
    }
}

/// A checked observation, split into rows.
#[derive(Debug)]
pub struct ClientObservations<'a> {
    size: usize,
    video: Vec<(&'a str, &'a PyArray)>,
    /// Key, number of steps, width, and all values.
    state: Vec<(&'a str, [usize; 2], Vec<f32>)>,
    instructions: Vec<&'a str>,
}

impl<'a> ClientObservations<'a> {
    /// Checks an observation with [`validate`] and extracts the parts that the checkpoint uses.
    ///
    /// # Errors
    /// Returns [`Refusal`] with the reference's message for the first error.
    pub fn read(observation: &'a PyObject, modalities: &'a Modalities) -> Result<Self, Refusal> {
        validate(observation, modalities)?;
        let arrays = |part: &str, keys: &'a [String]| -> Vec<(&'a str, &'a PyArray)> {
            let member = |key: &'a String| match observation.get(part)?.get(key)? {
                PyObject::Array(array) => Some((key.as_str(), array)),
                _ => None,
            };
            keys.iter().filter_map(member).collect()
        };
        let state = arrays("state", &modalities.state.keys)
            .into_iter()
            .map(|(key, array)| {
                let numbers = array
                    .bytes()
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|bytes| f32::from_le_bytes(*bytes))
                    .collect();
                (key, [array.shape()[1], array.shape()[2]], numbers)
            });
        let texts = observation
            .get("language")
            .and_then(|part| part.get(modalities.language_key()));
        let instructions = match texts {
            Some(PyObject::List(items)) => items.iter().filter_map(first_text).collect(),
            _ => Vec::new(),
        };
        let video = arrays("video", &modalities.video.keys);
        Ok(Self {
            size: instructions.len(),
            video,
            state: state.collect(),
            instructions,
        })
    }

    /// Returns the number of rows.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the inputs of each row.
    ///
    /// # Errors
    /// Returns [`Refusal`] if a picture or a state is empty.
    pub fn rows(&self) -> Result<Vec<RowInputs<'_>>, Refusal> {
        (0..self.size).map(|index| self.row(index)).collect()
    }

    fn row(&self, index: usize) -> Result<RowInputs<'_>, Refusal> {
        let mut video = BTreeMap::new();
        for (key, array) in &self.video {
            let (steps, height, width) = (array.shape()[1], array.shape()[2], array.shape()[3]);
            let frame = height * width * 3;
            let sample = array
                .bytes()
                .get(index * steps * frame..)
                .unwrap_or_default();
            let pictures = (0..steps).map(|step| {
                RgbPicture::new(
                    height,
                    width,
                    sample
                        .get(step * frame..(step + 1) * frame)
                        .unwrap_or_default(),
                )
            });
            video.insert(*key, pictures.collect::<Result<Vec<_>, _>>()?);
        }
        let mut state = BTreeMap::new();
        for (key, [steps, width], numbers) in &self.state {
            let sample = numbers
                .get(index * steps * width..(index + 1) * steps * width)
                .unwrap_or_default();
            state.insert(*key, StateSteps::new(*width, sample)?);
        }
        Ok(RowInputs {
            video,
            state,
            instruction: self.instructions[index],
        })
    }
}

fn first_text(item: &PyObject) -> Option<&str> {
    match item {
        PyObject::List(texts) => match texts.first() {
            Some(PyObject::Text(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}
