//! Measures GR00T N1.7 as `rrun eval` runs it, for `benches/gpu.sh`: loading, and inference from
//! images in host memory to actions in host memory. Prints one JSON object per line.
//!
//! ```text
//! measure gpu DIR --device cuda:0 --cameras 1,2,4 --batches 1,8,32 --seconds 2 --inputs OUT
//! ```
//!
//! Each row contains the memory of libtorch's allocator: the bytes of tensors (`allocated`), the
//! bytes reserved on the GPU for them (`reserved`), and how many of these belong to captured
//! graphs. A row starts with what the previous rows have left, so only a process with a single row
//! shows what an evaluation takes (`tests/imitation/test_memory.py`).
//!
//! DIR is a model directory from `random_checkpoint`. OUT gets the inputs of the network and its
//! actions, one sample for each number of cameras, so that another program can compute the same and
//! compare.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};
use tch::{Device, Kind};
use torchlib::cuda;
use torchlib::operators::InferenceMode;

use crate::{Outcome, load, now, synchronize};

mod infer;
mod memory;
mod robot;

/// Measure loading and inference of a GR00T checkpoint.
#[derive(Parser)]
struct Arguments {
    /// Model directory.
    folder: PathBuf,
    /// Device to measure on: `cpu`, `cuda` or `cuda:N`.
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Numbers of cameras to measure with.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    cameras: Vec<usize>,
    /// Numbers of environments to infer together.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    batches: Vec<usize>,
    /// Seconds of inference for each row of the table.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of times to load the checkpoint.
    #[arg(long, default_value_t = 3)]
    loads: usize,
    /// Launch operators one by one, without CUDA graphs.
    #[arg(long)]
    no_cuda_graphs: bool,
    /// Folder to write the inputs and actions of one row to.
    #[arg(long)]
    inputs: Option<PathBuf>,
}

pub fn main(words: &[&str]) -> Outcome<()> {
    measure(&Arguments::parse_from(words))
}

fn measure(arguments: &Arguments) -> Outcome<()> {
    let device = device(&arguments.device)?;
    say(&facts(device)?);
    for _ in 0..arguments.loads {
        say(&loading(&arguments.folder, device)?);
    }
    for &cameras in &arguments.cameras {
        let folder = robot::with_cameras(&arguments.folder, cameras)?;
        let bench = infer::Bench::load(&folder, device, !arguments.no_cuda_graphs)?;
        let mut before = memory::since_last(device);
        if let Some(out) = &arguments.inputs {
            bench.write(&out.join(format!("inputs.{cameras}.safetensors")))?;
        }
        for &batch in &arguments.batches {
            let mut line = bench.measure(batch, Duration::from_secs_f64(arguments.seconds))?;
            line["cameras"] = json!(cameras);
            let run = memory::since_last(device);
            line["peak_bytes"] = json!(run.as_ref().map(|run| &run["allocated_peak_bytes"]));
            line["memory"] =
                json!({"before": before, "run": run, "graphs_bytes": bench.graph_bytes()});
            before = run;
            say(&line);
        }
    }
    Ok(())
}

fn device(name: &str) -> Outcome<Device> {
    let index = match name {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => 0,
        other => other
            .strip_prefix("cuda:")
            .ok_or("the device is cpu, cuda or cuda:N")?
            .parse()?,
    };
    // Select the device before anything else calls CUDA through libtorch.
    cuda::load()?.select(index)?;
    Ok(Device::Cuda(index))
}

fn facts(device: Device) -> Outcome<Value> {
    let Device::Cuda(index) = device else {
        return Ok(json!({"what": "device", "name": "cpu"}));
    };
    let cuda = cuda::load()?;
    let (facts, versions) = (cuda.device(index)?, cuda.versions()?);
    Ok(
        json!({"what": "device", "name": facts.name, "bytes": facts.total_bytes, "driver": versions.driver}),
    )
}

/// Loads the checkpoint, from the page cache if it is there, and drops it.
fn loading(folder: &Path, device: Device) -> Outcome<Value> {
    let _mode = InferenceMode::begin();
    synchronize(device);
    let begin = now();
    let (named, _) = load::checkpoint(folder, device, Kind::BFloat16)?;
    let seconds = begin.elapsed().as_secs_f64();
    let bytes: usize = named
        .iter()
        .map(|tensor| tensor.numel() * tensor.kind().elt_size_in_bytes())
        .sum();
    Ok(json!({
        "what": "load", "seconds": seconds, "bytes": bytes, "tensors": named.len(),
        "files_bytes": size(folder)?,
    }))
}

/// Returns the total size of the shards in bytes.
fn size(folder: &Path) -> Outcome<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "safetensors") {
            total += fs::metadata(path)?.len();
        }
    }
    Ok(total)
}

/// Returns the median in milliseconds; 0 for an empty list.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times
        .get(times.len() / 2)
        .map_or(0.0, |seconds| seconds * 1e3)
}

fn say(line: &Value) {
    println!("{line}");
}
