//! The GR00T policy: turns observations of many environments into chunks of actions.
//!
//! ```text
//! rows ─► wiring ─► inference (processor, network, processor) ─► wiring
//! ```
//!
//! Prompts of different lengths do not share a batch unless the settings ask for it, because
//! padding reaches the real tokens through the self-attention over the backbone's features. The
//! noise comes from the episode's seed and the number of the inference in the episode, so a chunk
//! does not depend on what else is inferred, or fails to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::{Kind, Tensor};

use crate::env::{CameraSpec, EnvSpec, Frame, Observation};
use crate::policy::gr00t::actions;
use crate::policy::gr00t::continuing::PreviousChunks;
use crate::policy::gr00t::inference::{self, Gr00tInference, RowChunk, RowStart, inference};
use crate::policy::gr00t::settings::Gr00tSettings;
use crate::policy::seen;
use crate::policy::{
    Checkpoints, Chunk, OwnKeys, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError,
    RowNoise, Shortage, Window, looks_back,
};
use jobs::policies::PolicyType;
use jobs::wiring::{ActionPlaces, Sides, Wiring};
use models::gr00t::processor::{KeyActions, Processor, RgbPicture, RowInputs, StateSteps};

/// A checkpoint that acts in one environment.
#[derive(Debug)]
pub struct Gr00tPolicy {
    inference: Gr00tInference,
    wiring: Wiring,
    places: ActionPlaces,
    action_dim: usize,
    /// The newest chunks, if the next ones continue them.
    previous: Option<PreviousChunks>,
    /// The steps, from now, of which it sees the pictures and the states.
    deltas: [Vec<i64>; 2],
    /// Number of actions of a chunk that may be used.
    horizon: usize,
    /// Maximum number of rows of one inference.
    max_rows: usize,
    /// A blank observation of the environment, for warming up.
    blank: Option<Window>,
    /// Whether it acts for its own keys, and not for an environment.
    has_own_keys: bool,
    settings: Gr00tSettings,
}

impl Gr00tPolicy {
    /// Loads the checkpoint that the settings name and connects it to the environment, if there is
    /// one. Otherwise its own keys are those of observations and actions: then pictures and states
    /// have the steps that it sees, and no others.
    ///
    /// # Errors
    /// Returns an error if files cannot be used and if checkpoint and environment do not fit
    /// together.
    pub fn new(
        mut settings: Gr00tSettings,
        env: Option<&EnvSpec>,
        checkpoints: &mut Checkpoints,
    ) -> Result<Self, PolicyError> {
        // Read the small files first, so that errors in them show before gigabytes are read.
        let processor = inference::open_processor(&settings)?;
        let modalities = processor.modalities();
        let mut deltas =
            [&modalities.video, &modalities.state].map(|modality| modality.delta_indices.clone());
        let (views, states) = (&modalities.video.keys, processor.numbers().state_keys());
        let (actions, joints) = (action_keys(&processor), settings.joints.as_ref());
        let (wiring, places, previous) = match env {
            Some(env) => {
                let sides = Sides {
                    policy: PolicyType::Gr00t.name(),
                    face: env,
                };
                let given = (settings.cameras.as_deref(), joints);
                let wiring = Wiring::checkpoint(sides, views, states, given)?;
                let places = ActionPlaces::new(sides, &actions, joints)?;
                (wiring, places, PreviousChunks::new(&settings, &processor)?)
            }
            None => {
                settings.language = None;
                deltas = deltas.map(|deltas| (1 - deltas.len() as i64..=0).collect());
                let wiring = Wiring::own(views, states.iter().map(|(key, _)| *key));
                (wiring, ActionPlaces::one_after_the_other(&actions), None)
            }
        };
        let action_dim = match env {
            Some(env) => env.action.names.len(),
            None => actions.iter().map(|(_, width)| width).sum(),
        };
        let inference = Gr00tInference::load(&settings, processor, checkpoints)?;
        let horizon = match env {
            Some(_) => inference::horizon(&settings, &inference)?,
            None => inference.horizon(),
        };
        Ok(Self {
            previous,
            inference,
            wiring,
            places,
            action_dim,
            horizon,
            max_rows: usize::MAX,
            deltas,
            blank: env.map(|env| Window::new(Arc::new(blank(env)))),
            has_own_keys: env.is_none(),
            settings,
        })
    }

    /// Returns what the checkpoint gives for each row.
    fn infer(&self, rows: &[PolicyRow]) -> Result<Vec<Result<RowChunk, RowError>>, PolicyError> {
        let (mut inputs, mut starts) = (Vec::new(), Vec::new());
        let mut refusals = Vec::with_capacity(rows.len());
        for row in rows {
            let prepared = self.inputs(&row.window);
            match prepared.and_then(|input| Ok((input, self.start(row)?))) {
                Ok((input, start)) => {
                    inputs.push(input);
                    starts.push(start);
                    refusals.push(None);
                }
                Err(err) => refusals.push(Some(err.of_row()?)),
            }
        }
        let inferred = self.inference.infer_from(&inputs, &starts, self.max_rows)?;
        let mut inferred = inferred.into_iter();
        let gone = || Err(RowError::not_inferred());
        let answer = |refusal: Option<RowError>| match refusal {
            Some(err) => Err(err),
            None => inferred.next().unwrap_or_else(gone),
        };
        Ok(refusals.into_iter().map(answer).collect())
    }

    /// Returns where the denoising of a row starts.
    fn start(&self, row: &PolicyRow) -> Result<RowStart, PolicyError> {
        let noise = match &row.noise {
            None => self.inference.noise(row.noise_seed(self.settings.seed)),
            Some(RowNoise::Seed(seed)) => self.inference.noise(*seed),
            Some(RowNoise::Given(numbers)) => Tensor::from_slice(numbers)
                .reshape(self.inference.noise_shape())
                .to_kind(Kind::Float),
        };
        match &self.previous {
            Some(previous) => previous.start(row, &noise, self.inference.horizon()),
            None => Ok(RowStart::at(noise)),
        }
    }

    /// Runs `rows` blank rows twice: the second run is as fast as later ones.
    fn run_blank(&self, rows: usize) -> Result<(), PolicyError> {
        let Some(blank) = &self.blank else {
            return Ok(());
        };
        let inputs = vec![self.inputs(blank)?; rows];
        let noises: Vec<Tensor> = (0..rows)
            .map(|row| self.inference.noise(row as u64))
            .collect();
        for _ in 0..2 {
            self.inference.infer(&inputs, &noises, self.max_rows)?;
        }
        Ok(())
    }

    /// Returns what the checkpoint reads of an observation and of those before it, under its own
    /// keys.
    fn inputs<'a>(&'a self, seen: &'a Window) -> Result<RowInputs<'a>, PolicyError> {
        let frames = seen.at(&self.deltas[0]);
        let mut video = BTreeMap::new();
        for (key, camera) in self.wiring.cameras() {
            let pictures = frames.iter().map(|seen| picture(seen, camera));
            video.insert(key, pictures.collect::<Result<_, _>>()?);
        }
        let steps = seen.at(&self.deltas[1]);
        let mut state = BTreeMap::new();
        for (key, parts) in self.wiring.states() {
            let values = steps.iter().map(|step| seen::numbers(parts, step));
            let values: Vec<Vec<f32>> = values.collect::<Result<_, _>>()?;
            let width = values.first().map_or(0, Vec::len);
            let values = StateSteps::new(width, values.concat()).map_err(inference)?;
            state.insert(key, values);
        }
        let instruction = seen::words(seen.now(), self.settings.language.as_deref());
        Ok(RowInputs {
            video,
            state,
            instruction,
        })
    }

    fn chunk(&self, actions: &[KeyActions]) -> Chunk {
        actions::placed(&self.places, actions, [self.horizon, self.action_dim])
    }
}

impl Policy for Gr00tPolicy {
    fn facts(&self) -> PolicyFacts {
        let rate = self.settings.rtc_ramp_rate;
        let rtc = rate.map(|rate| ("rtc_ramp_rate", rate.into()));
        let own_keys = || {
            let processor = self.inference.processor();
            let states = processor.numbers().state_keys().into_iter();
            OwnKeys {
                modalities: processor.modalities().clone(),
                states: states.map(|(key, width)| (key.to_owned(), width)).collect(),
                actions: action_keys(processor),
                noise_shape: self.inference.noise_shape().map(|edge| edge as usize),
                seed: self.settings.seed,
            }
        };
        PolicyFacts {
            horizon: self.horizon,
            needs_video: true,
            looks_back: looks_back(&self.deltas.concat()),
            own_keys: self.has_own_keys.then(own_keys),
            reported: self
                .inference
                .facts(&self.settings)
                .into_iter()
                .chain(rtc)
                .collect(),
            ..PolicyFacts::default()
        }
    }

    fn warm_up(&mut self, rows: usize, max_rows: usize) {
        self.max_rows = max_rows.max(1);
        if !self.inference.warms_up() {
            return;
        }
        if let Err(err) = self.run_blank(rows.clamp(1, self.max_rows)) {
            // The first episode will report the error.
            tracing::debug!("warming up: {err}");
        }
    }

    fn shortage(&self) -> Shortage {
        self.inference.shortage()
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let mut answers = Vec::with_capacity(rows.len());
        for (row, inferred) in rows.iter().zip(self.infer(rows)?) {
            let chunk = inferred.map(|RowChunk { predicted, actions }| {
                if let Some(previous) = &mut self.previous {
                    previous.keep(row.env, predicted);
                }
                self.chunk(&actions)
            });
            answers.push(chunk.into());
        }
        Ok(answers)
    }
}

fn picture<'a>(seen: &'a Observation, camera: &str) -> Result<RgbPicture<'a>, PolicyError> {
    let frame = seen::frame(camera, seen)?;
    RgbPicture::new(frame.height as usize, frame.width as usize, &frame.rgb).map_err(inference)
}

/// Returns an observation with black images, a zero state, and the task.
fn blank(env: &EnvSpec) -> Observation {
    let mut blank = Observation::empty();
    blank.state = env
        .state
        .iter()
        .map(|(key, width)| (key.clone(), vec![0.0; *width]))
        .collect();
    blank.language = env.language.as_str().into();
    blank.video = env
        .cameras
        .iter()
        .map(|camera| (camera.name.clone(), black(camera)))
        .collect();
    blank
}

fn black(camera: &CameraSpec) -> Frame {
    let bytes = camera.height as usize * camera.width as usize * 3;
    Frame {
        height: camera.height,
        width: camera.width,
        rgb: vec![0; bytes].into(),
    }
}

/// Returns the action keys of a checkpoint, with their lengths.
fn action_keys(processor: &Processor) -> Vec<(String, usize)> {
    let keys = processor.numbers().action_keys().into_iter();
    keys.map(|(key, width)| (key.to_owned(), width)).collect()
}
