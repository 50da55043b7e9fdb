//! Which cameras and states of an environment become which keys of an observation.
//!
//! ```text
//! {"images": {name: [height, width, 3]}, "states": [n], "task_description": words}
//! ```
//! Benchmarks of vla-eval choose these keys, and its model servers look for them: pictures in
//! `images`, the state as `states` or `state`.

use serde_json::{Map, Value as Json};
use wire::{Array, Key, Value};

use crate::env::{EnvSpec, Observation};
use crate::policy::openpi::picture;
use crate::policy::remote::inputs::{EnvInputs, InputSource, numbers};
use crate::policy::vla_eval::POLICY;
use crate::policy::{InferenceError, PolicyError, argument};

/// The key of the pictures, and what stands before their names in `observation_mapping`.
const IMAGES: &str = "images";

/// The key of the instruction.
const TASK: &str = "task_description";

/// The keys under which model servers look for the state.
const STATES: [&str; 2] = ["states", "state"];

/// The keys of an observation and their sources.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObservationMapping {
    /// Members of `images`.
    images: Vec<(String, InputSource)>,
    /// Other members.
    others: Vec<(String, InputSource)>,
    /// Height and width of the pictures that are sent; `None` leaves them as they are.
    size: Option<[usize; 2]>,
}

impl ObservationMapping {
    /// Reads `observation_mapping`: `images/<name>` is a camera, and any other key a camera, a
    /// state or a list of states. Without it, every camera keeps its name, and all states follow
    /// each other under both names of the state.
    ///
    /// # Errors
    /// Returns [`PolicyError::Setting`] for a malformed entry, and [`PolicyError::Mismatch`] for a
    /// name that the environment does not have.
    pub(super) fn new(
        env: &EnvSpec,
        given: Option<&Map<String, Json>>,
        size: Option<[usize; 2]>,
    ) -> Result<Self, PolicyError> {
        let Some(given) = given else {
            return Ok(Self::everything(env, size));
        };
        let (mut images, mut others) = (Vec::new(), Vec::new());
        for (key, source) in given {
            let refused = |wanted: &str| {
                let field = format!("observation_mapping.{key}");
                Err(argument(&field, &source.to_string(), wanted))
            };
            if key == IMAGES {
                return refused("expected images/<name>: camera");
            }
            if key == TASK {
                return refused("but the instruction is that of job or environment");
            }
            let found = EnvInputs {
                policy: POLICY,
                env,
            }
            .read(key, source)?;
            match key.strip_prefix("images/") {
                None => others.push((key.clone(), found)),
                Some(_) if matches!(found, InputSource::States(_)) => {
                    return refused("expected a camera");
                }
                Some(name) => images.push((name.to_owned(), found)),
            }
        }
        Ok(Self {
            images,
            others,
            size,
        })
    }

    fn everything(env: &EnvSpec, size: Option<[usize; 2]>) -> Self {
        let cameras = env.cameras.iter().map(|camera| &camera.name);
        let images = cameras.map(|name| (name.clone(), InputSource::Camera(name.clone())));
        let states: Vec<String> = env.state.iter().map(|(name, _)| name.clone()).collect();
        let keys = STATES.iter().filter(|_| !states.is_empty());
        let others = keys.map(|key| ((*key).to_owned(), InputSource::States(states.clone())));
        Self {
            images: images.collect(),
            others: others.collect(),
            size,
        }
    }

    /// Returns whether pictures are sent.
    pub(super) fn sees(&self) -> bool {
        let mut all = self.images.iter().chain(&self.others);
        all.any(|(_, source)| matches!(source, InputSource::Camera(_)))
    }

    /// Returns the names of the pictures.
    pub(super) fn pictures(&self) -> Vec<&str> {
        self.images.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the number of values of the state that a model server looks for; 0 if none is sent.
    pub(super) fn state_length(&self, env: &EnvSpec) -> usize {
        let state = self.others.iter().find(|(key, _)| STATES.contains(&&**key));
        let Some((_, InputSource::States(names))) = state else {
            return 0;
        };
        let lengths = env.state.iter().filter(|(name, _)| names.contains(name));
        lengths.map(|(_, length)| length).sum()
    }

    /// Returns what the server is shown.
    ///
    /// # Errors
    /// Returns [`InferenceError::Missing`] if the observation lacks a picture or a state.
    pub(super) fn observation(
        &self,
        observation: &Observation,
        instruction: &str,
    ) -> Result<Value, PolicyError> {
        let value = |(key, source): &(String, InputSource)| {
            let value = match source {
                InputSource::Camera(camera) => self.picture(camera, observation)?,
                InputSource::States(names) => {
                    let numbers = numbers(names, observation)?;
                    Array::of_f32(&[numbers.len()], &numbers).into()
                }
            };
            Ok((Key::from(key.as_str()), value))
        };
        let images: Result<_, PolicyError> = self.images.iter().map(value).collect();
        let mut members = vec![(Key::from(IMAGES), Value::Map(images?))];
        for other in &self.others {
            members.push(value(other)?);
        }
        members.push((Key::from(TASK), instruction.into()));
        Ok(Value::Map(members))
    }

    fn picture(&self, camera: &str, observation: &Observation) -> Result<Value, PolicyError> {
        let frame = observation.video.get(camera);
        let frame = frame.ok_or_else(|| InferenceError::no_picture(camera))?;
        let Some([height, width]) = self.size else {
            let shape = [frame.height as usize, frame.width as usize, 3];
            return Ok(Array::of_u8(&shape, frame.rgb.clone()).into());
        };
        let bytes = picture::resize_with_pad(frame, [height, width]);
        Ok(Array::of_u8(&[height, width, 3], bytes.into()).into())
    }
}
