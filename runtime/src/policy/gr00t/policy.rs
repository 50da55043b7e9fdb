//! The GR00T policy: turns observations of many environments into chunks of actions.
//!
//! ```text
//! rows ─► wiring ─► inference (processor, network, processor) ─► wiring
//! ```
//!
//! Prompts of different lengths do not share a batch unless the settings ask for it, because
//! padding reaches the real tokens through the self-attention over the backbone's features. The
//! noise comes from the episode's seed and the number of the inference in the episode, so a chunk
//! does not depend on what else is inferred.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jobs::seed;
use serde_json::Value;
use tch::Tensor;

use crate::env::{CameraSpec, EnvIndex, EnvSpec, Frame, Observation};
use crate::policy::gr00t::history::History;
use crate::policy::gr00t::inference::{self, Inference, inference};
use crate::policy::gr00t::models::Models;
use crate::policy::gr00t::settings::Settings;
use crate::policy::gr00t::wiring::{Keys, Wiring};
use crate::policy::settings::{MakeContext, PolicySettings};
use crate::policy::{Chunk, EpisodeStart, Policy, PolicyError, PolicySpec, Shortage};
use gr00t::processor::{ActionRows, Picture, Processor, Raw, Rows};

/// A checkpoint that acts in one environment.
#[derive(Debug)]
pub struct Gr00tPolicy {
    inference: Inference,
    wiring: Wiring,
    history: History,
    /// For each environment: seed of the running episode, and number of inferences in it so far.
    episodes: BTreeMap<EnvIndex, (u64, u64)>,
    /// Number of actions of a chunk that may be used.
    horizon: usize,
    /// Maximum number of rows of one inference.
    max_rows: usize,
    /// A blank observation of the environment, for warming up.
    blank: Observation,
    settings: Settings,
}

impl Gr00tPolicy {
    /// Loads the checkpoint that the settings name and connects it to the environment.
    ///
    /// # Errors
    /// Returns [`PolicyError::Checkpoint`] if files cannot be used and [`PolicyError::Mismatch`] if
    /// checkpoint and environment do not fit together.
    pub fn new(
        settings: Settings,
        env: &EnvSpec,
        models: &mut Models,
    ) -> Result<Self, PolicyError> {
        // Read the small files first, so that errors in them show before gigabytes are read.
        let processor = inference::open_processor(&settings)?;
        let wiring = Wiring::new(
            &keys(&processor),
            env,
            settings.cameras.as_deref(),
            settings.joints.as_ref(),
        )?;
        let inference = Inference::load(&settings, processor, models)?;
        let horizon = inference::horizon(&settings, &inference)?;
        let modalities = inference.processor().modalities();
        let deltas =
            [&modalities.video, &modalities.state].map(|modality| modality.delta_indices.clone());
        let history = History::new(deltas.concat());
        let (episodes, blank) = (BTreeMap::new(), blank(env));
        Ok(Self {
            history,
            episodes,
            inference,
            wiring,
            horizon,
            max_rows: usize::MAX,
            blank,
            settings,
        })
    }

    fn infer(&mut self, rows: &[(EnvIndex, &Observation)]) -> Result<Vec<Chunk>, PolicyError> {
        let noises: Vec<Tensor> = rows.iter().map(|(env, _)| self.noise(*env)).collect();
        let views = rows
            .iter()
            .map(|(env, now)| View::new(self, *env, now))
            .collect::<Result<Vec<_>, _>>()?;
        let raws = views.iter().map(View::raw).collect::<Result<Vec<_>, _>>()?;
        let answers = self.inference.infer(&raws, &noises, self.max_rows);
        answers
            .into_iter()
            .map(|actions| Ok(self.chunk(&actions?)))
            .collect()
    }

    /// Runs `rows` blank rows twice: the second run is as fast as later ones.
    fn run_blank(&self, rows: usize) -> Result<(), PolicyError> {
        let view = View::new(self, EnvIndex(0), &self.blank)?;
        let raws = (0..rows)
            .map(|_| view.raw())
            .collect::<Result<Vec<_>, _>>()?;
        let noises: Vec<Tensor> = (0..rows)
            .map(|row| self.inference.noise(row as u64))
            .collect();
        let mut answers = (0..2).flat_map(|_| self.inference.infer(&raws, &noises, self.max_rows));
        answers.try_for_each(|answer| answer.map(drop))
    }

    fn chunk(&self, actions: &[ActionRows]) -> Chunk {
        let rows = self.wiring.actions(actions, self.horizon);
        Chunk::new(rows.len() / self.horizon, rows)
    }

    /// Returns the noise from which the denoising of an environment's next chunk starts.
    fn noise(&mut self, env: EnvIndex) -> Tensor {
        let (episode, inferences) = self.episodes.entry(env).or_default();
        let seed = seed::noise(self.settings.seed, *episode, *inferences);
        *inferences += 1;
        self.inference.noise(seed)
    }
}

impl PolicySettings for Settings {
    fn chunk_length(&self) -> Option<usize> {
        self.chunk_length
    }

    fn files(&self) -> Vec<PathBuf> {
        [&Some(self.model_path.clone()), &self.vlm_path, &self.file]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    fn make(self: Box<Self>, context: MakeContext<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        Ok(Box::new(Gr00tPolicy::new(
            *self,
            context.env,
            context.models,
        )?))
    }
}

impl Policy for Gr00tPolicy {
    fn spec(&self) -> PolicySpec {
        let looks_back = self.history.steps();
        PolicySpec {
            action_horizon: self.horizon,
            needs_video: true,
            looks_back,
            num_episodes: None,
        }
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        self.inference.facts(&self.settings)
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

    fn reset(&mut self, starts: &[EpisodeStart]) {
        for start in starts {
            self.history.forget(start.env);
            self.episodes.insert(start.env, (start.seed, 0));
        }
    }

    fn observe(&mut self, env: EnvIndex, observation: &Observation) {
        self.history.see(env, observation);
    }

    fn act(&mut self, rows: &[(EnvIndex, &Observation)]) -> Result<Vec<Chunk>, PolicyError> {
        self.infer(rows)
    }
}

/// One row of input under the checkpoint's key names.
struct View<'a> {
    video: Vec<(&'a str, Vec<Picture<'a>>)>,
    /// Name, row count and values of each state vector, oldest row first.
    state: Vec<(&'a str, usize, Vec<f32>)>,
    instruction: &'a str,
}

impl<'a> View<'a> {
    fn new(
        policy: &'a Gr00tPolicy,
        env: EnvIndex,
        now: &'a Observation,
    ) -> Result<Self, PolicyError> {
        let modalities = policy.inference.processor().modalities();
        let frames = policy.history.at(env, now, &modalities.video.delta_indices);
        let video = policy.wiring.cameras().iter().map(|(key, camera)| {
            let pictures = frames
                .iter()
                .map(|seen| picture(seen, camera))
                .collect::<Result<_, _>>()?;
            Ok((key.as_str(), pictures))
        });
        let mut state: Vec<(&str, usize, Vec<f32>)> = Vec::new();
        for seen in policy.history.at(env, now, &modalities.state.delta_indices) {
            for (key, values) in policy.wiring.states(seen)? {
                match state.iter_mut().find(|(other, ..)| *other == key) {
                    Some((.., rows)) => rows.extend(values),
                    None => state.push((key, values.len(), values)),
                }
            }
        }
        let fallback = policy.settings.language.as_deref().unwrap_or_default();
        let instruction = if now.language.is_empty() {
            fallback
        } else {
            &now.language
        };
        Ok(Self {
            video: video.collect::<Result<_, PolicyError>>()?,
            state,
            instruction,
        })
    }

    fn raw(&self) -> Result<Raw<'_>, PolicyError> {
        let state = self
            .state
            .iter()
            .map(|(key, width, rows)| Ok((*key, Rows::new(*width, rows).map_err(inference)?)));
        Ok(Raw {
            video: self.video.iter().cloned().collect(),
            state: state.collect::<Result<_, PolicyError>>()?,
            instruction: self.instruction,
        })
    }
}

fn picture<'a>(seen: &'a Observation, camera: &str) -> Result<Picture<'a>, PolicyError> {
    let gone =
        || PolicyError::Inference(format!("the observation has no picture of camera {camera}"));
    let frame = seen.video.get(camera).ok_or_else(gone)?;
    Picture::new(frame.height as usize, frame.width as usize, &frame.rgb).map_err(inference)
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

fn keys(processor: &Processor) -> Keys {
    let numbers = processor.numbers();
    Keys {
        video: processor.modalities().video.keys.clone(),
        state: numbers
            .state_keys()
            .into_iter()
            .map(|(key, width)| (key.to_owned(), width))
            .collect(),
        action: numbers
            .action_keys()
            .into_iter()
            .map(|(key, width)| (key.to_owned(), width))
            .collect(),
    }
}
