//! One mp4 an environment.
//!
//! ```text
//! pictures of a step ─► tile (one canvas) ─► yuv (planes) ─► h264 (a sample) ─► mp4 (fragments)
//! ```

mod h264;
mod mp4;
mod scale;
mod tile;
mod track;
mod yuv;

pub(super) use track::Video;
