//! Measures batched inference over the same interfaces as an evaluation.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use models::gr00t::model::{Normalise, PassInputs, SamplerStart};
use models::gr00t::processor::{Processor, RgbPicture, RowInputs, StateSteps, collate};
use runtime::policy::gr00t::inference::{Gr00tInference, open_processor};
use runtime::policy::gr00t::read;
use runtime::policy::{Checkpoints, Lifeline, LoadedModel};
use serde_json::{Map, Value, json};
use tch::{Device, Kind, Tensor};
use torchlib::operators::InferenceMode;

use super::median;
use crate::{Outcome, now, synchronize};

/// Width and height of a camera image, in pixels.
const EDGE: usize = 256;
/// Warm-up inferences, which are not measured: they see new shapes, allocate memory and capture
/// graphs.
const WARM: usize = 3;
/// Minimum and maximum number of measured inferences.
const ROUNDS: [usize; 2] = [5, 100];
/// The instruction for every environment.
const TASK: &str = "pick up the red block and put it into the bowl on the left of the table";
/// Seed of the noise of the sample that is written.
const SEED: u64 = 7;

/// A loaded checkpoint and the observations for it.
pub struct Bench {
    inference: Gr00tInference,
    loaded: Rc<LoadedModel>,
    /// The images, one per camera.
    pictures: Vec<Vec<u8>>,
    states: Vec<(String, Vec<f32>)>,
    load_seconds: f64,
}

impl Bench {
    pub fn load(folder: &Path, device: Device, cuda_graphs: bool) -> Outcome<Self> {
        let config = Map::from_iter([
            ("model_path".to_owned(), json!(folder)),
            ("dtype".to_owned(), json!("bfloat16")),
            ("cuda_graphs".to_owned(), json!(cuda_graphs)),
        ]);
        let settings = read(&config)?;
        let processor = open_processor(&settings)?;
        let (pictures, states) = (pictures(&processor), states(&processor));
        let mut checkpoints = Checkpoints::new(device, Lifeline::alone());
        synchronize(device);
        let begin = now();
        let inference = Gr00tInference::load(&settings, processor, &mut checkpoints)?;
        synchronize(device);
        let load_seconds = begin.elapsed().as_secs_f64();
        // This returns the model that was just loaded.
        let loaded = checkpoints.gr00t(&settings)?;
        Ok(Self {
            inference,
            loaded,
            pictures,
            states,
            load_seconds,
        })
    }

    /// Measures inference with `batch` observations. Returns the medians of the whole time and of
    /// the processor's share.
    pub fn measure(&self, batch: usize, patience: Duration) -> Outcome<Value> {
        let raws: Vec<_> = (0..batch).map(|_| self.raw()).collect::<Outcome<_>>()?;
        let start = |row| SamplerStart::at(self.inference.noise(row));
        let starts: Vec<_> = (0..batch as u64).map(start).collect();
        let first = self.seconds(&raws, &starts)?;
        for _ in 1..WARM {
            self.seconds(&raws, &starts)?;
        }
        let (begin, [least, most]) = (now(), ROUNDS);
        let (mut whole, mut processor) = (Vec::new(), Vec::new());
        while whole.len() < least || (whole.len() < most && begin.elapsed() < patience) {
            whole.push(self.seconds(&raws, &starts)?);
            let begin = now();
            drop(self.inference.processor.prepare(&raws));
            processor.push(begin.elapsed().as_secs_f64());
        }
        Ok(json!({
            "what": "infer", "batch": batch, "rounds": whole.len(), "first_ms": first * 1e3,
            "end_to_end_ms": median(whole), "processor_ms": median(processor), "load_seconds": self.load_seconds,
        }))
    }

    /// Returns the memory in bytes that captured graphs hold.
    pub fn graph_bytes(&self) -> u64 {
        self.loaded.graphs.borrow().bytes()
    }

    /// Writes the network's inputs for one environment and the resulting normalised actions to
    /// `path`.
    pub fn write(&self, path: &Path) -> Outcome<()> {
        let _mode = InferenceMode::begin();
        let processor = &self.inference.processor;
        let samples = processor.prepare(&[self.raw()?])?;
        let samples: Vec<_> = samples.iter().collect();
        let mut inputs = collate(&samples, processor.prompts.padding_id)?;
        // Other programs need normalised images.
        inputs.pixel_values = Normalise::new(processor.pictures.scale, Device::Cpu)
            .apply(&inputs.pixel_values, Kind::Float);
        let noise = self.inference.noise(SEED).unsqueeze(0);
        let loaded = &self.loaded;
        let (network, steps) = (&loaded.network, loaded.config.num_inference_timesteps);
        let constants = network.constants(&inputs, &noise, steps, None)?;
        let batch = PassInputs::new(&inputs, SamplerStart::at(noise.shallow_clone()));
        let actions = network.pass(&constants, &batch.to_device(network.device()));
        let named = [
            ("input_ids", inputs.input_ids),
            ("pixel_values", inputs.pixel_values),
            (
                "image_grid_thw",
                Tensor::from_slice(&inputs.image_grid_thw.concat()).view([-1, 3]),
            ),
            ("state", inputs.state),
            ("embodiment_id", Tensor::from_slice(&[inputs.embodiment_id])),
            ("noise", noise),
            ("actions", actions.to_device(Device::Cpu)),
        ];
        Ok(Tensor::write_safetensors(&named, path)?)
    }

    /// Returns the seconds from observations in host memory to actions in host memory.
    fn seconds(&self, raws: &[RowInputs<'_>], starts: &[SamplerStart]) -> Outcome<f64> {
        let rows = raws.iter().cloned().map(Ok).collect();
        let begin = now();
        for row in self.inference.infer(rows, starts)? {
            row?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    fn raw(&self) -> Outcome<RowInputs<'_>> {
        let views = &self.inference.processor.modalities.video.keys;
        let pictures = views
            .iter()
            .zip(&self.pictures)
            .map(|(view, pixels)| Ok((view.as_str(), vec![RgbPicture::new(EDGE, EDGE, pixels)?])));
        let states = self
            .states
            .iter()
            .map(|(key, values)| Ok((key.as_str(), StateSteps::new(values.len(), values)?)));
        Ok(RowInputs {
            video: pictures.collect::<Outcome<_>>()?,
            state: states.collect::<Outcome<_>>()?,
            instruction: TASK,
        })
    }
}

/// Returns colour gradients, a different one for every camera.
fn pictures(processor: &Processor) -> Vec<Vec<u8>> {
    let pixel = |camera: usize, at: usize| {
        let (y, x) = (at / EDGE, at % EDGE);
        [(x + 40 * camera) as u8, (y * 2) as u8, (x * y / 64) as u8]
    };
    let cameras = 0..processor.modalities.video.keys.len();
    cameras
        .map(|camera| (0..EDGE * EDGE).flat_map(|at| pixel(camera, at)).collect())
        .collect()
}

fn states(processor: &Processor) -> Vec<(String, Vec<f32>)> {
    let keys = processor.numbers.state_keys().into_iter();
    keys.map(|(key, width)| (key.to_owned(), vec![0.1; width.unwrap_or(1)]))
        .collect()
}
