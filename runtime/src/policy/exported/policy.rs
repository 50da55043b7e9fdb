//! The policy: rows become batches, and the package's actions become chunks.

use std::path::PathBuf;

use tch::{Kind, Tensor};

use crate::env::EnvSpec;
use crate::policy::batches::{Batches, Shortage};
use crate::policy::exported::inputs::Inputs;
use crate::policy::exported::package::{self, LoadedPackage};
use crate::policy::settings::{MakeContext, PolicySettings, files_exist};
use crate::policy::{
    Checkpoints, Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError,
};
use jobs::exported::{Description, Package};
use jobs::policies::Exported;

/// A package that acts in one environment.
pub(in crate::policy) struct ExportedPolicy {
    pub(super) package: LoadedPackage,
    description: Description,
    pub(super) inputs: Inputs,
    batches: Batches,
    /// Maximum number of rows of one inference.
    max_rows: usize,
    settings: Exported,
}

impl ExportedPolicy {
    /// Checks and loads the package that the settings name, and connects it to the environment.
    ///
    /// # Errors
    /// Returns a [`PolicyError`] that names what does not fit: the machine, the device, a camera or
    /// a state of the environment, the actions.
    pub(in crate::policy) fn open(
        settings: Exported,
        env: &EnvSpec,
        checkpoints: &mut Checkpoints,
    ) -> Result<Self, PolicyError> {
        let read = Package::read(&settings.model_path).map_err(package::refused)?;
        let description = read.description.clone();
        let inputs = Inputs::new(&description, &settings, env)?;
        check_actions(&read, env)?;
        let package =
            LoadedPackage::load(&read, &inputs, checkpoints.device(), settings.cuda_graphs)?;
        let batches = checkpoints.batches(&settings.model_path);
        let mut policy = Self {
            package,
            inputs,
            batches,
            max_rows: description.batch.max,
            description,
            settings,
        };
        policy.probe()?;
        Ok(policy)
    }

    /// Runs the package on zeros, which loads all of its code; checks the shape of its actions.
    fn probe(&mut self) -> Result<(), PolicyError> {
        let rows = self.description.batch.min;
        let actions = self.package.run(&self.inputs.zeros(rows), rows)?;
        self.values(&actions, rows)?;
        self.package.loaded();
        Ok(())
    }

    /// Returns the chunks of rows that are inferred together.
    fn infer(&self, rows: &[PolicyRow]) -> Result<Vec<Chunk>, PolicyError> {
        let batch = self.description.batch;
        let most = self
            .shortage()
            .batch
            .map_or(self.max_rows, |limit| limit.max(1));
        let most = most.min(self.max_rows).max(batch.min);
        let size = self.package.padded(rows.len(), most).max(batch.min);
        let padding = rows.last().into_iter().cycle();
        let members: Vec<&PolicyRow> = rows.iter().chain(padding).take(size).collect();
        let tensors = self.inputs.tensors(&members, self.settings.seed)?;
        let actions = self.package.run(&tensors, size)?;
        let values = self.values(&actions, size)?;
        let dim = self.description.output.action_dim;
        let chunks = values.chunks_exact(self.description.output.horizon * dim);
        Ok(chunks
            .take(rows.len())
            .map(|values| Chunk::new(dim, values.to_vec()))
            .collect())
    }

    /// Returns the actions of a batch, row-major; refuses another shape than that of the
    /// description.
    fn values(&self, actions: &Tensor, rows: usize) -> Result<Vec<f32>, PolicyError> {
        let output = self.description.output;
        let wanted = [rows, output.horizon, output.action_dim].map(|size| size as i64);
        let found = actions.size();
        if found != wanted {
            let reason = format!("it gave {found:?} for {rows} rows, expected {wanted:?}");
            return Err(PolicyError::file(&self.settings.model_path, reason));
        }
        let actions = actions.to_kind(Kind::Float).contiguous().view(-1);
        Ok(Vec::<f32>::try_from(actions).map_err(RowError::new)?)
    }
}

impl PolicySettings for Exported {
    fn check(&self) -> Result<(), PolicyError> {
        files_exist(&self.files())
    }

    fn chunk_length(&self) -> Option<usize> {
        self.action_chunk_length.map(usize::from)
    }

    fn files(&self) -> Vec<PathBuf> {
        std::iter::once(self.model_path.clone())
            .chain(self.tokenizer_path.clone())
            .collect()
    }

    fn make(self: Box<Self>, context: MakeContext<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        let policy = ExportedPolicy::open(*self, context.env, context.models)?;
        Ok(Box::new(policy))
    }
}

impl Policy for ExportedPolicy {
    fn facts(&self) -> PolicyFacts {
        let path = self.settings.model_path.display().to_string();
        PolicyFacts {
            horizon: self.description.output.horizon,
            needs_video: self.inputs.needs_video(),
            reported: vec![
                ("policy_path", path.into()),
                ("exported_by_torch", self.description.torch.clone().into()),
                ("policy_seed", self.settings.seed.into()),
                ("cuda_graphs", self.package.captures().into()),
            ],
            ..PolicyFacts::default()
        }
    }

    fn warm_up(&mut self, rows: usize, max_rows: usize) {
        self.max_rows = max_rows.clamp(self.description.batch.min, self.description.batch.max);
        if !self.package.captures() {
            return;
        }
        let size = self.package.padded(rows.max(1), self.max_rows);
        let zeros = self.inputs.zeros(size);
        for _ in 0..2 {
            if let Err(err) = self.package.run(&zeros, size) {
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
