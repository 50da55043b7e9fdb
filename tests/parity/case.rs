//! A case folder: a model directory, inputs, expected tensors, and the parameters of the reference
//! run.

use std::path::PathBuf;

use models::Weights;
use models::gr00t::BatchInputs;
use models::gr00t::model::{Gr00t, PassConstants, PassInputs, Rtc, SamplerStart};
use models::gr00t::{ModelConfig, VlmConfig};
use models::graphs::PassShape;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::processor::files::{Tensors, cases_with, json, tensors};

pub struct Case {
    pub dir: PathBuf,
    pub expected: Tensors,
    pub inputs: Tensors,
    pub json: Value,
    pub config: ModelConfig,
}

/// Returns the cases with a network.
pub fn cases() -> Vec<Case> {
    cases_with("case.json")
        .into_iter()
        .map(Case::read)
        .collect()
}

impl Case {
    fn read(dir: PathBuf) -> Self {
        Self {
            expected: tensors(&dir.join("expected.safetensors")),
            inputs: tensors(&dir.join("inputs.safetensors")),
            json: json(&dir.join("case.json")),
            config: ModelConfig::read(&dir.join("config.json")).unwrap(),
            dir,
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

    /// Returns the embodiment of each row.
    pub fn embodiments(&self) -> Vec<i64> {
        Vec::try_from(self.input("model.embodiment_id").view(-1)).unwrap()
    }

    /// Returns the inputs of a graph for one embodiment: the constants that follow from shapes, and
    /// the batch, on the host.
    pub fn prepared(
        &self,
        network: &Gr00t,
        embodiment_id: i64,
    ) -> (PassShape, PassConstants, PassInputs) {
        let (inputs, noise) = (self.inputs(embodiment_id), self.input("noise"));
        let steps = self.config.num_inference_timesteps;
        let constants = network.constants(&inputs, &noise, steps, None).unwrap();
        (
            network.shape(&inputs, steps, false),
            constants,
            PassInputs::new(&inputs, SamplerStart::at(noise)),
        )
    }

    /// As [`Case::prepared`], with the batch on the network's device; it continues the chunk
    /// `previous` if that is given.
    pub fn ready(
        &self,
        network: &Gr00t,
        embodiment_id: i64,
        previous: Option<&Tensor>,
    ) -> (PassConstants, PassInputs) {
        let (_, constants, batch) = self.prepared(network, embodiment_id);
        let noise = batch.start.actions.to_kind(network.kind());
        let mut start = match previous {
            Some(previous) => SamplerStart::after(&noise, &self.rtc(previous)),
            None => SamplerStart::at(noise),
        };
        start.actions = start.actions.to_kind(Kind::Float);
        let batch = PassInputs { start, ..batch };
        (constants, batch.to_device(network.device()))
    }

    fn inputs(&self, embodiment_id: i64) -> BatchInputs {
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
            embodiment_id,
        }
    }

    /// Returns the chunk to continue, if the case has one.
    pub fn previous(&self) -> Option<&Tensor> {
        self.inputs.get("rtc.action")
    }

    fn rtc<'a>(&self, previous: &'a Tensor) -> Rtc<'a> {
        let number = |name: &str| self.json["rtc_options"][name].as_f64().unwrap();
        Rtc {
            previous,
            action_horizon: number("action_horizon") as i64,
            overlap_steps: number("rtc_overlap_steps") as i64,
            frozen_steps: number("rtc_frozen_steps") as i64,
            ramp_rate: number("rtc_ramp_rate"),
        }
    }

    pub fn input(&self, name: &str) -> Tensor {
        self.inputs
            .get(name)
            .unwrap_or_else(|| panic!("{}: no input `{name}`", self.name()))
            .shallow_clone()
    }
}
