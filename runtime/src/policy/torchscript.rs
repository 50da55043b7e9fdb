//! Runs any TorchScript module (`torch.jit.save`) as a policy, for users with a model of their own.
//!
//! ```text
//! forward(images: uint8  [B, cameras, height, width, 3],     RGB, in the order of `cameras`
//!         state:  float32 [B, state_dim],                    the vectors of `state_keys`, in order
//!         tokens: int64  [B, max_tokens])                    instruction, right-padded with 0
//!      -> float32 [B, horizon, action_dim]                   actions of the environment
//! ```
//!
//! Tokens are those of `tokenizer_path` (a `tokenizer.json`); without it, they are the UTF-8 bytes
//! of the instruction. The module is called once when it is loaded, to learn its horizon and to
//! refuse a wrong shape at once.

use std::path::PathBuf;

use tch::{CModule, Device, Kind, Tensor};

use crate::env::EnvSpec;
use crate::policy::batches::{Batches, Shortage};
use crate::policy::settings::{MakeContext, PolicySettings, files_exist};
use crate::policy::tokens::Tokens;
use crate::policy::{
    Checkpoints, Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError,
};
use c10d::operators::InferenceMode;
use c10d::torch_error::{caught, message};
use jobs::policies::{PolicyType, Torchscript};
use jobs::refusal::Refusal;
use jobs::wiring::Sides;

impl PolicySettings for Torchscript {
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
        Ok(Box::new(TorchScript::open(
            &self,
            context.env,
            context.models,
        )?))
    }
}

/// A loaded TorchScript module.
pub struct TorchScript {
    module: CModule,
    path: PathBuf,
    device: Device,
    tokens: Tokens,
    cameras: Vec<String>,
    /// Height and width of every camera.
    size: [u32; 2],
    state_keys: Vec<String>,
    action_dim: usize,
    horizon: usize,
    batches: Batches,
}

impl TorchScript {
    /// Loads a module to the device of `models` and calls it on an observation of zeros.
    ///
    /// # Errors
    /// Returns a [`PolicyError`] that names the file, what the environment lacks, or the shape of
    /// the module's output.
    pub fn open(
        settings: &Torchscript,
        env: &EnvSpec,
        checkpoints: &mut Checkpoints,
    ) -> Result<Self, PolicyError> {
        let device = checkpoints.device();
        let path = settings.model_path.clone();
        let mut module = CModule::load_on_device(&path, device)
            .map_err(|err| PolicyError::file(&path, words(&err)))?;
        module.set_eval();
        let all_states = || env.state.iter().map(|(name, _)| name.clone()).collect();
        let given = settings.state_keys.clone();
        let state_keys: Vec<String> = given.map_or_else(all_states, |keys| keys.0);
        let sides = Sides {
            policy: PolicyType::Torchscript.name(),
            face: env,
        };
        sides.require_states(&state_keys)?;
        let asked = settings.cameras.as_ref().map(|given| &given.0[..]);
        let (cameras, size) = cameras(sides, asked)?;
        let mut script = Self {
            module,
            device,
            tokens: Tokens::open(
                settings.tokenizer_path.as_deref(),
                settings.max_tokens.into(),
            )?,
            cameras,
            size,
            state_keys,
            action_dim: env.action.names.len(),
            horizon: 0,
            batches: checkpoints.batches(&path),
            path,
        };
        script.horizon = script.probe(env)?;
        Ok(script)
    }

    /// Returns the horizon of the module's output for zeros.
    fn probe(&self, env: &EnvSpec) -> Result<usize, PolicyError> {
        let widths = self.state_keys.iter().filter_map(|key| env.length(key));
        let state_dim: usize = widths.sum();
        let [height, columns] = self.size.map(i64::from);
        let images = Tensor::zeros(
            [1, self.cameras.len() as i64, height, columns, 3],
            (Kind::Uint8, Device::Cpu),
        );
        let state = Tensor::zeros([1, state_dim as i64], (Kind::Float, Device::Cpu));
        let tokens = Tensor::zeros([1, self.tokens.length() as i64], (Kind::Int64, Device::Cpu));
        let actions = self.forward(images, state, tokens)?;
        match actions.size()[..] {
            [1, horizon, dim] if horizon > 0 && usize::try_from(dim) == Ok(self.action_dim) => {
                Ok(horizon as usize)
            }
            ref found => {
                let reason = format!(
                    "its `forward` gave {found:?} for one observation, expected [1, horizon, {}] \
                     for `{}`",
                    self.action_dim, env.name
                );
                Err(PolicyError::file(&self.path, reason))
            }
        }
    }

    fn forward(
        &self,
        images: Tensor,
        state: Tensor,
        tokens: Tensor,
    ) -> Result<Tensor, PolicyError> {
        let _mode = InferenceMode::begin();
        let forward = || {
            let inputs = [images, state, tokens].map(|input| input.to_device(self.device));
            let actions = self.module.forward_ts(&inputs).map_err(|err| words(&err))?;
            Ok(actions.to_device(Device::Cpu).to_kind(Kind::Float))
        };
        caught(forward)
            .flatten()
            .map_err(|reason| self.failed(&reason))
    }

    /// Returns the error of an inference.
    fn failed(&self, reason: &str) -> PolicyError {
        let reason = format!("`{}`: {reason}", self.path.display());
        RowError(reason).into()
    }

    /// Returns the chunks of rows that are inferred together.
    fn infer(&self, rows: &[PolicyRow]) -> Result<Vec<Chunk>, PolicyError> {
        let batch = rows.len() as i64;
        let [height, width] = self.size.map(i64::from);
        let (mut images, mut states, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let observation = row.now();
            for camera in &self.cameras {
                let frame = observation
                    .video
                    .get(camera)
                    .filter(|frame| [frame.height, frame.width] == self.size);
                images.extend_from_slice(
                    &frame
                        .ok_or_else(|| RowError::resized("picture of camera", camera))?
                        .rgb,
                );
            }
            for key in &self.state_keys {
                states.extend_from_slice(
                    observation
                        .state
                        .get(key)
                        .ok_or_else(|| RowError::resized("state", key))?,
                );
            }
            tokens.extend(self.tokens.of(&observation.language)?);
        }
        let images =
            Tensor::from_slice(&images).view([batch, self.cameras.len() as i64, height, width, 3]);
        let state = Tensor::from_slice(&states).view([batch, -1]);
        let actions = self.forward(images, state, Tensor::from_slice(&tokens).view([batch, -1]))?;
        let wanted = [batch, self.horizon as i64, self.action_dim as i64];
        if actions.size() != wanted {
            let found = actions.size();
            return Err(self.failed(&format!(
                "its `forward` gave {found:?}, expected {wanted:?}"
            )));
        }
        let values = Vec::<f32>::try_from(actions.contiguous().view(-1));
        let values = values.map_err(RowError::new)?;
        let chunks = values.chunks_exact(self.horizon * self.action_dim);
        Ok(chunks
            .map(|chunk| Chunk::new(self.action_dim, chunk.to_vec()))
            .collect())
    }
}

impl Policy for TorchScript {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: self.horizon,
            needs_video: !self.cameras.is_empty(),
            reported: vec![
                ("policy_path", self.path.display().to_string().into()),
                ("max_tokens", self.tokens.length().into()),
                ("cameras", self.cameras.clone().into()),
                ("state_keys", self.state_keys.clone().into()),
            ],
            ..PolicyFacts::default()
        }
    }

    fn shortage(&self) -> Shortage {
        self.batches.shortage()
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let chunks = self
            .batches
            .infer(rows, rows.len(), |rows| self.infer(rows))?;
        Ok(chunks.into_iter().map(RowAnswer::from).collect())
    }
}

/// Returns the requested cameras, which must all have the same size.
fn cameras(sides: Sides, asked: Option<&[String]>) -> Result<(Vec<String>, [u32; 2]), Refusal> {
    let cameras = sides.listed_cameras(asked)?;
    let names: Vec<String> = cameras.iter().map(|camera| camera.name.clone()).collect();
    let mut sizes = cameras.iter().map(|camera| [camera.height, camera.width]);
    let size = sizes.next().unwrap_or([1, 1]);
    if sizes.any(|other| other != size) {
        return Err(sides.lacks(format_args!("cameras of one size: {}", names.join(", "))));
    }
    Ok((names, size))
}

/// Returns libtorch's error message.
fn words(err: &tch::TchError) -> String {
    message(&err.to_string()).to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::env::Observation;
    use crate::policy::tests::{chunks, env_with, frame, row};
    use serde_json::json;
    use std::sync::Arc;

    fn env() -> EnvSpec {
        env_with(&["front", "wrist"], [4, 4])
    }

    /// Writes a module with two actions of 7 components: the mean of the pictures, then the first
    /// number of the state plus the first token.
    fn module(folder: &Path, dim: i64) -> PathBuf {
        let inputs = [
            Tensor::zeros([2, 2, 4, 4, 3], (Kind::Uint8, Device::Cpu)),
            Tensor::zeros([2, 3], (Kind::Float, Device::Cpu)),
            Tensor::zeros([2, 8], (Kind::Int64, Device::Cpu)),
        ];
        let mut forward = |inputs: &[Tensor]| {
            let seen = inputs[0].to_kind(Kind::Float).mean_dim(
                [1i64, 2, 3, 4].as_slice(),
                false,
                Kind::Float,
            );
            let said = inputs[1].select(1, 0) + inputs[2].select(1, 0).to_kind(Kind::Float);
            let rows = Tensor::stack(&[seen, said], 1).unsqueeze(-1);
            vec![rows.expand([-1, -1, dim], false)]
        };
        let module =
            CModule::create_by_tracing("Script", "forward", &inputs, &mut forward).unwrap();
        let path = folder.join("policy.pt");
        module.save(&path).unwrap();
        path
    }

    fn open(path: &Path) -> Result<TorchScript, PolicyError> {
        let config = json!({"model_path": path, "state_keys": ["eef_position"], "max_tokens": 8});
        let settings = jobs::policies::read(config.as_object().unwrap()).unwrap();
        TorchScript::open(&settings, &env(), &mut Checkpoints::new(Device::Cpu))
    }

    fn observation(level: u8, x: f32) -> Observation {
        let mut observation = Observation::empty();
        observation.video = ["front", "wrist"]
            .map(|name| (name.to_owned(), frame([4, 4], level)))
            .into();
        observation.state = [("eef_position".to_owned(), vec![x, 0.0, 0.0])].into();
        observation.language = Arc::from("A");
        observation
    }

    #[test]
    fn a_module_sees_pictures_state_and_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let mut policy = open(&module(folder.path(), 7)).unwrap();
        assert_eq!(policy.facts().horizon, 2);
        let (first, second) = (observation(10, 0.5), observation(20, 1.5));
        let chunks = chunks(policy.act(&[row(0, first), row(1, second)]));
        assert_eq!(chunks[0], Chunk::new(7, [[10.0; 7], [65.5; 7]].concat()));
        assert_eq!(chunks[1], Chunk::new(7, [[20.0; 7], [66.5; 7]].concat()));
    }

    #[test]
    fn a_module_of_another_action_and_what_is_no_module_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = module(folder.path(), 6);
        let refusal = || open(&path).err().unwrap().to_string();
        let wanted = "its `forward` gave [1, 2, 6] for one observation, expected [1, horizon, 7] \
            for `push`";
        assert!(refusal().ends_with(wanted), "{}", refusal());
        std::fs::write(&path, "not a module").unwrap();
        assert!(refusal().contains("policy.pt`: "), "{}", refusal());
        assert!(!refusal().contains("Exception raised"), "{}", refusal());
    }
}
