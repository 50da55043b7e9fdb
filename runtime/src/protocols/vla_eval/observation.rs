//! Converts the observations of a benchmark to GR00T's form.
//!
//! ```text
//! images: {<view>: [H, W, 3]}   by the checkpoint's names, or as many in its order
//! states, state                 a vector with all of the checkpoint's states, or {<state>: [D]}
//! task_description              the instruction
//! ```
//! An image is an array, or what vla-eval's `image_codec` makes of it:
//!
//! ```text
//! {"__image__": true, "format": "png", "data": file, "shape": [height, width, 3]}   its default
//! {"__image__": true, "format": "raw", "data": …, "dtype": "|u1", "shape": …}
//! ```

use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use models::gr00t::processor::{Modalities, ModalityConfig};
use wire::{Array, Dtype, Key, Value};

use crate::policy::{Window, looks_back};
use crate::protocols::numbers;
use crate::protocols::observation::{ValidatedRequest, asked, divided, reshaped};
use crate::serve::card::ServedSpec;
use crate::serve::request::{RequestError, RequestLimits};

/// Maximum number of values of the states together.
const MOST_NUMBERS: usize = 1 << 16;

/// Names of images in an error.
const MOST_NAMES: usize = 20;

/// Offset of width and height in a PNG file: behind its signature and the head of the chunk IHDR.
const IHDR: std::ops::Range<usize> = 16..24;

/// The reason for a picture that has another form.
const FORM: &str = "expected an array [height, width, 3] of uint8, as it is or as PNG";

/// An observation as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub observation: Value,
    /// Size of its message in bytes.
    pub bytes: usize,
}

/// The last observations of an episode, which are decoded again for each inference that needs them.
#[derive(Debug)]
pub(super) struct PastObservations {
    /// How many are kept; 0 if only the current one counts.
    looks_back: usize,
    seen: Option<Window<Sent>>,
}

impl PastObservations {
    /// Keeps as many observations as the checkpoint looks back.
    pub(super) fn new(modalities: &Modalities) -> Self {
        let deltas = [&modalities.video, &modalities.state].map(|modality| &modality.delta_indices);
        let deltas = deltas.map(|deltas| looks_back(deltas));
        Self {
            looks_back: deltas[0].max(deltas[1]),
            seen: None,
        }
    }

    /// Returns how many bytes of messages are kept.
    pub(super) fn bytes(&self) -> usize {
        let seen = self.seen.iter().flat_map(Window::iter);
        seen.map(|sent| sent.bytes).sum()
    }

    /// Forgets the episode.
    pub(super) fn clear(&mut self) {
        self.seen = None;
    }

    /// Adds an observation.
    pub(super) fn push(&mut self, sent: Arc<Sent>) {
        if let Some(before) = self.looks_back.checked_sub(1) {
            match &mut self.seen {
                Some(seen) => seen.push(sent, before),
                none => *none = Some(Window::new(sent)),
            }
        }
    }

    /// Returns the observations for an inference.
    pub(super) fn with(&self, now: Arc<Sent>) -> Window<Sent> {
        match self.seen.clone() {
            None => Window::new(now),
            Some(mut seen) => {
                seen.push(now, self.looks_back);
                seen
            }
        }
    }
}

/// Returns an upper bound of the memory for the pictures of an inference once they are decoded.
/// Those with a longer edge than `longest_edge` are refused, and take none.
pub(super) fn decoded_bytes(seen: &Window<Sent>, card: &ServedSpec, longest_edge: usize) -> usize {
    let steps = seen.at(&card.keys.modalities.video.delta_indices);
    let images = steps.into_iter().flat_map(|step| images(&step.observation));
    let bytes = images.map(|(_, image)| picture_bytes(image, longest_edge));
    bytes.fold(0, usize::saturating_add)
}

fn images(step: &Value) -> &[(Key, Value)] {
    match step.get("images") {
        Some(Value::Map(members)) => members,
        _ => &[],
    }
}

/// Converts and checks the observations of one request: all the work that takes time in proportion
/// to its size.
///
/// # Errors
/// Returns [`RequestError`] for the first problem.
pub(super) fn validated(
    seen: &Window<Sent>,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<ValidatedRequest, RequestError> {
    let now = &seen.now().observation;
    let words = now.get("task_description").cloned();
    let words = words.unwrap_or_else(|| "".into());
    let words = Value::List(vec![Value::List(vec![words])]);
    let modalities = &card.keys.modalities;
    let at = |modality: &ModalityConfig| seen.at(&modality.delta_indices).into_iter();
    let (views, edge) = (&modalities.video.keys, limits.max_picture_edge);
    let video = at(&modalities.video).map(|step| pictures(&step.observation, views, edge));
    let state = at(&modalities.state).map(|step| states(&step.observation, card));
    let language = Value::map([(modalities.language_key(), words)]);
    let observation = Value::map([
        ("video", joined(video)?),
        ("state", joined(state)?),
        ("language", language),
    ]);
    asked(&observation, card, limits)
}

/// What one step shows, by the names of the checkpoint.
type Shown = Vec<(String, Array)>;

/// Returns the picture of each view, by name, or else by place, as vla-eval's own server of GR00T
/// does.
fn pictures(step: &Value, views: &[String], longest_edge: usize) -> Result<Shown, String> {
    let sent = images(step);
    let named = |view: &String| sent.iter().rev().find(|(key, _)| key.is(view));
    let by_name: Option<Vec<_>> = views.iter().map(named).collect();
    let found = match by_name {
        Some(found) => found,
        None if sent.len() == views.len() => sent.iter().collect(),
        None => {
            let names = sent.iter().take(MOST_NAMES).map(|(key, _)| key.shown());
            let names: Vec<String> = names.collect();
            let found = match &names[..] {
                [] => "no images".to_owned(),
                names => format!("images {}", names.join(", ")),
            };
            let wanted = views.join(", ");
            return Err(format!(
                "the observation has {found}, expected {wanted}, or as many images in this order"
            ));
        }
    };
    let read = |(view, (_, image)): (&String, &(Key, Value))| {
        let read = read_picture(image, longest_edge);
        let read = read.map_err(|reason| format!("image `{view}`: {reason}"))?;
        Ok((view.clone(), read))
    };
    views.iter().zip(found).map(read).collect()
}

/// Returns each state; those that were not sent are missing.
fn states(step: &Value, card: &ServedSpec) -> Result<Shown, String> {
    let keys = &card.keys.modalities.state.keys;
    let sent = step.get("states").or_else(|| step.get("state"));
    let Some(sent) = sent.filter(|sent| **sent != Value::Nil) else {
        return Ok(Vec::new());
    };
    if let Value::Map(_) = sent {
        let named = |key: &String| {
            let numbers = values(sent.get(key)?)?;
            Some((key.clone(), Array::vector(&numbers)))
        };
        return Ok(keys.iter().filter_map(named).collect());
    }
    let whole = values(sent).unwrap_or_default();
    let length = |key: &String| {
        let known = card.keys.states.iter().find(|(name, _)| name == key);
        known.and_then(|(_, length)| *length)
    };
    let lengths: Vec<Option<usize>> = match &keys[..] {
        [only] => vec![length(only).or(Some(whole.len()))],
        keys => keys.iter().map(length).collect(),
    };
    if let Some(parts) = divided(&whole, &lengths) {
        let parts = parts.into_iter().map(Array::vector);
        return Ok(keys.iter().cloned().zip(parts).collect());
    }
    let wanted = keys.iter().zip(&lengths).map(|(key, length)| match length {
        Some(length) => format!("{key} {length}"),
        None => format!("{key} ?"),
    });
    let (found, wanted) = (whole.len(), wanted.collect::<Vec<_>>().join(" + "));
    Err(format!("the state has {found} values, expected {wanted}"))
}

/// Returns the map of the arrays of all steps: `[1, steps, …]`.
fn joined(steps: impl Iterator<Item = Result<Shown, String>>) -> Result<Value, String> {
    let mut found: Vec<(String, Vec<Array>)> = Vec::new();
    for step in steps {
        for (name, array) in step? {
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(array),
                None => found.push((name, vec![array])),
            }
        }
    }
    let all = found.into_iter().map(|(name, arrays)| {
        let all = stacked(&name, &arrays)?;
        Ok((Key::Text(name), all))
    });
    Ok(Value::Map(all.collect::<Result<_, String>>()?))
}

/// Returns the numbers of an array or of a list that is not too long.
fn values(value: &Value) -> Option<Vec<f32>> {
    let is_long = |array: &Array| array.shape().iter().product::<usize>() > MOST_NUMBERS;
    match value.as_array() {
        Some(array) if is_long(array) => None,
        _ => numbers(value).map(|(_, numbers)| numbers),
    }
}

/// Joins arrays of the same shape: `[1, arrays, …]`.
fn stacked(name: &str, arrays: &[Array]) -> Result<Value, String> {
    let [first, others @ ..] = arrays else {
        return Ok(Value::Nil);
    };
    let shape = [&[1, arrays.len()], first.shape()].concat();
    if others.is_empty() {
        return Ok(reshaped(first, shape));
    }
    if others.iter().any(|other| other.shape() != first.shape()) {
        return Err(format!(
            "`{name}` has another size than in an earlier step of the episode"
        ));
    }
    let data: Vec<&[u8]> = arrays.iter().map(|array| &array.data()[..]).collect();
    let all = Array::new(first.dtype().clone(), shape, data.concat().into());
    Ok(all.map_or(Value::Nil, Value::Array))
}

/// Returns the pixels `[height, width, 3]`.
pub(super) fn read_picture(image: &Value, longest_edge: usize) -> Result<Array, String> {
    let array = match image {
        Value::Array(array) => array.clone(),
        other => match format(other) {
            None => return Err(FORM.to_owned()),
            Some("raw") => raw(other).ok_or(FORM)?,
            Some("png") => png(file(other).ok_or(FORM)?, longest_edge)?,
            Some(found) => {
                let found: String = found.chars().take(20).collect();
                return Err(format!(
                    "the format `{found}` is not read, expected png or raw"
                ));
            }
        },
    };
    match *array.shape() {
        [height, width, 3] if array.dtype().descr().ends_with("u1") => {
            check_edges(height, width, longest_edge)?;
            Ok(array)
        }
        _ => Err(FORM.to_owned()),
    }
}

fn check_edges(height: usize, width: usize, most: usize) -> Result<(), String> {
    if height.max(width) <= most {
        return Ok(());
    }
    Err(format!(
        "{height} x {width} pixels, expected at most {most} along an edge (--max-picture)"
    ))
}

/// Returns how much memory a picture takes once it is decoded; nothing if it will be refused.
pub(super) fn picture_bytes(image: &Value, longest_edge: usize) -> usize {
    match image {
        Value::Array(array) => array.data().len(),
        encoded => match file(encoded).and_then(edges) {
            Some([width, height]) if width.max(height) <= longest_edge => width * height * 3,
            _ => 0,
        },
    }
}

fn format(image: &Value) -> Option<&str> {
    image.get("__image__")?;
    image.get("format").and_then(Value::as_text)
}

fn file(image: &Value) -> Option<&Bytes> {
    match image.get("data") {
        Some(Value::Bytes(file)) => Some(file),
        _ => None,
    }
}

fn edges(png: &Bytes) -> Option<[usize; 2]> {
    let (edges, _) = png.get(IHDR)?.as_chunks::<4>();
    match edges {
        [width, height] => Some([*width, *height].map(|edge| u32::from_be_bytes(edge) as usize)),
        _ => None,
    }
}

fn raw(image: &Value) -> Option<Array> {
    let dtype = image.get("dtype").and_then(Value::as_text)?;
    let shape = image.get("shape").and_then(Value::as_list)?;
    let edge = |edge: &Value| edge.as_u64().and_then(|edge| usize::try_from(edge).ok());
    let shape: Option<Vec<usize>> = shape.iter().take(4).map(edge).collect();
    Array::new(Dtype::new(dtype).ok()?, shape?, file(image)?.clone()).ok()
}

fn png(file: &Bytes, longest_edge: usize) -> Result<Array, String> {
    let damaged = |err: png::DecodingError| format!("not a PNG file: {err}");
    // The head tells the size before anything is decompressed or allocated.
    if let Some([width, height]) = edges(file) {
        check_edges(height, width, longest_edge)?;
    }
    let decoder = png::Decoder::new(Cursor::new(&file[..]));
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (width, height) = (reader.info().width, reader.info().height);
    let [height, width] = [height, width].map(|edge| edge as usize);
    let (colour, depth) = reader.output_color_type();
    if (colour, depth) != (png::ColorType::Rgb, png::BitDepth::Eight) {
        let bits = depth as u8;
        return Err(format!(
            "not a PNG file: {colour:?} of {bits} bits, expected RGB of 8"
        ));
    }
    let mut pixels = vec![0; height * width * 3];
    reader.next_frame(&mut pixels).map_err(damaged)?;
    Ok(Array::of_u8(&[height, width, 3], pixels.into()))
}
