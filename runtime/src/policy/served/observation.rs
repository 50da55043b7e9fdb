//! Takes the observations of a request apart: one for each row and step, in the names and sizes of
//! an interface. The request has been validated against the modalities.

use std::collections::BTreeMap;
use std::sync::Arc;

use gr00t::client::{PyArray, PyObject};

use crate::env::{EnvSpec, Frame, Observation};
use crate::policy::InferenceError;

/// The observations of a request.
pub struct ClientRows<'a> {
    video: Vec<(&'a str, &'a PyArray)>,
    state: Vec<(&'a str, &'a PyArray)>,
    instructions: Vec<Arc<str>>,
    /// Number of steps of each row, of which the last one is now.
    steps: usize,
}

impl<'a> ClientRows<'a> {
    /// Reads the arrays of a request with `rows` rows of `steps` steps each. Images are those of
    /// `env`'s cameras if `has_video`.
    ///
    /// # Errors
    /// Returns an error that names the first array of another size than that of the interface.
    pub fn read(
        observation: &'a PyObject,
        env: &'a EnvSpec,
        has_video: bool,
        [rows, steps]: [usize; 2],
    ) -> Result<Self, InferenceError> {
        let array = |part: &str, key: &str| match observation.get(part)?.get(key)? {
            PyObject::Array(array) => Some(array),
            _ => None,
        };
        let mut video = Vec::new();
        for camera in env.cameras.iter().filter(|_| has_video) {
            let name = camera.name.as_str();
            let found = array("video", name).ok_or_else(|| InferenceError::no_picture(name))?;
            let wanted = [camera.height as usize, camera.width as usize];
            check(
                "picture of camera",
                name,
                found,
                &[rows, steps, wanted[0], wanted[1], 3],
            )?;
            video.push((name, found));
        }
        let mut state = Vec::new();
        for (name, length) in &env.state {
            let found = array("state", name).ok_or_else(|| InferenceError::no_state(name))?;
            check("state", name, found, &[rows, steps, *length])?;
            state.push((name.as_str(), found));
        }
        let instructions = texts(observation.get("language"));
        if instructions.len() != rows {
            return Err(InferenceError::NoRows);
        }
        Ok(Self {
            video,
            state,
            instructions,
            steps,
        })
    }

    /// Returns the observations of a row, of which the last one is now. Images share the memory of
    /// the message.
    pub fn row(&self, row: usize) -> Vec<Observation> {
        (0..self.steps)
            .map(|step| self.observation(row, step))
            .collect()
    }

    fn observation(&self, row: usize, step: usize) -> Observation {
        let place = row * self.steps + step;
        let frame = |(name, array): &(&str, &PyArray)| {
            let (height, width) = (array.shape()[2], array.shape()[3]);
            let bytes = height * width * 3;
            let frame = Frame {
                height: u32::try_from(height).unwrap_or(0),
                width: u32::try_from(width).unwrap_or(0),
                rgb: array.shared().slice(place * bytes..(place + 1) * bytes),
            };
            ((*name).to_owned(), frame)
        };
        let vector = |(name, array): &(&str, &PyArray)| {
            let bytes = array.shape()[2] * size_of::<f32>();
            let vector = &array.bytes()[place * bytes..(place + 1) * bytes];
            let values = vector.as_chunks::<4>().0.iter();
            let values = values.map(|value| f32::from_le_bytes(*value)).collect();
            ((*name).to_owned(), values)
        };
        Observation {
            state: self.state.iter().map(vector).collect::<BTreeMap<_, _>>(),
            video: self.video.iter().map(frame).collect(),
            language: Arc::clone(&self.instructions[row]),
            ..Observation::empty()
        }
    }
}

/// Checks the shape of an array, and with it the number of its bytes.
fn check(
    what: &'static str,
    name: &str,
    array: &PyArray,
    wanted: &[usize],
) -> Result<(), InferenceError> {
    let found = array.shape();
    if found == wanted {
        return Ok(());
    }
    Err(InferenceError::ClientShape {
        what,
        name: name.to_owned(),
        found: found.to_vec(),
        wanted: wanted.to_vec(),
    })
}

/// Returns the instruction of each row: `{key: [[text], …]}`.
fn texts(language: Option<&PyObject>) -> Vec<Arc<str>> {
    let Some(PyObject::Map(members)) = language else {
        return Vec::new();
    };
    let Some((_, PyObject::List(rows))) = members.first() else {
        return Vec::new();
    };
    let text = |row: &PyObject| match row {
        PyObject::List(texts) => match texts.first() {
            Some(PyObject::Text(text)) => Arc::from(text.as_str()),
            _ => Arc::from(""),
        },
        _ => Arc::from(""),
    };
    rows.iter().map(text).collect()
}
