//! Writes a complete GR00T model directory in the released layout, with random weights, for
//! measurements.
//!
//! ```text
//! cargo bench --bench random_checkpoint -- --size full --out DIR
//!     [--dtype bf16] [--seed 0] [--embodiment libero_sim]
//! ```
//!
//! Tensors are created one at a time, so that the 3.14 B parameters of `full` need 6.3 GB on disk
//! but not in memory. The tokenizer is a small one with the released structure, made for the tests;
//! the token table has its released size.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use gr00t::weights::random_tensor;
use gr00t::write::{MAX_SHARD_BYTES, write_config, write_tensors};
use gr00t::{LoadError, ModelConfig, layout};
use serde_json::{Value, json};
use tch::{Device, Kind};

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
    /// Maximum bytes of tensors per shard.
    #[arg(long, default_value_t = MAX_SHARD_BYTES)]
    max_shard_bytes: u64,
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

fn write(arguments: &Arguments) -> Result<(), LoadError> {
    let (out, kind) = (&arguments.out, arguments.dtype.kind());
    let (model, vlm) = arguments.size.configs();
    let io = |path: &Path| {
        let path = path.to_owned();
        |err| LoadError::Io { path, err }
    };
    fs::create_dir_all(out.join("vlm")).map_err(io(out))?;
    write_config(&out.join("config.json"), &model.to_json())?;
    write_config(&out.join("vlm/config.json"), &vlm.to_json())?;
    write_config(
        &out.join("processor_config.json"),
        &processor(arguments.embodiment, &model),
    )?;
    write_config(
        &out.join("statistics.json"),
        &arguments.embodiment.statistics(),
    )?;
    for (name, text) in FILES {
        fs::write(out.join(name), text).map_err(io(&out.join(name)))?;
    }
    let specs = layout::tensors(&model, &vlm);
    write_tensors(out, &specs, kind, arguments.max_shard_bytes, |at| {
        let (name, shape) = &specs[at];
        random_tensor(arguments.seed, name, shape, kind, Device::Cpu)
    })?;
    let parameters: i64 = specs
        .iter()
        .map(|(_, shape)| shape.iter().product::<i64>())
        .sum();
    println!(
        "{}: {} tensors, {parameters} parameters in {kind:?}",
        out.display(),
        specs.len()
    );
    Ok(())
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
