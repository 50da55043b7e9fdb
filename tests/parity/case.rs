//! A case folder: a model directory, inputs, expected tensors, and the parameters of the reference
//! run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gr00t::inputs::BatchInputs;
use gr00t::model::{
    ConstantsKey, Features, Gr00t, NoTap, PassConstants, PassInputs, Robot, Rtc, SamplerOptions,
    Tap,
};
use gr00t::{ModelConfig, VlmConfig, Weights};
use jobs::refusal::Refusal;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

/// The tensors of a safetensors file by name.
pub type Tensors = BTreeMap<String, Tensor>;

pub struct Case {
    pub dir: PathBuf,
    pub expected: Tensors,
    inputs: Tensors,
    json: Value,
    config: ModelConfig,
}

/// Returns the cases with a network, which are those with weights.
pub fn cases() -> Vec<Case> {
    let committed = || rig::fixture("gr00t");
    let root = std::env::var_os("RRUN_GOLDENS").map_or_else(committed, PathBuf::from);
    let folders = fs::read_dir(&root).unwrap_or_else(|err| panic!("`{}`: {err}", root.display()));
    let mut dirs: Vec<_> = folders
        .map(|entry| entry.unwrap().path())
        .filter(|dir| has_network(dir))
        .collect();
    dirs.sort();
    assert!(!dirs.is_empty(), "`{}` has no case folder", root.display());
    dirs.iter().map(|dir| Case::read(dir)).collect()
}

fn has_network(dir: &Path) -> bool {
    dir.join("case.json").is_file() && dir.join("config.json").is_file()
}

impl Case {
    fn read(dir: &Path) -> Self {
        let tensors = |file| {
            Tensor::read_safetensors(dir.join(file))
                .unwrap()
                .into_iter()
                .collect()
        };
        Self {
            dir: dir.to_owned(),
            expected: tensors("expected.safetensors"),
            inputs: tensors("inputs.safetensors"),
            json: serde_json::from_slice(&fs::read(dir.join("case.json")).unwrap()).unwrap(),
            config: ModelConfig::read(&dir.join("config.json")).unwrap(),
        }
    }

    pub fn name(&self) -> String {
        self.dir.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// Returns the dtype of the reference run.
    pub fn kind(&self) -> Kind {
        match self.json["dtype"].as_str() {
            Some("float32") => Kind::Float,
            Some("bfloat16") => Kind::BFloat16,
            other => panic!("{}: dtype {other:?} in case.json", self.name()),
        }
    }

    /// Returns the network in `kind` on the CPU, with rotary frequencies rounded as in the
    /// reference.
    pub fn network(&self, kind: Kind) -> Gr00t {
        self.network_on(Device::Cpu, kind)
    }

    /// Works like [`Case::network`], on another device.
    pub fn network_on(&self, device: Device, kind: Kind) -> Gr00t {
        let vlm = VlmConfig::read(&self.dir.join("vlm/config.json")).unwrap();
        let mut weights = Weights::open(&self.dir, device, kind).unwrap();
        let network = Gr00t::with_buffers(&mut weights, &self.config, &vlm, Some(self.kind()));
        weights.finish().unwrap();
        network
    }

    pub fn features(&self, network: &Gr00t, tap: &mut dyn Tap) -> Result<Features, Refusal> {
        network.features(&self.inputs(), tap)
    }

    /// Returns the inputs of a graph: the constants that follow from shapes, and the batch, on the
    /// host.
    pub fn prepared(&self, network: &Gr00t) -> (ConstantsKey, PassConstants, PassInputs) {
        let (inputs, noise) = (self.inputs(), self.input("noise"));
        let steps = self.config.num_inference_timesteps;
        let constants = network.constants(&inputs, &noise, steps, None).unwrap();
        (
            network.constants_key(&inputs, steps),
            constants,
            PassInputs::new(&inputs, noise),
        )
    }

    fn inputs(&self) -> BatchInputs {
        let grids: Vec<i64> = Vec::try_from(self.input("model.image_grid_thw").view(-1)).unwrap();
        BatchInputs {
            input_ids: self.input("model.input_ids"),
            attention_mask: self.input("model.attention_mask"),
            pixel_values: self.input("model.pixel_values"),
            image_grid_thw: grids
                .chunks_exact(3)
                .map(|grid| [grid[0], grid[1], grid[2]])
                .collect(),
            state: self.input("model.state"),
            embodiment_id: self.input("model.embodiment_id"),
        }
    }

    pub fn actions(
        &self,
        network: &Gr00t,
        features: &Features,
        rtc: Option<Rtc<'_>>,
        tap: &mut dyn Tap,
    ) -> Tensor {
        let (state, embodiment_id) = (self.input("model.state"), self.input("model.embodiment_id"));
        let robot = Robot {
            state: &state,
            embodiment_id: &embodiment_id,
        };
        let options = SamplerOptions {
            steps: self.config.num_inference_timesteps,
            rtc,
        };
        network
            .actions(features, &robot, &self.input("noise"), &options, tap)
            .unwrap()
    }

    /// Returns the actions of a run without a tap.
    pub fn quiet_actions(&self, network: &Gr00t, features: &Features) -> Tensor {
        self.actions(network, features, None, &mut NoTap)
    }

    /// Returns the chunk to continue, if the case has one.
    pub fn previous(&self) -> Option<&Tensor> {
        self.inputs.get("rtc.action")
    }

    pub fn rtc<'a>(&self, previous: &'a Tensor) -> Rtc<'a> {
        let number = |name: &str| self.json["rtc_options"][name].as_f64().unwrap();
        Rtc {
            previous,
            action_horizon: number("action_horizon") as i64,
            overlap_steps: number("rtc_overlap_steps") as i64,
            frozen_steps: number("rtc_frozen_steps") as i64,
            ramp_rate: number("rtc_ramp_rate"),
        }
    }

    fn input(&self, name: &str) -> Tensor {
        self.inputs
            .get(name)
            .unwrap_or_else(|| panic!("{}: no input `{name}`", self.name()))
            .shallow_clone()
    }
}
