//! Loads a GR00T checkpoint, and prints the time and memory it took as JSON.
//! `benches/policy_load.py` compares them.
//!
//! ```text
//! cargo run --release --example load_checkpoint -- DIR [bf16|f32] [cpu|cuda]
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use gr00t::{LoadError, ModelDir, Weights, layout};
use serde_json::json;
use tch::{Cuda, Device, Kind};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let kind = if argument(1) == Some("f32") {
        Kind::Float
    } else {
        Kind::BFloat16
    };
    let device = if argument(2) == Some("cuda") {
        Device::Cuda(0)
    } else {
        Device::Cpu
    };
    match measure(Path::new(argument(0).unwrap_or(".")), device, kind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("load_checkpoint: {err}");
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "measuring is what this program is for"
)]
fn measure(dir: &Path, device: Device, kind: Kind) -> Result<(), LoadError> {
    if device != Device::Cpu {
        Cuda::synchronize(0); // The context is not the checkpoint's cost.
    }
    let before = memory();
    let begin = Instant::now();
    let (model, vlm) = ModelDir::open(dir, None)?.configs()?;
    let mut weights = Weights::open(dir, device, kind)?;
    let opened = begin.elapsed();
    let specs = layout::tensors(&model, &vlm);
    weights.ahead(&specs)?;
    for (name, shape) in &specs {
        drop(weights.take(name, shape));
    }
    let named = weights.finish()?;
    if device != Device::Cpu {
        Cuda::synchronize(0);
    }
    let loaded = begin.elapsed();
    let after_load = memory();
    // Touches every page once, as the first inference does.
    let sum: f64 = named
        .iter()
        .map(|(_, tensor)| {
            tensor
                .view(-1)
                .slice(0, 0, None, 1024)
                .sum(Kind::Float)
                .double_value(&[])
        })
        .sum();
    let touched = begin.elapsed();
    let report = json!({
        "tensors": named.len(),
        "open_s": opened.as_secs_f64(),
        "load_s": loaded.as_secs_f64(),
        "load_and_touch_s": touched.as_secs_f64(),
        "sum": sum,
        "before_kib": before,
        "loaded_kib": after_load,
        "touched_kib": memory(),
    });
    println!("{report}");
    Ok(())
}

/// Returns the resident memory of this process in KiB: peak, current, anonymous, and file-backed.
fn memory() -> BTreeMap<String, u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let fields = status.lines().filter_map(|line| line.split_once(':'));
    let wanted = fields.filter(|(name, _)| ["VmHWM", "VmRSS", "RssAnon", "RssFile"].contains(name));
    wanted
        .filter_map(|(name, value)| {
            Some((
                name.to_owned(),
                value.split_whitespace().next()?.parse().ok()?,
            ))
        })
        .collect()
}
