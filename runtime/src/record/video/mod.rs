//! Videos: one mp4 for each environment and, on request, one for each episode and each worker,
//! encoded by background threads.
//!
//! ```text
//!                    ┌► thread 0 ─ track 0, track 2, …   film: tile (canvas) ─► yuv ─► h264 ─► mp4
//! Recorder ─ events ─┤
//!                    └► thread 1 ─ track 1, grid 0, …    the same
//! ```
//!
//! A file is fragmented while it grows, and is finished in place when it is closed (see `mp4`).

mod avx2;
pub(super) mod crew;
pub(super) mod film;
mod grid;
pub(super) mod h264;
pub(super) mod mp4;
mod plan;
mod scale;
pub(super) mod tile;
mod track;
pub(super) mod yuv;

pub use plan::{CameraSize, GridPlan, VideoPlan};
