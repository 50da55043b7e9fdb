//! The policy: observations of many environments to chunks of actions.
//!
//! ```text
//! rows ─► wiring ─► processor (in parallel) ─► samples ─► groups of equal length ─► network ─► processor ─► wiring
//! ```
//!
//! Prompts of different lengths never share a batch unless it is asked for: padding reaches the real tokens through the
//! self-attention over the backbone's features. Noise comes from the episode's seed and the number of the inference, so
//! a chunk does not depend on what else is inferred.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use jobs::seed;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::env::{EnvIndex, EnvSpec, Observation};
use crate::policy::fields::argument;
use crate::policy::gr00t::ModelDir;
use crate::policy::gr00t::history::History;
use crate::policy::gr00t::model::{NoTap, Robot, SamplerOptions};
use crate::policy::gr00t::models::{Loaded, Models};
use crate::policy::gr00t::processor::{Picture, Processor, ProcessorConfig, Raw, Rows, Sample, collate};
use crate::policy::gr00t::settings::Settings;
use crate::policy::gr00t::wiring::{Keys, Wiring};
use crate::policy::{Chunk, EpisodeStart, Policy, PolicyError, PolicySpec};

/// A checkpoint that acts in one environment.
#[derive(Debug)]
pub struct Gr00tPolicy {
    loaded: Rc<Loaded>,
    processor: Processor,
    wiring: Wiring,
    history: History,
    /// Seed of the running episode, and inferences in it so far.
    episodes: BTreeMap<EnvIndex, (u64, u64)>,
    /// Actions of a chunk that may be used.
    horizon: usize,
    steps: i64,
    settings: Settings,
}

impl Gr00tPolicy {
    /// Loads the checkpoint that the settings name and connects it with the environment.
    ///
    /// # Errors
    /// [`PolicyError::Checkpoint`] for files that cannot be used, [`PolicyError::Mismatch`] where checkpoint and
    /// environment do not fit.
    pub fn new(settings: Settings, env: &EnvSpec, models: &mut Models) -> Result<Self, PolicyError> {
        // The small files first: what is wrong there is known before gigabytes are read.
        let processor = open_processor(&settings)?;
        let wiring = Wiring::new(&keys(&processor), env, settings.cameras.as_deref(), settings.joints.as_ref())?;
        let vlm = settings.vlm_path.as_deref();
        let loaded = models.get(&settings.model_path, vlm, settings.kind).map_err(checkpoint)?;
        let horizon = horizon(&settings, &processor, &loaded)?;
        let modalities = processor.modalities();
        let deltas = [&modalities.video, &modalities.state].map(|modality| modality.delta_indices.clone());
        let steps = settings.denoising_steps.map_or(loaded.config.num_inference_timesteps, |steps| steps as i64);
        Ok(Self {
            history: History::new(deltas.concat()),
            episodes: BTreeMap::new(),
            loaded,
            processor,
            wiring,
            horizon,
            steps,
            settings,
        })
    }

    fn infer(&mut self, rows: &[(EnvIndex, &Observation)]) -> Result<Vec<Chunk>, PolicyError> {
        let noises: Vec<Tensor> = rows.iter().map(|(env, _)| self.noise(*env)).collect();
        let views = rows.iter().map(|(env, now)| View::new(self, *env, now)).collect::<Result<Vec<_>, _>>()?;
        let raws = views.iter().map(View::raw).collect::<Result<Vec<_>, _>>()?;
        let samples = self.processor.prepare(&raws).map_err(inference)?;
        let mut chunks: Vec<Option<Chunk>> = rows.iter().map(|_| None).collect();
        for group in self.groups(&samples) {
            let predicted = self.predict(&group, &samples, &noises)?;
            for (row, predicted) in group.into_iter().zip(predicted) {
                let actions = self.processor.numbers().decode(&predicted, &raws[row].state).map_err(inference)?;
                let rows = self.wiring.actions(&actions, self.horizon);
                chunks[row] = Some(Chunk::new(rows.len() / self.horizon, rows));
            }
        }
        Ok(chunks.into_iter().flatten().collect())
    }

    /// Rows that may share a batch.
    fn groups(&self, samples: &[Sample]) -> Vec<Vec<usize>> {
        if self.settings.padded_batches {
            return vec![(0..samples.len()).collect()];
        }
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, sample) in samples.iter().enumerate() {
            groups.entry(sample.ids.len()).or_default().push(row);
        }
        groups.into_values().collect()
    }

    /// Runs the network on some rows: for each `[action_horizon, max_action_dim]`, row-major.
    fn predict(&self, group: &[usize], samples: &[Sample], noises: &[Tensor]) -> Result<Vec<Vec<f32>>, PolicyError> {
        let network = &self.loaded.network;
        let members: Vec<&Sample> = group.iter().map(|row| &samples[*row]).collect();
        let inputs = collate(&members, self.processor.prompts().padding_id()).map_err(inference)?;
        let noise: Vec<&Tensor> = group.iter().map(|row| &noises[*row]).collect();
        let noise = Tensor::stack(&noise, 0).to_device(network.device()).to_kind(network.kind());
        let features = network.features(&inputs, &mut NoTap).map_err(inference)?;
        let robot = Robot { state: &inputs.state, embodiment_id: &inputs.embodiment_id };
        let options = SamplerOptions { steps: self.steps, rtc: None };
        let actions = network.actions(&features, &robot, &noise, &options, &mut NoTap).map_err(inference)?;
        let actions = actions.to_kind(Kind::Float).to_device(Device::Cpu).contiguous();
        let row = |index: usize| Vec::<f32>::try_from(actions.get(index as i64).reshape([-1])).map_err(inference);
        (0..group.len()).map(row).collect()
    }

    /// Where the denoising of an environment's next chunk starts, `[action_horizon, max_action_dim]`, drawn on the CPU so
    /// that it is the same on every device.
    fn noise(&mut self, env: EnvIndex) -> Tensor {
        let (episode, inferences) = self.episodes.entry(env).or_default();
        let seed = seed::noise(self.settings.seed, *episode, *inferences);
        *inferences += 1;
        tch::manual_seed(seed.cast_signed());
        let config = &self.loaded.config;
        Tensor::randn([config.action_horizon, config.max_action_dim], (Kind::Float, Device::Cpu))
    }
}

impl Policy for Gr00tPolicy {
    fn spec(&self) -> PolicySpec {
        let looks_back = self.history.steps();
        PolicySpec { action_horizon: self.horizon, needs_video: true, looks_back, num_episodes: None }
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        let dtype = match self.loaded.network.kind() {
            Kind::BFloat16 => "bfloat16",
            Kind::Half => "float16",
            _ => "float32",
        };
        vec![
            ("policy_path", self.settings.model_path.display().to_string().into()),
            ("dtype", dtype.into()),
            ("denoising_steps", self.steps.into()),
            ("embodiment_tag", self.settings.embodiment_tag.clone().into()),
            ("policy_seed", self.settings.seed.into()),
            ("padded_batches", self.settings.padded_batches.into()),
        ]
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
        let _no_grad = tch::no_grad_guard();
        // libtorch's errors come as panics; the first line says what was wrong, the rest is a C++ backtrace.
        catch_unwind(AssertUnwindSafe(|| self.infer(rows))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map_or("libtorch failed", String::as_str);
            Err(PolicyError::Inference(text.split("\nException raised from").next().unwrap_or(text).to_owned()))
        })
    }
}

/// What one row shows, in the checkpoint's words.
struct View<'a> {
    video: Vec<(&'a str, Vec<Picture<'a>>)>,
    /// Rows of each state vector, oldest first.
    state: Vec<(&'a str, usize, Vec<f32>)>,
    instruction: &'a str,
}

impl<'a> View<'a> {
    fn new(policy: &'a Gr00tPolicy, env: EnvIndex, now: &'a Observation) -> Result<Self, PolicyError> {
        let modalities = policy.processor.modalities();
        let frames = policy.history.at(env, now, &modalities.video.delta_indices);
        let video = policy.wiring.cameras().iter().map(|(key, camera)| {
            let pictures = frames.iter().map(|seen| picture(seen, camera)).collect::<Result<_, _>>()?;
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
        let instruction = if now.language.is_empty() { fallback } else { &now.language };
        Ok(Self { video: video.collect::<Result<_, PolicyError>>()?, state, instruction })
    }

    fn raw(&self) -> Result<Raw<'_>, PolicyError> {
        let state = self.state.iter().map(|(key, width, rows)| Ok((*key, Rows::new(*width, rows).map_err(inference)?)));
        Ok(Raw {
            video: self.video.iter().cloned().collect(),
            state: state.collect::<Result<_, PolicyError>>()?,
            instruction: self.instruction,
        })
    }
}

fn picture<'a>(seen: &'a Observation, camera: &str) -> Result<Picture<'a>, PolicyError> {
    let gone = || PolicyError::Inference(format!("the observation has no picture of camera {camera}"));
    let frame = seen.video.get(camera).ok_or_else(gone)?;
    Picture::new(frame.height as usize, frame.width as usize, &frame.rgb).map_err(inference)
}

/// The processor of the embodiment that is asked for, or of the checkpoint's only one.
fn open_processor(settings: &Settings) -> Result<Processor, PolicyError> {
    let dir = ModelDir::open(&settings.model_path, settings.vlm_path.as_deref()).map_err(checkpoint)?;
    let config = ProcessorConfig::read(&dir.processor_file("processor_config.json")).map_err(checkpoint)?;
    let tag = match (&settings.embodiment_tag, &config.tags()[..]) {
        (Some(tag), _) => tag,
        (None, [only]) => *only,
        (None, several) => {
            let wanted = format!("the checkpoint has {}", several.join(", "));
            return Err(argument("embodiment_tag", "missing", &wanted));
        }
    };
    Processor::open(dir.root(), dir.vlm(), tag).map_err(checkpoint)
}

fn keys(processor: &Processor) -> Keys {
    let numbers = processor.numbers();
    Keys {
        video: processor.modalities().video.keys.clone(),
        state: numbers.state_keys().into_iter().map(|(key, width)| (key.to_owned(), width)).collect(),
        action: numbers.action_keys().into_iter().map(|(key, width)| (key.to_owned(), width)).collect(),
    }
}

/// Actions of a chunk that may be used: all that the embodiment has, or fewer.
fn horizon(settings: &Settings, processor: &Processor, loaded: &Loaded) -> Result<usize, PolicyError> {
    let network = usize::try_from(loaded.config.action_horizon).unwrap_or(0);
    let has = processor.numbers().action_horizon().min(network);
    let asked = settings.action_horizon.unwrap_or(has);
    if asked > has {
        let wanted = format!("at most the {has} steps of embodiment {} are needed", processor.tag());
        return Err(argument("action_horizon", &asked.to_string(), &wanted));
    }
    Ok(asked)
}

fn checkpoint(err: impl std::error::Error) -> PolicyError {
    PolicyError::Checkpoint(with_sources(&err))
}

fn inference(err: impl std::error::Error) -> PolicyError {
    PolicyError::Inference(with_sources(&err))
}

fn with_sources(err: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(err.source(), |err| err.source());
    sources.fold(err.to_string(), |text, source| format!("{text}: {source}"))
}
