//! A model directory that acts in an environment.

use std::error::Error;
use std::path::Path;

use runtime::env::Observation;
use runtime::policy::gr00t::model::{Gr00t, NoTap, Robot, SamplerOptions};
use runtime::policy::gr00t::{ModelDir, Weights};
use tch::{Device, Kind, Tensor};

use crate::batch::inputs;
use crate::network::{ACTION, CHUNK, STATE};
use crate::picture::shrink;
use crate::{prompt, scale};

/// Steps of the sampler.
const STEPS: i64 = 4;

/// A trained network that acts.
pub struct Actor {
    network: Gr00t,
    prompt: Vec<i64>,
}

impl Actor {
    /// Loads the network, told to do what `instruction` says.
    pub fn open(model: &Path, instruction: &str) -> Result<Self, Box<dyn Error>> {
        let dir = ModelDir::open(model, None)?;
        let (model_config, vlm_config) = dir.configs()?;
        let mut weights = Weights::open(model, Device::Cpu, Kind::Float)?;
        let network = Gr00t::new(&mut weights, &model_config, &vlm_config);
        weights.finish()?;
        let vlm = dir.vlm().ok_or("the model directory has a folder vlm")?;
        Ok(Self { network: network.lean(), prompt: prompt::ids(vlm, instruction)? })
    }

    /// A chunk of actions for each observation.
    pub fn act(&self, seen: &[&Observation]) -> Result<Vec<Vec<Vec<f32>>>, Box<dyn Error>> {
        let pictures: Vec<u8> = seen.iter().flat_map(|seen| seen.video.values().flat_map(shrink)).collect();
        let mut states = Vec::new();
        for seen in seen {
            let read = |name: &str| seen.state.get(name).map(Vec::as_slice);
            states.extend(scale::state(read, STATE as usize).ok_or("the environment lacks a state vector")?);
        }
        let inputs = inputs(&pictures, &states, &self.prompt);
        let features = self.network.features(&inputs, &mut NoTap)?;
        let robot = Robot { state: &inputs.state, embodiment_id: &inputs.embodiment_id };
        let noise = Tensor::randn([seen.len() as i64, CHUNK, ACTION], (Kind::Float, Device::Cpu));
        let options = SamplerOptions { steps: STEPS, rtc: None };
        let actions = self.network.actions(&features, &robot, &noise, &options, &mut NoTap)?;
        let flat = Vec::<f32>::try_from(actions.reshape([-1]))?;
        let chunk = |values: &[f32]| values.chunks_exact(ACTION as usize).map(scale::action).collect();
        Ok(flat.chunks_exact((CHUNK * ACTION) as usize).map(chunk).collect())
    }
}
