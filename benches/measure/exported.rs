//! Measures a compiled package or a TorchScript module for `benches/exported.py`.
//!
//! ```text
//! measure exported FILE.pt2|FILE.pt DIR   runs FILE once for each line of stdin on the inputs in
//!                                         DIR, and prints a line with the seconds
//! ```
//! The actions must be those in DIR.

use std::io::{self, BufRead, Write};
use std::path::Path;

use jobs::exported::{Machine, Package};
use tch::{CModule, Device, Kind, Tensor};
use torchlib::operators::InferenceMode;
use torchlib::package::{CompiledPackage, Signature, TensorLayout};

use crate::{Outcome, now, take};

/// The inputs in the folder that `benches/exported_models.py` uses.
const INPUTS: &str = "inputs.64.safetensors";

/// Largest difference of an action, relative to the largest change from noise to actions.
const TOLERANCE: f64 = 1e-4;

/// A form of the network.
enum Module {
    Package(CompiledPackage),
    Script(CModule),
}

impl Module {
    fn open(path: &Path, inputs: &[Tensor]) -> Outcome<Self> {
        if path.extension().is_some_and(|extension| extension == "pt") {
            let mut module = CModule::load(path)?;
            module.set_eval();
            return Ok(Self::Script(module));
        }
        let package = Package::read(path)?;
        package.check(&Machine::here())?;
        let layout = |input: &Tensor| TensorLayout {
            kind: input.kind(),
            row: input.size()[1..].to_vec(),
        };
        let signature = Signature {
            inputs: inputs.iter().map(layout).collect(),
            min_batch: 1,
            max_batch: 1,
        };
        let folder = tempfile::tempdir()?;
        package.extract(folder.path())?;
        let library = folder.path().join(&package.library);
        let loaded = CompiledPackage::load(&library, folder.path(), Device::Cpu, signature)?;
        // The library must have run once before its file goes.
        let _actions = loaded.run(inputs)?;
        Ok(Self::Package(loaded))
    }

    fn run(&self, inputs: &[Tensor]) -> Outcome<Tensor> {
        Ok(match self {
            Self::Package(package) => package.run(inputs)?,
            Self::Script(module) => module.forward_ts(inputs)?,
        })
    }
}

pub fn main(words: &[&str]) -> Outcome<()> {
    let [file, folder] = words else {
        return Err("expected FILE.pt2|FILE.pt DIR".into());
    };
    let _mode = InferenceMode::begin();
    let tensors = Tensor::read_safetensors(Path::new(folder).join(INPUTS))?;
    let (noise, wanted) = (take(&tensors, "noise")?, take(&tensors, "actions")?);
    let inputs = [
        take(&tensors, "pixel_values")?.unsqueeze(0),
        take(&tensors, "state")?,
        noise.shallow_clone(),
    ];
    let module = Module::open(Path::new(file), &inputs)?;
    let off = largest(module.run(&inputs)? - &wanted) / largest(&wanted - &noise);
    if off > TOLERANCE {
        return Err(format!("actions differ by {off}, at most {TOLERANCE} is expected").into());
    }
    for line in io::stdin().lock().lines() {
        line?;
        let begin = now();
        let _actions = module.run(&inputs)?;
        println!("[{}]", begin.elapsed().as_secs_f64());
        io::stdout().flush()?;
    }
    Ok(())
}

fn largest(difference: Tensor) -> f64 {
    let largest = difference.abs().max();
    largest.to_kind(Kind::Double).double_value(&[])
}
