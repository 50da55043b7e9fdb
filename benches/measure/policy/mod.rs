//! Measures the network of GR00T N1.7 for `benches/policy.py`, which runs it next to the same
//! network in eager PyTorch.
//!
//! ```text
//! measure policy inputs DIR   writes inputs for the model directory there, and the actions that they
//!                             lead to
//! measure policy run DIR      reads a number of patches from each line of stdin, and prints a line
//!                             with the seconds of each part
//! ```
//!
//! The parts are the vision tower, the language model, the conditions (self-attention over the
//! features, state encoder), and the sampler (keys and values of cross attention, four steps).

use std::cell::RefCell;
use std::fmt::Arguments;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use models::Weights;
use models::gr00t::BatchInputs;
use models::gr00t::model::{Gr00t, PassInputs, SamplerStart, listen};
use models::gr00t::{ModelConfig, VlmConfig};
use tch::{Device, Kind, Tensor};
use torchlib::operators::InferenceMode;

use crate::{Outcome, now, take};

mod make;

/// Numbers of patches of the single, square image.
const PATCHES: [i64; 2] = [64, 256];
/// Number of Euler steps, as in the released model.
const STEPS: i64 = 4;

pub fn main(words: &[&str]) -> Outcome<()> {
    let _mode = InferenceMode::begin();
    match *words {
        ["inputs", dir] => inputs(Path::new(dir)),
        ["run", dir] => run(Path::new(dir)),
        _ => Err("expected inputs DIR, or run DIR".into()),
    }
}

/// Writes inputs for the network of a model directory, and the actions that they lead to.
fn inputs(dir: &Path) -> Outcome<()> {
    let (model, vlm) = configs(dir)?;
    let network = open(dir)?;
    for patches in PATCHES {
        let sample = make::sample(patches, &model, &vlm);
        let actions = sample.actions(&network)?;
        Tensor::write_safetensors(&sample.named(actions), inputs_path(dir, patches))?;
    }
    Ok(())
}

/// Runs one inference for each input line, so that the bench can alternate between programs.
fn run(dir: &Path) -> Outcome<()> {
    let network = open(dir)?;
    let samples = PATCHES.map(|patches| Sample::read(&inputs_path(dir, patches)));
    for line in io::stdin().lock().lines() {
        let wanted: i64 = line?.trim().parse()?;
        let at = PATCHES
            .iter()
            .position(|&patches| patches == wanted)
            .ok_or_else(|| format!("found {wanted} patches, expected one of {PATCHES:?}"))?;
        let sample = samples[at].as_ref().map_err(ToString::to_string)?;
        println!("{:?}", seconds(&network, sample)?);
        io::stdout().flush()?;
    }
    Ok(())
}

/// Returns the seconds of vision, language, conditions and sampler.
fn seconds(network: &Gr00t, sample: &Sample) -> Outcome<[f64; 4]> {
    const SHOWN: [&str; 3] = ["vision.merger", "backbone_features", "head.state_features"];
    let passed = Rc::new(RefCell::new(vec![now()]));
    let times = Rc::clone(&passed);
    let see = move |name: Arguments<'_>, _: &Tensor| {
        // A name that is put together is none of these.
        let next = SHOWN.get(times.borrow().len() - 1);
        if next.is_some_and(|next| name.as_str() == Some(next)) {
            times.borrow_mut().push(now());
        }
    };
    let _actions = listen(see, || sample.actions(network))?;
    let mut passed = passed.take();
    passed.push(now());
    let parts = passed.windows(2).map(|at| (at[1] - at[0]).as_secs_f64());
    let parts: Vec<_> = parts.collect();
    Ok(parts
        .try_into()
        .map_err(|_| format!("the network has not shown {SHOWN:?} in this order"))?)
}

fn configs(dir: &Path) -> Outcome<(ModelConfig, VlmConfig)> {
    Ok((
        ModelConfig::read(&dir.join("config.json"))?,
        VlmConfig::read(&dir.join("vlm/config.json"))?,
    ))
}

fn open(dir: &Path) -> Outcome<Gr00t> {
    let (model, vlm) = configs(dir)?;
    let mut weights = Weights::open(dir, Device::Cpu, Kind::Float)?;
    let network = Gr00t::new(&mut weights, &model, &vlm);
    weights.finish()?;
    Ok(network)
}

fn inputs_path(dir: &Path, patches: i64) -> PathBuf {
    dir.join(format!("inputs.{patches}.safetensors"))
}

/// One sample with one image, and the noise from which the sampler starts.
struct Sample {
    inputs: BatchInputs,
    noise: Tensor,
}

impl Sample {
    fn read(path: &Path) -> Outcome<Self> {
        let tensors = Tensor::read_safetensors(path)?;
        let take = |name| take(&tensors, name);
        let inputs = BatchInputs {
            input_ids: take("input_ids")?,
            attention_mask: take("attention_mask")?,
            pixel_values: take("pixel_values")?,
            image_grid_thw: vec![Vec::<i64>::try_from(&take("image_grid_thw")?)?[..].try_into()?],
            state: take("state")?,
            embodiment_id: take("embodiment_id")?.int64_value(&[0]),
        };
        Ok(Self {
            inputs,
            noise: take("noise")?,
        })
    }

    fn actions(&self, network: &Gr00t) -> Outcome<Tensor> {
        let constants = network.constants(&self.inputs, &self.noise, STEPS, None)?;
        let batch = PassInputs::new(&self.inputs, SamplerStart::at(self.noise.shallow_clone()));
        Ok(network.pass(&constants, &batch))
    }

    fn named(self, actions: Tensor) -> Vec<(&'static str, Tensor)> {
        let Self { inputs, noise } = self;
        vec![
            ("input_ids", inputs.input_ids),
            ("attention_mask", inputs.attention_mask),
            ("pixel_values", inputs.pixel_values),
            (
                "image_grid_thw",
                Tensor::from_slice(&inputs.image_grid_thw.concat()),
            ),
            ("state", inputs.state),
            ("embodiment_id", Tensor::from_slice(&[inputs.embodiment_id])),
            ("noise", noise),
            ("actions", actions),
        ]
    }
}
