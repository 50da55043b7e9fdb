//! One mp4 an environment, one an episode and one a worker when asked for, coded in threads of their own.
//!
//! ```text
//!                  ┌► thread 0 ─ track 0, track 2, …   tile (one canvas) ─► yuv (planes) ─► h264 (samples) ─► mp4
//! Recorder ─ cues ─┤
//!                  └► thread 1 ─ track 1, grid 0, …    grid ─► the same
//! ```
//!
//! A file is in fragments while it grows (see `mp4`) and rewritten for browsers when it is closed (see `progressive`).

mod avx2;
mod boxes;
mod crew;
mod film;
mod grid;
pub(super) mod h264;
pub(super) mod mp4;
mod plan;
mod progressive;
mod scale;
pub(super) mod tile;
mod track;
pub(super) mod yuv;

pub(super) use crew::Crew;
pub use plan::{CameraSize, GridPlan, VideoPlan};
