//! Writes a complete GR00T model directory in the released layout, with random weights, for
//! measurements.
//!
//! ```text
//! cargo bench --bench random_checkpoint -- --size full --out DIR
//!     [--dtype bf16] [--seed 0] [--embodiment libero_sim]
//! ```
//!
//! Only one shard is in memory at a time. The tokenizer is a small one with the released structure,
//! made for the tests; the token table has its released size.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use models::gr00t::ModelConfig;
use models::gr00t::model::Gr00t;
use models::weights::Spec;
use serde_json::{Map, Value, json};
use tch::{Device, Kind, Tensor};

use embodiment::Embodiment;
use sizes::Size;

mod embodiment;
mod sizes;

/// Embeds a file of the committed golden case, whose tokenizer is used for every size.
macro_rules! golden {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../tests/fixtures/gr00t/case_a_single/", $name)),
        )
    };
}

/// The files that depend neither on the size nor on the embodiment.
const FILES: [(&str, &str); 6] = [
    golden!("embodiment_id.json"),
    golden!("vlm/chat_template.json"),
    golden!("vlm/preprocessor_config.json"),
    golden!("vlm/tokenizer.json"),
    golden!("vlm/tokenizer_config.json"),
    golden!("vlm/video_preprocessor_config.json"),
];

/// Largest number of elements in a shard, except where one tensor has more.
const SHARD: i64 = 1 << 30;

/// Write a GR00T model directory with random weights.
#[derive(Parser)]
struct Arguments {
    /// Size of the network.
    #[arg(long, value_enum)]
    size: Size,
    /// Robot whose cameras, state and actions the checkpoint has.
    #[arg(long, value_enum, default_value_t = Embodiment::SimplerEnvGoogle)]
    embodiment: Embodiment,
    /// Folder to write to; created if it does not exist.
    #[arg(long)]
    out: PathBuf,
    /// Type of the weights.
    #[arg(long, value_enum, default_value_t = Dtype::Bf16)]
    dtype: Dtype,
    /// Seed of the weights; the same seed gives the same weights.
    #[arg(long, default_value_t = 0)]
    seed: i64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Dtype {
    Bf16,
    F16,
    F32,
}

fn main() -> ExitCode {
    // `cargo bench` adds `--bench`.
    let words = std::env::args().filter(|word| word != "--bench");
    match write(&Arguments::parse_from(words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("random_checkpoint: {err}");
            ExitCode::FAILURE
        }
    }
}

fn write(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (out, kind) = (&arguments.out, arguments.dtype.kind());
    let (model, vlm) = arguments.size.configs();
    fs::create_dir_all(out.join("vlm"))?;
    write_json(&out.join("config.json"), &model.to_json())?;
    write_json(&out.join("vlm/config.json"), &vlm.to_json())?;
    write_json(
        &out.join("processor_config.json"),
        &processor(arguments.embodiment, &model),
    )?;
    write_json(
        &out.join("statistics.json"),
        &arguments.embodiment.statistics(),
    )?;
    for (name, text) in FILES {
        fs::write(out.join(name), text)?;
    }
    let specs = Gr00t::tensors(&model, &vlm).concat();
    write_tensors(out, &specs, kind, arguments.seed)?;
    let parameters: i64 = specs.iter().map(elements).sum();
    println!(
        "{}: {} tensors, {parameters} parameters in {kind:?}",
        out.display(),
        specs.len()
    );
    Ok(())
}

fn write_json(path: &Path, value: &Value) -> std::io::Result<()> {
    fs::write(path, format!("{value:#}\n"))
}

fn elements((_, shape): &Spec) -> i64 {
    shape.iter().product()
}

/// Writes random tensors: in one file, or in shards with an index.
fn write_tensors(out: &Path, specs: &[Spec], kind: Kind, seed: i64) -> Result<(), Box<dyn Error>> {
    tch::manual_seed(seed);
    let mut shards: Vec<(i64, &[Spec])> = Vec::new();
    for (at, spec) in specs.iter().enumerate() {
        match shards.last_mut() {
            Some((size, shard)) if *size + elements(spec) <= SHARD => {
                *size += elements(spec);
                *shard = &specs[at - shard.len()..=at];
            }
            _ => shards.push((elements(spec), &specs[at..=at])),
        }
    }
    let count = shards.len();
    let mut weight_map = Map::new();
    for (at, (_, shard)) in shards.iter().enumerate() {
        let file = match count {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", at + 1),
        };
        let tensor = |(name, shape): &Spec| (name.clone(), random_tensor(name, shape, kind));
        let named: Vec<_> = shard.iter().map(tensor).collect();
        Tensor::write_safetensors(&named, out.join(&file))?;
        let names = shard.iter().map(|(name, _)| name.clone());
        weight_map.extend(names.map(|name| (name, Value::from(file.clone()))));
    }
    if count > 1 {
        let index = json!({"metadata": {}, "weight_map": weight_map});
        write_json(&out.join("model.safetensors.index.json"), &index)?;
    }
    Ok(())
}

/// Unlike initial weights of a training, biases are not 0 and norms are not 1, so that every part
/// of the network affects the result.
fn random_tensor(name: &str, shape: &[i64], kind: Kind) -> Tensor {
    let normal = Tensor::randn(shape, (Kind::Float, Device::Cpu));
    let tensor = match name.rsplit('.').next() {
        Some("bias" | "b") => normal * 0.1,
        Some("W") => normal / (shape[1] as f64).sqrt(),
        _ if shape.len() == 1 => normal * 0.1 + 1.0,
        _ => normal / (shape[1..].iter().product::<i64>() as f64).sqrt(),
    };
    tensor.to_kind(kind)
}

/// Returns the embodiment's processor configuration with the widths of this network.
fn processor(embodiment: Embodiment, model: &ModelConfig) -> Value {
    let mut processor = embodiment.processor();
    let arguments = &mut processor["processor_kwargs"];
    arguments["max_state_dim"] = json!(model.max_state_dim);
    arguments["max_action_dim"] = json!(model.max_action_dim);
    arguments["max_action_horizon"] = json!(model.action_horizon);
    processor
}

impl Dtype {
    fn kind(self) -> Kind {
        match self {
            Self::Bf16 => Kind::BFloat16,
            Self::F16 => Kind::Half,
            Self::F32 => Kind::Float,
        }
    }
}
