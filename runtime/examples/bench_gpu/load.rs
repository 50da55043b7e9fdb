//! Measures copying all tensors of a checkpoint from the page cache to the device.

use std::fs;
use std::path::Path;

use c10d::operators::InferenceMode;
use gr00t::{ModelDir, Weights, layout};
use serde_json::{Value, json};
use tch::{Device, Kind};

use super::{Outcome, now, synchronize};

/// Loads the checkpoint as an evaluation does, and drops it.
pub fn measure(folder: &Path, device: Device) -> Outcome<Value> {
    let _mode = InferenceMode::begin();
    let (model, vlm) = ModelDir::open(folder, None)?.configs()?;
    let specs = layout::tensors(&model, &vlm);
    synchronize(device);
    let begin = now();
    let mut weights = Weights::open(folder, device, Kind::BFloat16)?;
    weights.ahead(&specs)?;
    for (name, shape) in &specs {
        drop(weights.take(name, shape));
    }
    let named = weights.finish()?;
    synchronize(device);
    let seconds = begin.elapsed().as_secs_f64();
    let bytes: usize = named
        .iter()
        .map(|(_, tensor)| tensor.numel() * tensor.kind().elt_size_in_bytes())
        .sum();
    Ok(
        json!({"what": "load", "seconds": seconds, "bytes": bytes, "tensors": named.len(), "files_bytes": size(folder)?}),
    )
}

/// Returns the total size of the shards in bytes.
fn size(folder: &Path) -> Outcome<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "safetensors")
        {
            total += fs::metadata(entry.path())?.len();
        }
    }
    Ok(total)
}
