//! Runs a package of `torch.export` and AOTInductor (`.pt2`), or a TorchScript module (`script`),
//! as a policy, without Python.
//!
//! ```text
//! policy.pt2 ─► jobs::exported (metadata, checks) ─► folder (extracted) ─► CompiledPackage
//! rows ─► inputs (pictures, states, tokens, noise) ─► runner, padded ─► package ─► chunks
//!                                                                       └─ captured on a GPU
//! ```
//! The package says which inputs it reads (`rrun.inputs` in its metadata). Compiled code does not
//! check shapes, so everything is compared with the environment before the first step, and each
//! batch again when it runs.

mod inputs;
mod package;
pub(in crate::policy) mod script;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::path::PathBuf;

use serde_json::Value;
use tch::{Kind, Tensor};

use crate::env::EnvSpec;
use crate::policy::exported::inputs::Inputs;
use crate::policy::exported::package::LoadedPackage;
use crate::policy::runner::{Runner, Shortage};
use crate::policy::{
    Checkpoints, Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError,
};
use jobs::exported::{Batch, Output, Package};
use jobs::policies::{Exported, PolicyType};
use jobs::wiring::Sides;
use models::graphs::{PassFn, PassShape};
use torchlib::operators::{InferenceMode, to_host};
use torchlib::torch_error::caught;

/// A network that maps the inputs of a batch to actions.
pub(in crate::policy) trait Network {
    /// Returns a pass, which panics with libtorch's error as operators of tch do.
    fn pass(&self) -> PassFn;

    /// Returns what is said of a pass that failed for this reason.
    fn failed(&self, reason: String) -> String;
}

/// A network that acts in one environment.
pub(in crate::policy) struct PackagedPolicy<N> {
    runner: Runner,
    network: N,
    inputs: Inputs,
    /// What one call of the network takes.
    batch: Batch,
    output: Output,
    seed: u64,
    path: PathBuf,
    /// What the journal says of the policy.
    reported: Vec<(&'static str, Value)>,
}

impl PackagedPolicy<LoadedPackage> {
    /// Checks and loads the package that the settings name, and connects it to the environment.
    ///
    /// # Errors
    /// Returns a [`PolicyError`] that names what does not fit: the machine, the device, a camera or
    /// a state of the environment, the actions.
    pub(in crate::policy) fn open(
        settings: &Exported,
        env: &EnvSpec,
        checkpoints: &mut Checkpoints,
    ) -> Result<Self, PolicyError> {
        let path = settings.model_path.clone();
        let read = Package::read(&path)?;
        let inputs = Inputs::new(&read.description, settings, env)?;
        let actions = read.description.output.action_dim;
        Sides::new(PolicyType::Exported, env).action(actions, "")?;
        let (device, captures) = (checkpoints.device, settings.cuda_graphs);
        let (network, graphs) = LoadedPackage::load(&read, &inputs, device, captures)?;
        let mut policy = Self {
            runner: checkpoints.runner(&path, graphs),
            network,
            inputs,
            batch: read.description.batch,
            output: read.description.output,
            seed: settings.seed,
            reported: vec![
                ("policy_path", path.display().to_string().into()),
                ("exported_by_torch", read.description.torch.clone().into()),
                ("policy_seed", settings.seed.into()),
            ],
            path,
        };
        policy.limit(usize::MAX);
        policy.probe()?;
        let captures = policy.captures().into();
        policy.reported.push(("cuda_graphs", captures));
        Ok(policy)
    }

    /// Runs the package on zeros, which loads all of its code; checks the shape of its actions.
    fn probe(&mut self) -> Result<(), PolicyError> {
        let rows = self.batch.min;
        let actions = self.run(&self.inputs.zeros(rows), rows)?;
        let chunks = self.chunks(&actions, rows);
        chunks.map_err(|reason| PolicyError::file(&self.path, reason))?;
        self.network.loaded();
        Ok(())
    }
}

impl<N: Network> PackagedPolicy<N> {
    /// Limits an inference to `max_rows` rows, as far as the network takes them.
    fn limit(&mut self, max_rows: usize) {
        let Batch { min, max } = self.batch;
        self.runner.min_rows = min;
        self.runner.max_rows = max_rows.clamp(min, max);
    }

    /// Returns whether passes are captured, so that batches are filled up.
    fn captures(&self) -> bool {
        self.runner.graphs.borrow().captures()
    }

    /// Returns the actions of a batch of `rows` rows, in host memory.
    fn run(&self, inputs: &[Tensor], rows: usize) -> Result<Tensor, PolicyError> {
        let _mode = InferenceMode::begin();
        // Batches differ in nothing else.
        let shape = PassShape {
            rows: rows as i64,
            tokens: 0,
            detail: Vec::new(),
        };
        let pass = || {
            let mut graphs = self.runner.graphs.borrow_mut();
            let pass = || Ok::<_, Infallible>(self.network.pass());
            let Ok(out) = graphs.run(Some(shape), inputs, pass);
            to_host(&out).to_kind(Kind::Float)
        };
        self.runner
            .attempt(|| caught(pass).map_err(|reason| RowError(self.network.failed(reason)).into()))
    }

    /// Returns the chunks of a batch, or what is wrong with the shape of its actions.
    fn chunks(&self, actions: &Tensor, rows: usize) -> Result<Vec<Chunk>, String> {
        let (horizon, action_dim) = (self.output.horizon, self.output.action_dim);
        let wanted = [rows, horizon, action_dim].map(|size| size as i64);
        let found = actions.size();
        if found != wanted {
            return Err(format!(
                "it gave {found:?} for {rows} rows, expected {wanted:?}"
            ));
        }
        let actions = actions.to_kind(Kind::Float).contiguous().view(-1);
        let values = Vec::<f32>::try_from(actions).map_err(|err| err.to_string())?;
        let chunks = values.chunks_exact(horizon * action_dim);
        Ok(chunks
            .map(|values| Chunk::new(action_dim, values.to_vec()))
            .collect())
    }

    /// Returns the chunks of rows that are inferred together.
    fn infer(&self, rows: &[&PolicyRow]) -> Result<Vec<Chunk>, PolicyError> {
        let actions = self.run(&self.inputs.tensors(rows, self.seed)?, rows.len())?;
        let chunks = self.chunks(&actions, rows.len());
        chunks.map_err(|reason| RowError(format!("`{}`: {reason}", self.path.display())).into())
    }
}

impl<N: Network> Policy for PackagedPolicy<N> {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: self.output.horizon,
            needs_video: self.inputs.needs_video(),
            reported: self.reported.clone(),
            ..PolicyFacts::default()
        }
    }

    fn warm_up(&mut self, rows: usize, max_rows: usize) {
        self.limit(max_rows);
        if !self.captures() {
            return;
        }
        let size = self.runner.filled(rows.max(1), true);
        let zeros = self.inputs.zeros(size);
        for _ in 0..2 {
            if let Err(err) = self.run(&zeros, size) {
                // The first episode will report the error.
                tracing::debug!("warming up: {err}");
                return;
            }
        }
    }

    fn shortage(&self) -> Shortage {
        self.runner.shortage()
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let chunks = self
            .runner
            .infer(rows, self.captures(), |rows| self.infer(rows))?;
        Ok(chunks.into_iter().map(RowAnswer::from).collect())
    }
}
