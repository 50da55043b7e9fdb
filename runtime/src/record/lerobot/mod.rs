//! A dataset in the format of LeRobot 0.4 and later (codebase version v3.0;
//! lerobot/datasets/lerobot_dataset.py and lerobot/datasets/utils.py of lerobot 0.4.4).
//!
//! ```text
//! <path>/
//! ├ data/chunk-000/file-012.parquet                             one row per step
//! ├ videos/observation.images.<camera>/chunk-000/file-012.mp4   one image per step
//! └ meta/
//!   ├ episodes/chunk-000/file-012.parquet                       location of episode 12
//!   ├ tasks.parquet, stats.json, info.json                      of all episodes
//!   ├ modality.json                                             named parts for GR00T
//!   └ rrun_episodes.jsonl                                       of rrun: seeds, ends, statistics
//! ```
//!
//! The image of a step is the one before its action; `modality.json` names the parts of state and
//! action; `rrun_episodes.jsonl` has the seed and the end of each episode.
//!
//! Each episode has one file of each kind (the format allows more), so existing files never change.
//! Files about all episodes are replaced by renames, `info.json` last: an episode counts from then
//! on. After a kill at any moment, the folder loads with all episodes that were reported as written,
//! and the next start takes away what is there of a later one (see `episodes`).
//!
//! Two things are left out: the simulator's state, which the HDF5 format has, and the statistics of
//! single episodes, which loading and training do not read.

use std::path::{Path, PathBuf};

mod camera;
mod episodes;
mod features;
mod moments;
mod rows;
mod store;
mod table;

pub(super) use store::{Folder, leave_out, names};

/// Maximum number of files in one `chunk-…` folder, as in lerobot.
const CHUNK: u64 = 1000;

/// Returns the path of an episode's file below the folder of its kind.
fn file(folder: &Path, index: u64, ending: &str) -> PathBuf {
    let (chunk, file) = (index / CHUNK, index % CHUNK);
    folder
        .join(format!("chunk-{chunk:03}"))
        .join(format!("file-{file:03}.{ending}"))
}

/// Returns the path of a file about all episodes.
fn meta(root: &Path, name: &str) -> PathBuf {
    root.join("meta").join(name)
}
