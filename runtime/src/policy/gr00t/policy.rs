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

use crate::env::{EnvSpec, Frame, Observation};
use crate::policy::gr00t::continuing::PreviousChunks;
use crate::policy::gr00t::inference::{Gr00tInference, RowChunk, open_processor};
use crate::policy::seen;
use crate::policy::{
    Checkpoints, Chunk, ClientKeys, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer,
    RowError, RowNoise, Shortage, Window, argument, looks_back,
};
use jobs::policies::{Batching, Gr00t, PolicyType};
use jobs::wiring::{ActionPlaces, Joints, Sides, Wiring};
use models::gr00t::model::SamplerStart;
use models::gr00t::processor::{KeyActions, RgbPicture, RowInputs, StateSteps};

/// A checkpoint that acts in one environment.
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
    /// A blank observation of the environment, for warming up; `None` if it acts for its own keys.
    blank: Option<Window>,
    settings: Gr00t,
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
        mut settings: Gr00t,
        env: Option<&EnvSpec>,
        checkpoints: &mut Checkpoints,
    ) -> Result<Self, PolicyError> {
        // Read the small files first, so that errors in them show before gigabytes are read.
        let processor = open_processor(&settings)?;
        let modalities = &processor.modalities;
        let mut deltas =
            [&modalities.video, &modalities.state].map(|modality| modality.delta_indices.clone());
        let (views, states) = (&modalities.video.keys, processor.numbers.state_keys());
        let actions = processor.numbers.action_keys();
        let (wiring, places, previous) = match env {
            Some(env) => {
                let sides = Sides::new(PolicyType::Gr00t, env);
                let joints = Joints::read(&settings.wiring)?;
                let cameras = settings.wiring.pov_cam_name_sim.as_ref();
                let given = (cameras.map(|names| &names.0[..]), joints.as_ref());
                let wiring = Wiring::checkpoint(sides, views, states, given)?;
                let places = ActionPlaces::new(sides, &actions, joints.as_ref())?;
                let rate = settings.rtc_ramp_rate;
                let previous = rate.map(|rate| PreviousChunks::new(rate, &processor));
                (wiring, places, previous.transpose()?)
            }
            None => {
                settings.wiring.language_instruction = None;
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
        let has = inference.horizon();
        let asked = settings.wiring.action_horizon.filter(|_| env.is_some());
        let horizon = asked.map_or(has, usize::from);
        if horizon > has {
            let tag = &inference.processor.tag;
            let wanted = format!("expected at most the {has} steps of embodiment {tag}");
            return Err(argument("action_horizon", &horizon.to_string(), &wanted));
        }
        Ok(Self {
            previous,
            inference,
            wiring,
            places,
            action_dim,
            horizon,
            deltas,
            blank: env.map(|env| Window::new(Arc::new(blank(env)))),
            settings,
        })
    }

    /// Returns where the denoising of a row starts.
    fn start(&self, row: &PolicyRow) -> SamplerStart {
        let noise = match &row.noise {
            None => {
                let seed = row.noise_seed(self.settings.wiring.seed);
                self.inference.noise(seed)
            }
            Some(RowNoise::Seed(seed)) => self.inference.noise(*seed),
            Some(RowNoise::Given(numbers)) => Tensor::from_slice(numbers)
                .reshape(self.inference.noise_shape())
                .to_kind(Kind::Float),
        };
        match &self.previous {
            Some(previous) => previous.start(row, &noise, self.inference.horizon()),
            None => SamplerStart::at(noise),
        }
    }

    /// Runs `rows` blank rows twice: the second run is as fast as later ones.
    fn run_blank(&self, rows: usize) -> Result<(), PolicyError> {
        let Some(blank) = &self.blank else {
            return Ok(());
        };
        let inputs = self.inputs(blank)?;
        let start = |row| SamplerStart::at(self.inference.noise(row));
        let starts: Vec<_> = (0..rows as u64).map(start).collect();
        for _ in 0..2 {
            let inputs = vec![Ok(inputs.clone()); rows];
            self.inference.infer(inputs, &starts)?;
        }
        Ok(())
    }

    /// Returns what the checkpoint reads of an observation and of those before it, under its own
    /// keys.
    fn inputs<'a>(&'a self, seen: &'a Window) -> Result<RowInputs<'a>, RowError> {
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
            let values = StateSteps::new(width, values.concat()).map_err(RowError::new)?;
            state.insert(key, values);
        }
        let fallback = self.settings.wiring.language_instruction.as_deref();
        let instruction = seen::words(seen.now(), fallback);
        Ok(RowInputs {
            video,
            state,
            instruction,
        })
    }
}

impl Policy for Gr00tPolicy {
    fn facts(&self) -> PolicyFacts {
        let (settings, inference) = (&self.settings, &self.inference);
        let dtype = match inference.loaded.network.kind() {
            Kind::BFloat16 => "bfloat16",
            Kind::Half => "float16",
            _ => "float32",
        };
        let path = settings.model_path.display().to_string();
        let padded = settings.batching == Batching::Padded;
        let mut reported = vec![
            ("policy_path", path.into()),
            ("dtype", dtype.into()),
            ("denoising_steps", inference.steps.into()),
            ("embodiment_tag", settings.embodiment_tag.clone().into()),
            ("policy_seed", settings.wiring.seed.into()),
            ("padded_batches", padded.into()),
            ("cuda_graphs", inference.captures.into()),
        ];
        let rate = settings.rtc_ramp_rate;
        reported.extend(rate.map(|rate| ("rtc_ramp_rate", rate.into())));
        let own_keys = || {
            let processor = &inference.processor;
            let states = processor.numbers.state_keys().into_iter();
            ClientKeys {
                modalities: processor.modalities.clone(),
                states: states.map(|(key, width)| (key.to_owned(), width)).collect(),
                actions: processor.numbers.action_keys(),
                noise_shape: Some(inference.noise_shape().map(|edge| edge as usize)),
                seed: settings.wiring.seed,
            }
        };
        PolicyFacts {
            horizon: self.horizon,
            needs_video: true,
            looks_back: looks_back(&self.deltas.concat()),
            own_keys: self.blank.is_none().then(own_keys),
            reported,
            ..PolicyFacts::default()
        }
    }

    fn warm_up(&mut self, rows: usize, max_rows: usize) {
        let max_rows = max_rows.max(1);
        self.inference.runner.max_rows = max_rows;
        // On a CPU, the first inferences of a shape take no longer than later ones.
        if !self.inference.loaded.network.device().is_cuda() {
            return;
        }
        if let Err(err) = self.run_blank(rows.clamp(1, max_rows)) {
            // The first episode will report the error.
            tracing::debug!("warming up: {err}");
        }
    }

    fn shortage(&self) -> Shortage {
        self.inference.runner.shortage()
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let inputs = rows.iter().map(|row| self.inputs(&row.window)).collect();
        let starts: Vec<_> = rows.iter().map(|row| self.start(row)).collect();
        let inferred = self.inference.infer(inputs, &starts)?;
        let size = [self.horizon, self.action_dim];
        let mut answers = Vec::with_capacity(rows.len());
        for (row, inferred) in rows.iter().zip(inferred) {
            let chunk = inferred.map(|RowChunk { predicted, actions }| {
                if let Some(previous) = &mut self.previous {
                    previous.predicted.insert(row.env, predicted);
                }
                placed(&self.places, &actions, size)
            });
            answers.push(chunk.into());
        }
        Ok(answers)
    }
}

/// Returns the chunk of a row in the action vector of an environment, `[horizon, dim]`, with 0
/// where the checkpoint gives no value.
pub(crate) fn placed(
    places: &ActionPlaces,
    keys: &[KeyActions],
    [horizon, dim]: [usize; 2],
) -> Chunk {
    let mut values = vec![0.0; horizon * dim];
    for given in keys {
        let steps = given.values.chunks_exact(given.width);
        let steps = steps.zip(values.chunks_exact_mut(dim));
        steps.for_each(|(step, action)| places.place(&given.key, step, action));
    }
    Chunk::new(dim, values)
}

fn picture<'a>(seen: &'a Observation, camera: &str) -> Result<RgbPicture<'a>, RowError> {
    let frame = seen::frame(camera, seen)?;
    RgbPicture::new(frame.height as usize, frame.width as usize, &frame.rgb).map_err(RowError::new)
}

/// Returns an observation with black images, a zero state, and the task.
fn blank(env: &EnvSpec) -> Observation {
    let mut blank = Observation::default();
    for (key, width) in &env.state {
        blank.state.insert(key.clone(), vec![0.0; *width]);
    }
    blank.language = env.language.as_str().into();
    for camera in &env.cameras {
        let (height, width) = (camera.height, camera.width);
        let rgb = vec![0; height as usize * width as usize * 3].into();
        let frame = Frame { height, width, rgb };
        blank.video.insert(camera.name.clone(), frame);
    }
    blank
}
