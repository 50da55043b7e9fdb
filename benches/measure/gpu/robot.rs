//! Creates an embodiment with any number of cameras for the same weights.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Outcome;

/// The file that lists the cameras of an embodiment.
const PROCESSOR: &str = "processor_config.json";

/// Creates a model directory inside `folder`, with links to its files and a processor for another
/// number of cameras. Returns its path.
pub fn with_cameras(folder: &Path, cameras: usize) -> Outcome<PathBuf> {
    let folder = folder.canonicalize()?;
    let changed = folder.join(format!("cameras-{cameras}"));
    fs::create_dir_all(&changed)?;
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name();
        if name != PROCESSOR && !name.to_string_lossy().starts_with("cameras-") {
            link(&folder.join(&name), &changed.join(&name))?;
        }
    }
    let mut processor: Value = serde_json::from_slice(&fs::read(folder.join(PROCESSOR))?)?;
    let embodiments = processor["processor_kwargs"]["modality_configs"].as_object_mut();
    let embodiments =
        embodiments.ok_or_else(|| format!("`{PROCESSOR}` has no modality_configs"))?;
    for (_, embodiment) in embodiments {
        embodiment["video"]["modality_keys"] = (0..cameras)
            .map(|at| json!(format!("camera_{at}")))
            .collect();
    }
    fs::write(changed.join(PROCESSOR), processor.to_string())?;
    Ok(changed)
}

fn link(from: &Path, to: &Path) -> Outcome<()> {
    match symlink(from, to) {
        Err(err) if err.kind() != ErrorKind::AlreadyExists => Err(err.into()),
        _ => Ok(()),
    }
}
