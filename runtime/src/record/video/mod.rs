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
pub(super) mod h264;
pub(super) mod mp4;
pub(super) mod tile;
pub(super) mod yuv;

pub use tile::thumbnail;

use std::fs;
use std::path::PathBuf;

use crate::env::{EnvSpec, ImageSize};
use crate::record::RecordError;
use crate::record::video::film::Film;
use crate::record::video::h264::Rate;
use crate::record::video::tile::fit;

/// Distance of key frames, to which players can seek, in seconds.
const KEYFRAME_SECONDS: u32 = 2;
/// The size for `use_high_res_cameras: False`.
const LOW_RES: ImageSize = ImageSize {
    height: 128,
    width: 128,
};

/// The videos of a rank: `<dir>/<stem>.mp4` for each environment. Existing files are not
/// overwritten; names get `_part2`, … instead.
#[derive(Clone, Debug)]
pub struct VideoPlan {
    /// Folder of the videos.
    pub dir: PathBuf,
    /// Distinct file names without extension, one for each environment:
    /// `<job>_video_rank<r>_gpu<g>_env<i>`.
    pub stems: Vec<String>,
    /// True for an additional file per episode: `<stem>_episode<e>_success.mp4` or `…_failure.mp4`,
    /// and `…_unfinished.mp4` until its end.
    pub per_episode: bool,
    /// Additional grid videos, one for the environments of each of these workers.
    pub grids: Vec<GridPlan>,
    /// Cameras from left to right, at least one.
    pub cameras: Vec<String>,
    /// Size of each camera in the video.
    pub size: CameraSize,
    /// Frames per second, at least 1.
    pub fps: u32,
    /// Approximate maximum of bits per second; at least 10 000. A grid has this bit rate for each
    /// of its environments.
    pub bitrate: u32,
}

/// The environments of one worker in one video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridPlan {
    /// File name without extension: `<job>_video_rank<w>_gpu<g>_grid`.
    pub stem: String,
    /// Indices of the environments, row by row. Each is in at most one grid.
    pub envs: Vec<usize>,
}

/// Size of one camera in a video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameraSize {
    /// The size that the simulator rendered.
    AsRendered,
    /// Scaled down to fit into 128×128, with its aspect ratio.
    LowRes,
}

impl CameraSize {
    /// Returns the size in the video of a camera whose images have this size.
    pub(super) fn of(self, rendered: ImageSize) -> ImageSize {
        match self {
            Self::AsRendered => rendered,
            Self::LowRes => fit(rendered, rendered, LOW_RES),
        }
    }
}

impl VideoPlan {
    /// Returns the video of this name that shows so many environments.
    pub(super) fn film(&self, stem: &str, envs: usize) -> Film {
        let rate = Rate {
            fps: self.fps,
            bitrate: self.bitrate.saturating_mul(envs as u32),
            keyframe_every: self.fps.saturating_mul(KEYFRAME_SECONDS),
        };
        let path = self.dir.join(format!("{stem}.mp4"));
        let mut film = Film::new(path, rate, &self.cameras);
        film.size = self.size;
        film
    }

    /// Checks that the environment has the cameras, and creates the folder.
    pub(super) fn prepare(&self, env: &EnvSpec) -> Result<(), RecordError> {
        let known: Vec<&str> = env.cameras.iter().map(|one| one.name.as_str()).collect();
        let mut cameras = self.cameras.iter();
        if let Some(unknown) = cameras.find(|camera| !known.contains(&camera.as_str())) {
            return Err(RecordError(format!(
                "`{}` has no camera `{unknown}`; it has {}",
                env.name,
                known.join(", ")
            )));
        }
        fs::create_dir_all(&self.dir).map_err(|err| RecordError::file(&self.dir, err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_resolution_keeps_the_shape_and_enlarges_nothing() {
        let size = |(height, width)| ImageSize { height, width };
        assert_eq!(
            [(480, 640), (960, 480), (64, 64)].map(|sides| CameraSize::LowRes.of(size(sides))),
            [(96, 128), (128, 64), (64, 64)].map(size)
        );
    }
}
