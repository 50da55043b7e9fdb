//! A dataset as LeRobot 0.4 and later read it (codebase version v3.0; lerobot/datasets/lerobot_dataset.py and
//! lerobot/datasets/utils.py of lerobot 0.4.4).
//!
//! ```text
//! <path>/
//! ├ data/chunk-000/file-012.parquet                             a row a step
//! ├ videos/observation.images.<camera>/chunk-000/file-012.mp4   a picture a step, before its action
//! └ meta/
//!   ├ episodes/chunk-000/file-012.parquet                       where episode 12 is
//!   ├ tasks.parquet, stats.json, info.json                      of all episodes
//!   ├ modality.json                                             parts of state and action by name, for GR00T
//!   └ rrun_episodes.jsonl                                       ours: seed and end of each episode
//! ```
//!
//! One file of each kind an episode (the format allows more), so none is changed once it is there; those that speak of
//! all are replaced by renames, `info.json` last. Killed at any moment, the folder loads with all episodes that were
//! answered for: files of a later one are not counted by `info.json`, and the next start takes them away.
//!
//! Left out: the simulator's state, which the HDF5 form has; statistics of each episode by itself, which loading and
//! training do not read.

mod camera;
mod features;
mod moments;
mod rows;
mod store;
mod table;

pub(super) use store::Folder;

/// Files in one `chunk-…` folder at most, as lerobot has it.
const CHUNK: u64 = 1000;
