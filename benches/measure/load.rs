//! Loads a GR00T checkpoint, and prints the time and memory it took as JSON.
//! `benches/policy_load.py` compares them.
//!
//! ```text
//! measure load DIR bf16|f32 cpu|cuda
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use models::Weights;
use models::gr00t::ModelDir;
use models::gr00t::model::Gr00t;
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::{Outcome, now, synchronize};

pub fn main(words: &[&str]) -> Outcome<()> {
    let &[dir, dtype, device] = words else {
        return Err("expected DIR bf16|f32 cpu|cuda".into());
    };
    let kind = match dtype {
        "f32" => Kind::Float,
        _ => Kind::BFloat16,
    };
    let device = match device {
        "cuda" => Device::Cuda(0),
        _ => Device::Cpu,
    };
    synchronize(device); // The context is not the checkpoint's cost.
    let before = memory();
    let begin = now();
    let (tensors, opened) = checkpoint(Path::new(dir), device, kind)?;
    let loaded = begin.elapsed();
    let after_load = memory();
    // Touches every page once, as the first inference does.
    let sum: f64 = tensors
        .iter()
        .map(|tensor| {
            let each_page = tensor.view(-1).slice(0, 0, None, 1024);
            each_page.sum(Kind::Float).double_value(&[])
        })
        .sum();
    let touched = begin.elapsed();
    let report = json!({
        "tensors": tensors.len(),
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

/// Loads all tensors as an evaluation does. Returns the time that opening the files took, too.
pub fn checkpoint(dir: &Path, device: Device, kind: Kind) -> Outcome<(Vec<Tensor>, Duration)> {
    let begin = now();
    let (model, vlm) = ModelDir::open(dir, None)?.configs()?;
    let mut weights = Weights::open(dir, device, kind)?;
    let opened = begin.elapsed();
    let specs = Gr00t::tensors(&model, &vlm);
    weights.ahead(&specs)?;
    let tensors = specs.iter().map(|specs| weights.joint(specs)).collect();
    weights.finish()?;
    synchronize(device);
    Ok((tensors, opened))
}

/// Returns the resident memory of this process in KiB: peak, current, anonymous, and file-backed.
fn memory() -> BTreeMap<String, u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let is_wanted = ["VmHWM", "VmRSS", "RssAnon", "RssFile"].contains(&name);
        let value = value.split_whitespace().next()?.parse().ok()?;
        is_wanted.then(|| (name.to_owned(), value))
    };
    status.lines().filter_map(value).collect()
}
