//! Runs a checkpoint: turns raw observations and noise into physical actions, independently for
//! each row.
//!
//! ```text
//! RowInputs ─► processor (in parallel) ─► PreparedRow ─► groups of equal length
//!     ─► BatchInputs ─► network ─► processor ─► KeyActions
//! ```

mod row;

use std::collections::BTreeMap;
use std::rc::Rc;

use jobs::error_chain::chain;
use jobs::refusal::Refusal;
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::policy::argument;
use crate::policy::batches::{Batches, Shortage};
use crate::policy::gr00t::LoadedModel;
use crate::policy::gr00t::settings::Gr00tSettings;
use crate::policy::{Checkpoints, PolicyError, RowError};
use models::gr00t::ModelDir;
use models::gr00t::model::{Normalise, PassInputs};
use models::gr00t::processor::{
    KeyActions, PixelScale, PreparedRow, Processor, ProcessorConfig, RowInputs, collate,
};
use models::graphs::{PassFn, bucket};
use torchlib::operators::normal;
use torchlib::operators::{self, InferenceMode};
use torchlib::torch_error::{caught, is_out_of_memory};

pub use row::{RowChunk, RowStart};

/// Network and processor of one embodiment.
#[derive(Debug)]
pub struct Gr00tInference {
    loaded: Rc<LoadedModel>,
    processor: Processor,
    steps: i64,
    pads: bool,
    /// Normalises pixels on the device; `None` where the host does it.
    normalise: Option<Rc<Normalise>>,
    captures: bool,
    batches: Batches,
}

impl Gr00tInference {
    /// Loads the checkpoint that the settings name, to be used with `processor`.
    ///
    /// # Errors
    /// Returns an error if files cannot be used.
    pub fn load(
        settings: &Gr00tSettings,
        mut processor: Processor,
        checkpoints: &mut Checkpoints,
    ) -> Result<Self, PolicyError> {
        let vlm = settings.vlm_path.as_deref();
        let loaded = checkpoints
            .gr00t(&settings.model_path, vlm, settings.kind)
            .map_err(checkpoint)?;
        let steps = settings
            .denoising_steps
            .map_or(loaded.config.num_inference_timesteps, |steps| steps as i64);
        let device = loaded.network.device();
        let normalise = device.is_cuda().then(|| {
            let PixelScale { mean, deviation } = processor.give_bytes();
            Rc::new(Normalise::new(mean, deviation, device))
        });
        let captures = settings.cuda_graphs && loaded.graphs.borrow().is_some();
        let batches = checkpoints.batches(&settings.model_path);
        let pads = settings.padded_batches;
        Ok(Self {
            loaded,
            processor,
            steps,
            pads,
            normalise,
            captures,
            batches,
        })
    }

    /// Returns the processor, which prepares observations and decodes actions of the embodiment.
    pub fn processor(&self) -> &Processor {
        &self.processor
    }

    /// Returns how often memory ran out, and to what batch size that led.
    pub fn shortage(&self) -> Shortage {
        self.batches.shortage()
    }

    /// Returns what a policy built on this reports about itself.
    pub fn facts(&self, settings: &Gr00tSettings) -> Vec<(&'static str, Value)> {
        let dtype = match self.loaded.network.kind() {
            Kind::BFloat16 => "bfloat16",
            Kind::Half => "float16",
            _ => "float32",
        };
        vec![
            (
                "policy_path",
                settings.model_path.display().to_string().into(),
            ),
            ("dtype", dtype.into()),
            ("denoising_steps", self.steps.into()),
            ("embodiment_tag", settings.embodiment_tag.clone().into()),
            ("policy_seed", settings.seed.into()),
            ("padded_batches", settings.padded_batches.into()),
            ("cuda_graphs", self.captures.into()),
        ]
    }

    /// Returns whether the first inferences of a shape take much longer than later ones.
    pub fn warms_up(&self) -> bool {
        self.loaded.network.device().is_cuda()
    }

    /// Returns the number of action steps that both the network and the embodiment have.
    pub fn horizon(&self) -> usize {
        let network = usize::try_from(self.loaded.config.action_horizon).unwrap_or(0);
        self.processor.numbers().action_horizon().min(network)
    }

    /// Returns the shape of the noise that denoising starts from: `[action_horizon,
    /// max_action_dim]`.
    pub fn noise_shape(&self) -> [i64; 2] {
        [
            self.loaded.config.action_horizon,
            self.loaded.config.max_action_dim,
        ]
    }

    /// Returns the noise that the denoising of a chunk starts from, drawn on the CPU so that it is
    /// the same on every device.
    pub fn noise(&self, seed: u64) -> Tensor {
        normal(seed, &self.noise_shape())
    }

    /// Returns the actions of each row, in order, with at most `max_rows` rows in one pass of the
    /// network. An error in one row does not affect the others.
    ///
    /// # Errors
    /// Returns an error that no row survives.
    pub fn infer(
        &self,
        inputs: &[RowInputs],
        noises: &[Tensor],
        max_rows: usize,
    ) -> Result<Vec<Result<Vec<KeyActions>, RowError>>, PolicyError> {
        let starts = noises
            .iter()
            .map(|noise| RowStart::at(noise.shallow_clone()));
        let starts: Vec<_> = starts.collect();
        let chunks = self.infer_from(inputs, &starts, max_rows)?.into_iter();
        Ok(chunks.map(|chunk| Ok(chunk?.actions)).collect())
    }

    /// As [`Self::infer`], from starts of their own, and with what the network has predicted.
    ///
    /// # Errors
    /// Returns an error that no row survives.
    pub fn infer_from(
        &self,
        inputs: &[RowInputs],
        starts: &[RowStart],
        max_rows: usize,
    ) -> Result<Vec<Result<RowChunk, RowError>>, PolicyError> {
        let _mode = InferenceMode::begin();
        let samples = self.processor.prepare_each(inputs);
        let mut answers: Vec<_> = samples.iter().map(|_| None).collect();
        for group in self.groups(&samples) {
            let predict = |rows: &[usize]| self.predict(rows, &samples, starts, max_rows);
            let predicted = self.batches.infer(&group, max_rows, predict)?;
            for (row, predicted) in group.into_iter().zip(predicted) {
                let decode = |predicted: Vec<f32>| {
                    let numbers = self.processor.numbers();
                    let actions = numbers.decode(&predicted, &inputs[row].state);
                    let actions = actions.map_err(RowError::new)?;
                    Ok(RowChunk { predicted, actions })
                };
                answers[row] = Some(predicted.and_then(decode));
            }
        }
        let refusals = samples.into_iter().map(|sample| {
            let refusal = RowError::new(sample.err()?);
            Some(Err(refusal))
        });
        let gone = || Err(RowError::not_inferred());
        Ok(refusals
            .zip(answers)
            .map(|(refused, answer)| refused.or(answer).unwrap_or_else(gone))
            .collect())
    }

    /// Groups the rows that may share a batch.
    fn groups<E>(&self, samples: &[Result<PreparedRow, E>]) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, sample) in samples
            .iter()
            .enumerate()
            .filter_map(|(row, sample)| Some((row, sample.as_ref().ok()?)))
        {
            groups
                .entry(if self.pads { 0 } else { sample.ids.len() })
                .or_default()
                .push(row);
        }
        groups.into_values().collect()
    }

    /// Runs the network on some rows and returns `[action_horizon, max_action_dim]` for each,
    /// row-major.
    fn predict<E>(
        &self,
        rows: &[usize],
        samples: &[Result<PreparedRow, E>],
        starts: &[RowStart],
        max_rows: usize,
    ) -> Result<Vec<Vec<f32>>, PolicyError> {
        let mut members: Vec<&PreparedRow> = rows
            .iter()
            .filter_map(|row| samples[*row].as_ref().ok())
            .collect();
        let mut starts: Vec<&RowStart> = rows.iter().map(|row| &starts[*row]).collect();
        let most = self
            .shortage()
            .batch
            .map_or(max_rows, |limit| limit.max(1).min(max_rows));
        let size = bucket(rows.len(), most);
        if let (true, Some(sample), Some(start)) = (
            self.captures,
            members.last().copied(),
            starts.last().copied(),
        ) {
            // Fill up to a size for which there is a graph. The results of the filling rows are
            // discarded.
            members.resize(size, sample);
            starts.resize(size, start);
        }
        caught(|| self.run(&members, &starts, rows.len())).unwrap_or_else(|reason| {
            if is_out_of_memory(&reason)
                && let Ok(mut graphs) = self.loaded.graphs.try_borrow_mut()
                && let Some(graphs) = graphs.as_mut()
            {
                graphs.make_room();
            }
            Err(RowError(reason).into())
        })
    }

    /// Returns the actions of the first `rows` samples.
    fn run(
        &self,
        samples: &[&PreparedRow],
        starts: &[&RowStart],
        rows: usize,
    ) -> Result<Vec<Vec<f32>>, PolicyError> {
        let inputs = collate(samples, self.processor.prompts().padding_id()).map_err(inference)?;
        let noises: Vec<_> = starts.iter().map(|start| &start.actions).collect();
        let noise = Tensor::stack(&noises, 0);
        let strengths: Option<Vec<&Tensor>> =
            starts.iter().map(|start| start.strength.as_ref()).collect();
        let strength = strengths.map(|strengths| Tensor::stack(&strengths, 0));
        let network = Rc::clone(&self.loaded.network);
        let constants = || network.constants(&inputs, &noise, self.steps, self.normalise.as_ref());
        let has_strength = strength.is_some();
        let batch = PassInputs::new(&inputs, noise.shallow_clone()).with_strength(strength);
        let actions = match self
            .loaded
            .graphs
            .borrow_mut()
            .as_mut()
            .filter(|_| self.captures)
        {
            Some(graphs) => {
                let key = network.shape(&inputs, self.steps, has_strength);
                let pass = || -> Result<PassFn, Refusal> {
                    let (network, constants) = (Rc::clone(&network), constants()?);
                    Ok(Rc::new(move |batch: &[Tensor]| {
                        network.pass(&constants, &PassInputs::of(batch))
                    }))
                };
                graphs.run(key, &batch.tensors(), pass).map_err(inference)?
            }
            None => network.pass(
                &constants().map_err(inference)?,
                &batch.to_device(network.device()),
            ),
        };
        let actions = operators::to_host(&actions);
        let row = |index: usize| {
            Vec::<f32>::try_from(actions.get(index as i64).reshape([-1])).map_err(inference)
        };
        (0..rows).map(row).collect()
    }
}

/// Opens the processor of the requested embodiment, or of the checkpoint's only one.
///
/// # Errors
/// Returns an error if files cannot be used and if the user has to choose an embodiment.
pub fn open_processor(settings: &Gr00tSettings) -> Result<Processor, PolicyError> {
    let dir =
        ModelDir::open(&settings.model_path, settings.vlm_path.as_deref()).map_err(checkpoint)?;
    let config =
        ProcessorConfig::read(&dir.processor_file("processor_config.json")).map_err(checkpoint)?;
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

/// Returns how many actions of a chunk may be used: all that the embodiment has, or fewer.
///
/// # Errors
/// Returns an error if the settings ask for more than there are.
pub fn horizon(settings: &Gr00tSettings, inference: &Gr00tInference) -> Result<usize, PolicyError> {
    let has = inference.horizon();
    let asked = settings.action_horizon.unwrap_or(has);
    if asked > has {
        let wanted = format!(
            "expected at most the {has} steps of embodiment {}",
            inference.processor().tag()
        );
        return Err(argument("action_horizon", &asked.to_string(), &wanted));
    }
    Ok(asked)
}

fn checkpoint(err: impl std::error::Error) -> PolicyError {
    PolicyError::Failed(chain(&err))
}

pub(super) fn inference(err: impl std::fmt::Display) -> PolicyError {
    RowError::new(err).into()
}

#[cfg(test)]
mod graphs_tests;
