//! The policy: rows become batches, and a network's actions become chunks.

use std::path::PathBuf;

use serde_json::Value;
use tch::{Kind, Tensor};

use crate::env::EnvSpec;
use crate::policy::batches::{Batches, Shortage};
use crate::policy::exported::inputs::Inputs;
use crate::policy::exported::package::{self, LoadedPackage};
use crate::policy::{
    Checkpoints, Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError,
};
use jobs::exported::{Batch, Description, Output, Package};
use jobs::policies::Exported;
use models::graphs::bucket;

/// Maps the inputs of a batch to actions.
pub(in crate::policy) trait Network {
    /// Returns the actions of a batch of `rows` rows, in host memory.
    ///
    /// # Errors
    /// Returns an error with libtorch's message.
    fn run(&self, inputs: &[Tensor], rows: usize) -> Result<Tensor, PolicyError>;

    /// Returns whether batches are captured; `None` if that never happens.
    fn captures(&self) -> Option<bool> {
        None
    }
}

/// A network that acts in one environment.
pub(in crate::policy) struct PackagedPolicy<N> {
    pub(super) network: N,
    pub(super) inputs: Inputs,
    /// What one call of the network takes.
    pub(super) batch: Batch,
    pub(super) output: Output,
    pub(super) batches: Batches,
    /// Maximum number of rows of one inference.
    pub(super) max_rows: usize,
    pub(super) seed: u64,
    pub(super) path: PathBuf,
    /// What the journal says of the policy, beside whether batches are captured.
    pub(super) reported: Vec<(&'static str, Value)>,
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
        let read = Package::read(&path).map_err(package::refused)?;
        let Description { batch, output, .. } = read.description;
        let inputs = Inputs::new(&read.description, settings, env)?;
        check_actions(&read, env)?;
        let network =
            LoadedPackage::load(&read, &inputs, checkpoints.device(), settings.cuda_graphs)?;
        let mut policy = Self {
            network,
            inputs,
            batch,
            output,
            batches: checkpoints.batches(&path),
            max_rows: batch.max,
            seed: settings.seed,
            reported: vec![
                ("policy_path", path.display().to_string().into()),
                ("exported_by_torch", read.description.torch.clone().into()),
                ("policy_seed", settings.seed.into()),
            ],
            path,
        };
        policy.probe()?;
        Ok(policy)
    }

    /// Runs the package on zeros, which loads all of its code; checks the shape of its actions.
    fn probe(&mut self) -> Result<(), PolicyError> {
        let rows = self.batch.min;
        let actions = self.network.run(&self.inputs.zeros(rows), rows)?;
        let values = self.values(&actions, rows);
        values.map_err(|reason| PolicyError::file(&self.path, reason))?;
        self.network.loaded();
        Ok(())
    }
}

impl<N: Network> PackagedPolicy<N> {
    /// Returns the chunks of rows that are inferred together.
    fn infer(&self, rows: &[PolicyRow]) -> Result<Vec<Chunk>, PolicyError> {
        let most = self
            .shortage()
            .batch
            .map_or(self.max_rows, |limit| limit.max(1));
        let most = most.min(self.max_rows).max(self.batch.min);
        let size = self.padded(rows.len(), most).max(self.batch.min);
        let padding = rows.last().into_iter().cycle();
        let members: Vec<&PolicyRow> = rows.iter().chain(padding).take(size).collect();
        let tensors = self.inputs.tensors(&members, self.seed)?;
        let actions = self.network.run(&tensors, size)?;
        let values = self.values(&actions, size);
        let values =
            values.map_err(|reason| RowError(format!("`{}`: {reason}", self.path.display())))?;
        let Output {
            horizon,
            action_dim,
        } = self.output;
        let chunks = values.chunks_exact(horizon * action_dim);
        Ok(chunks
            .take(rows.len())
            .map(|values| Chunk::new(action_dim, values.to_vec()))
            .collect())
    }

    /// Returns the number of rows up to which a batch of `rows` rows is filled, at most `most`.
    fn padded(&self, rows: usize, most: usize) -> usize {
        match self.network.captures() {
            Some(true) => bucket(rows, most),
            _ => rows,
        }
    }

    /// Returns the actions of a batch, row-major, or what is wrong with their shape.
    fn values(&self, actions: &Tensor, rows: usize) -> Result<Vec<f32>, String> {
        let Output {
            horizon,
            action_dim,
        } = self.output;
        let wanted = [rows, horizon, action_dim].map(|size| size as i64);
        let found = actions.size();
        if found != wanted {
            return Err(format!(
                "it gave {found:?} for {rows} rows, expected {wanted:?}"
            ));
        }
        let actions = actions.to_kind(Kind::Float).contiguous().view(-1);
        Vec::<f32>::try_from(actions).map_err(|err| err.to_string())
    }
}

impl<N: Network> Policy for PackagedPolicy<N> {
    fn facts(&self) -> PolicyFacts {
        let captures = self.network.captures();
        let captures = captures.map(|captures| ("cuda_graphs", captures.into()));
        PolicyFacts {
            horizon: self.output.horizon,
            needs_video: self.inputs.needs_video(),
            reported: self.reported.iter().cloned().chain(captures).collect(),
            ..PolicyFacts::default()
        }
    }

    fn warm_up(&mut self, rows: usize, max_rows: usize) {
        self.max_rows = max_rows.clamp(self.batch.min, self.batch.max);
        if self.network.captures() != Some(true) {
            return;
        }
        let size = self.padded(rows.max(1), self.max_rows);
        let zeros = self.inputs.zeros(size);
        for _ in 0..2 {
            if let Err(err) = self.network.run(&zeros, size) {
                // The first episode will report the error.
                tracing::debug!("warming up: {err}");
                return;
            }
        }
    }

    fn shortage(&self) -> Shortage {
        self.batches.shortage()
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let most = self.max_rows;
        let chunks = self.batches.infer(rows, most, |rows| self.infer(rows))?;
        Ok(chunks.into_iter().map(RowAnswer::from).collect())
    }
}

/// Checks that the actions of a package are those of the environment.
fn check_actions(package: &Package, env: &EnvSpec) -> Result<(), PolicyError> {
    let (found, wanted) = (
        package.description.output.action_dim,
        env.action.names.len(),
    );
    if found == wanted {
        return Ok(());
    }
    let reason = format!(
        "its actions have {found} components, and those of `{}` {wanted}: {}",
        env.name,
        env.action.names.join(", ")
    );
    Err(PolicyError::file(package.path(), reason))
}
