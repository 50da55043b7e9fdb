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

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use tch::{CModule, Tensor};

use crate::env::EnvSpec;
use crate::policy::exported::inputs::{Inputs, Tokens};
use crate::policy::exported::{Network, PackagedPolicy};
use crate::policy::{Checkpoints, PolicyError};
use jobs::exported::{Batch, Output};
use jobs::policies::{PolicyType, Torchscript};
use jobs::refusal::Refusal;
use jobs::wiring::Sides;
use models::graphs::{Graphs, PassFn};
use torchlib::torch_error::message;

/// A loaded TorchScript module.
pub(in crate::policy) struct Script {
    module: Rc<CModule>,
    path: PathBuf,
}

impl Network for Script {
    fn pass(&self) -> PassFn {
        let module = Rc::clone(&self.module);
        Rc::new(move |inputs: &[Tensor]| {
            let actions = module.forward_ts(inputs);
            actions.unwrap_or_else(|err| panic!("libtorch: {}", words(&err)))
        })
    }

    fn failed(&self, reason: String) -> String {
        let reason = reason.strip_prefix("libtorch: ").unwrap_or(&reason);
        format!("`{}`: {reason}", self.path.display())
    }
}

/// Loads a module to the device of `checkpoints` and calls it on an observation of zeros.
///
/// # Errors
/// Returns a [`PolicyError`] that names the file, what the environment lacks, or the shape of the
/// module's output.
pub(in crate::policy) fn open(
    settings: &Torchscript,
    env: &EnvSpec,
    checkpoints: &mut Checkpoints,
) -> Result<PackagedPolicy<Script>, PolicyError> {
    let (device, path) = (checkpoints.device, settings.model_path.clone());
    let loaded = CModule::load_on_device(&path, device);
    let mut module = loaded.map_err(|err| PolicyError::file(&path, words(&err)))?;
    module.set_eval();
    let all_states = || env.state.iter().map(|(name, _)| name.clone()).collect();
    let given = settings.state_keys.clone();
    let state_keys: Vec<String> = given.map_or_else(all_states, |keys| keys.0);
    let sides = Sides::new(PolicyType::Torchscript, env);
    sides.require_states(&state_keys)?;
    let asked = settings.cameras.as_ref().map(|given| &given.0[..]);
    let seen = cameras(sides, asked)?;
    let tokens = Tokens::open(
        settings.tokenizer_path.as_deref(),
        settings.max_tokens.into(),
    )?;
    let reported = vec![
        ("policy_path", path.display().to_string().into()),
        ("max_tokens", tokens.length.into()),
        ("cameras", seen.0.clone().into()),
        ("state_keys", state_keys.clone().into()),
    ];
    let length = |key: String| {
        let length = env.length(&key).unwrap_or(0);
        (key, length)
    };
    let states = state_keys.into_iter().map(length).collect();
    let inputs = Inputs::of_script(seen, states, tokens);
    let graphs = Rc::new(RefCell::new(Graphs::on(device, false)));
    let mut policy = PackagedPolicy {
        runner: checkpoints.runner(&path, graphs),
        network: Script {
            module: Rc::new(module),
            path: path.clone(),
        },
        inputs,
        batch: Batch {
            min: 1,
            max: usize::MAX,
        },
        output: Output {
            horizon: 0,
            action_dim: env.action.names.len(),
        },
        seed: 0,
        path,
        reported,
    };
    policy.output.horizon = horizon(&policy, env)?;
    Ok(policy)
}

/// Returns the horizon of the module's output for zeros.
fn horizon(policy: &PackagedPolicy<Script>, env: &EnvSpec) -> Result<usize, PolicyError> {
    let wanted = policy.output.action_dim;
    match policy.run(&policy.inputs.zeros(1), 1)?.size()[..] {
        [1, horizon, dim] if horizon > 0 && usize::try_from(dim) == Ok(wanted) => {
            Ok(horizon as usize)
        }
        ref found => {
            let reason = format!(
                "its `forward` gave {found:?} for one observation, expected [1, horizon, {wanted}] \
                 for `{}`",
                env.name
            );
            Err(PolicyError::file(&policy.path, reason))
        }
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

    use tch::{Device, Kind};

    use super::*;
    use crate::env::Observation;
    use crate::policy::tests::{chunks, env_with, frame, row};
    use crate::policy::{Chunk, Lifeline, Policy};
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

    fn opened(path: &Path) -> Result<PackagedPolicy<Script>, PolicyError> {
        let config = json!({"model_path": path, "state_keys": ["eef_position"], "max_tokens": 8});
        let settings = jobs::policies::read(config.as_object().unwrap()).unwrap();
        open(
            &settings,
            &env(),
            &mut Checkpoints::new(Device::Cpu, Lifeline::alone()),
        )
    }

    fn observation(level: u8, x: f32) -> Observation {
        let video = ["front", "wrist"].map(|name| (name.to_owned(), frame([4, 4], level)));
        Observation {
            video: video.into(),
            state: [("eef_position".to_owned(), vec![x, 0.0, 0.0])].into(),
            language: Arc::from("A"),
            ..Observation::default()
        }
    }

    #[test]
    fn a_module_sees_pictures_state_and_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let mut policy = opened(&module(folder.path(), 7)).unwrap();
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
        let refusal = || opened(&path).err().unwrap().to_string();
        let wanted = "its `forward` gave [1, 2, 6] for one observation, expected [1, horizon, 7] \
            for `push`";
        assert!(refusal().ends_with(wanted), "{}", refusal());
        std::fs::write(&path, "not a module").unwrap();
        assert!(refusal().contains("policy.pt`: "), "{}", refusal());
        assert!(!refusal().contains("Exception raised"), "{}", refusal());
    }
}
