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
//! and the next start takes away what is there of a later one (see `list`).
//!
//! Two things are left out: the simulator's state, which the HDF5 format has, and the statistics of
//! single episodes, which loading and training do not read.

use crate::env::EnvSpec;

mod camera;
mod folder;
mod list;
mod rows;
mod stats;
mod table;

pub(super) use folder::LeRobotDataset;
pub(super) use list::{leave_out, names};

/// Maximum number of files in one `chunk-…` folder, as in lerobot.
const CHUNK: u64 = 1000;

/// Prefix of the feature of a camera.
const CAMERA: &str = "observation.images.";

/// Returns the feature of a camera.
fn camera_key(name: &str) -> String {
    format!("{CAMERA}{}", plain(name))
}

/// Replaces slashes, which lerobot does not allow in names.
fn plain(name: &str) -> String {
    name.replace('/', ".")
}

/// Returns the number of rows per second.
fn fps(env: &EnvSpec) -> u32 {
    env.control_hz.max(1)
}
