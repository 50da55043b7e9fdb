//! Runs a checkpoint: turns raw observations and noise into physical actions, independently for
//! each row.
//!
//! ```text
//! RowInputs ─► processor (in parallel) ─► PreparedRow ─► groups of equal length
//!     ─► runner ─► BatchInputs ─► network ─► processor ─► KeyActions
//! ```

use std::collections::BTreeMap;
use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::Tensor;

use crate::policy::checkpoints::LoadedModel;
use crate::policy::runner::Runner;
use crate::policy::{Checkpoints, PolicyError, RowError, argument};
use jobs::policies::{Batching, Gr00t};
use models::gr00t::ModelDir;
use models::gr00t::model::{Normalise, PassInputs, SamplerStart};
use models::gr00t::processor::{
    KeyActions, PreparedRow, Processor, ProcessorConfig, RowInputs, collate,
};
use models::graphs::PassFn;
use torchlib::operators::{InferenceMode, normal, to_host};

/// Network and processor of one embodiment.
pub struct Gr00tInference {
    pub(super) runner: Runner,
    pub(super) loaded: Rc<LoadedModel>,
    /// Prepares observations and decodes actions of the embodiment.
    pub processor: Processor,
    /// Number of Euler steps.
    pub(super) steps: i64,
    /// Whether prompts of different lengths share padded batches as in the reference; otherwise
    /// they go into the network one after the other.
    pads: bool,
    /// Normalises pixels on the device.
    normalise: Rc<Normalise>,
    /// Whether passes are captured.
    pub(super) captures: bool,
}

/// What the inference of a row gives.
#[derive(Debug)]
pub struct RowChunk {
    /// What the network predicts, normalised: `[action_horizon, max_action_dim]`, row-major.
    pub predicted: Vec<f32>,
    /// The physical actions of it.
    pub actions: Vec<KeyActions>,
}

/// A row that the network can take.
struct ReadyRow<'a> {
    /// Its place among all rows.
    at: usize,
    inputs: &'a RowInputs<'a>,
    prepared: &'a PreparedRow,
    /// Where its denoising starts. The rows of an inference all have a `strength`, or none has.
    start: &'a SamplerStart,
}

impl Gr00tInference {
    /// Loads the checkpoint that the settings name, to be used with `processor`.
    ///
    /// # Errors
    /// Returns an error if files cannot be used.
    pub fn load(
        settings: &Gr00t,
        processor: Processor,
        checkpoints: &mut Checkpoints,
    ) -> Result<Self, PolicyError> {
        let loaded = checkpoints.gr00t(settings)?;
        let steps = settings.denoising_steps.map(|steps| steps.0 as i64);
        let normalise = Normalise::new(processor.pictures.scale, loaded.network.device());
        Ok(Self {
            runner: checkpoints.runner(&settings.model_path, Rc::clone(&loaded.graphs)),
            processor,
            steps: steps.unwrap_or(loaded.config.num_inference_timesteps),
            pads: settings.batching == Batching::Padded,
            normalise: Rc::new(normalise),
            captures: settings.cuda_graphs && loaded.graphs.borrow().captures(),
            loaded,
        })
    }

    /// Returns the number of action steps that both the network and the embodiment have.
    pub fn horizon(&self) -> usize {
        let network = usize::try_from(self.loaded.config.action_horizon).unwrap_or(0);
        self.processor.numbers.action_horizon().min(network)
    }

    /// Returns the shape of the noise that denoising starts from: `[action_horizon,
    /// max_action_dim]`.
    pub fn noise_shape(&self) -> [i64; 2] {
        let config = &self.loaded.config;
        [config.action_horizon, config.max_action_dim]
    }

    /// Returns the noise that the denoising of a chunk starts from, drawn on the CPU so that it is
    /// the same on every device.
    pub fn noise(&self, seed: u64) -> Tensor {
        normal(seed, &self.noise_shape())
    }

    /// Returns the actions of each row, in order; the denoising of a row starts at the
    /// [`SamplerStart`] of its place, whose actions are `[action_horizon, max_action_dim]`. An
    /// error in one row does not affect the others.
    ///
    /// # Errors
    /// Returns an error that no row survives.
    pub fn infer(
        &self,
        rows: Vec<Result<RowInputs, RowError>>,
        starts: &[SamplerStart],
    ) -> Result<Vec<Result<RowChunk, RowError>>, PolicyError> {
        let _mode = InferenceMode::begin();
        let mut answers = Vec::with_capacity(rows.len());
        let rows = self.processor.prepare_each(rows);
        // The rows that may share a batch, by the length of their prompts.
        let mut groups: BTreeMap<usize, Vec<ReadyRow>> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            answers.push(Err(match row {
                Ok((inputs, prepared)) => {
                    let length = if self.pads { 0 } else { prepared.ids.len() };
                    groups.entry(length).or_default().push(ReadyRow {
                        at,
                        inputs,
                        prepared,
                        start: &starts[at],
                    });
                    RowError::not_inferred()
                }
                Err(err) => err.clone(),
            }));
        }
        for group in groups.into_values() {
            let run = |rows: &[&ReadyRow]| self.run(rows);
            let predicted = self.runner.infer(&group, self.captures, run)?;
            for (row, predicted) in group.iter().zip(predicted) {
                answers[row.at] = predicted.and_then(|predicted| {
                    let numbers = &self.processor.numbers;
                    let actions = numbers.decode(&predicted, &row.inputs.state);
                    let actions = actions.map_err(RowError::new)?;
                    Ok(RowChunk { predicted, actions })
                });
            }
        }
        Ok(answers)
    }

    /// Runs the network on some rows and returns `[action_horizon, max_action_dim]` for each,
    /// row-major.
    fn run(&self, rows: &[&ReadyRow]) -> Result<Vec<Vec<f32>>, PolicyError> {
        let prepared: Vec<_> = rows.iter().map(|row| row.prepared).collect();
        let padding = self.processor.prompts.padding_id;
        let inputs = collate(&prepared, padding).map_err(inference)?;
        let noises: Vec<_> = rows.iter().map(|row| &row.start.actions).collect();
        let noise = Tensor::stack(&noises, 0);
        let strengths = rows.iter().map(|row| row.start.strength.as_ref());
        let strengths: Option<Vec<&Tensor>> = strengths.collect();
        let start = SamplerStart {
            actions: noise.shallow_clone(),
            strength: strengths.map(|strengths| Tensor::stack(&strengths, 0)),
        };
        let has_strength = start.strength.is_some();
        let batch = PassInputs::new(&inputs, start);
        let network = Rc::clone(&self.loaded.network);
        let shape = self
            .captures
            .then(|| network.shape(&inputs, self.steps, has_strength));
        let pass = || -> Result<PassFn, Refusal> {
            let normalise = Some(&self.normalise);
            let constants = network.constants(&inputs, &noise, self.steps, normalise)?;
            let network = Rc::clone(&network);
            Ok(Rc::new(move |batch: &[Tensor]| {
                network.pass(&constants, &PassInputs::of(batch))
            }))
        };
        let mut graphs = self.loaded.graphs.borrow_mut();
        let actions = graphs.run(shape, &batch.tensors(), pass);
        let actions = to_host(&actions.map_err(inference)?);
        let row = |index: usize| {
            Vec::<f32>::try_from(actions.get(index as i64).reshape([-1])).map_err(inference)
        };
        (0..rows.len()).map(row).collect()
    }
}

/// Opens the processor of the requested embodiment, or of the checkpoint's only one.
///
/// # Errors
/// Returns an error if files cannot be used and if the user has to choose an embodiment.
pub fn open_processor(settings: &Gr00t) -> Result<Processor, PolicyError> {
    let dir = ModelDir::open(&settings.model_path, settings.vlm_path.as_deref())?;
    let config = ProcessorConfig::of(&dir.root)?;
    let tag = match (&settings.embodiment_tag, &config.tags()[..]) {
        (Some(tag), _) => tag,
        (None, [only]) => *only,
        (None, several) => {
            let wanted = format!("the checkpoint has {}", several.join(", "));
            return Err(argument("embodiment_tag", "missing", &wanted));
        }
    };
    Ok(Processor::open(&dir.root, dir.vlm.as_deref(), tag)?)
}

fn inference(err: impl std::fmt::Display) -> PolicyError {
    RowError::new(err).into()
}

#[cfg(test)]
mod graphs_tests;
