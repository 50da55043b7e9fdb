//! Configuration of the videos.

use std::fs;
use std::path::PathBuf;

use crate::env::{EnvSpec, ImageSize};
use crate::record::RecordError;
use crate::record::video::film::Place;
use crate::record::video::h264::{LEAST_BITRATE, Rate};

/// Distance of key frames, to which players can seek, in seconds.
const KEYFRAME_SECONDS: u32 = 2;

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
    /// Cameras from left to right; empty for all.
    pub cameras: Vec<String>,
    /// Size of each camera in the video.
    pub size: CameraSize,
    /// Frames per second; 0 for the control frequency of the environment.
    pub fps: u32,
    /// Approximate maximum of bits per second; at least 10 000. A grid has this bit rate for each
    /// of its environments.
    pub bitrate: u32,
    /// Number of encoder threads; 0 for one per file, but no more than there are cores.
    pub threads: usize,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CameraSize {
    /// The size that the simulator rendered.
    #[default]
    AsRendered,
    /// Scaled down to fit, with its aspect ratio; `use_high_res_cameras: False` is 128×128.
    AtMost {
        /// Maximum height in pixels.
        height: u32,
        /// Maximum width in pixels.
        width: u32,
    },
    /// Scaled to this size, whatever was rendered.
    Exactly {
        /// Height in pixels.
        height: u32,
        /// Width in pixels.
        width: u32,
    },
}

impl CameraSize {
    /// The size for `use_high_res_cameras: False`.
    pub const LOW_RES: Self = Self::AtMost {
        height: 128,
        width: 128,
    };

    /// Returns the size in the video of a camera whose images have this size.
    pub fn of(self, rendered: ImageSize) -> ImageSize {
        match self {
            Self::AsRendered => rendered,
            Self::Exactly { height, width } => ImageSize { height, width },
            Self::AtMost { height, width } => fit(rendered, rendered, ImageSize { height, width }),
        }
    }
}

/// Returns the largest size with the aspect ratio of `size` at which `all` fits into `limit`, when
/// it shrinks likewise; `size` itself if it fits as it is.
pub(in crate::record) fn fit(size: ImageSize, all: ImageSize, limit: ImageSize) -> ImageSize {
    if all.height <= limit.height && all.width <= limit.width {
        return size;
    }
    let [height, width, tall, wide] =
        [all.height, all.width, limit.height, limit.width].map(u64::from);
    // The side that exceeds the limit by the larger factor decides.
    let (part, of) = if height * wide > width * tall {
        (tall, height)
    } else {
        (wide, width)
    };
    let scaled = |side: u32| (u64::from(side) * part / of).max(1) as u32;
    ImageSize {
        height: scaled(size.height),
        width: scaled(size.width),
    }
}

impl VideoPlan {
    /// Returns the place of a video with this name.
    pub(super) fn place(&self, stem: &str) -> Place {
        Place::New {
            dir: self.dir.clone(),
            stem: stem.to_owned(),
        }
    }

    /// Returns the rate of a video with `times` times the plan's bit rate.
    pub(super) fn rate(&self, times: u32) -> Rate {
        let fps = self.fps.max(1);
        let keyframe_every = fps.saturating_mul(KEYFRAME_SECONDS);
        Rate {
            fps,
            bitrate: self.bitrate.saturating_mul(times),
            keyframe_every,
        }
    }

    /// Fills in the names and the frame rate that the plan leaves to the environment, and creates
    /// the folder.
    pub(in crate::record) fn resolve(mut self, env: &EnvSpec) -> Result<Self, RecordError> {
        let known: Vec<String> = env
            .cameras
            .iter()
            .map(|camera| camera.name.clone())
            .collect();
        if let Some(unknown) = self.cameras.iter().find(|camera| !known.contains(camera)) {
            let known = known.join(", ");
            return Err(RecordError(format!(
                "`{}` has no camera `{unknown}`; it has {known}",
                env.name
            )));
        }
        if known.is_empty() {
            return Err(RecordError(format!(
                "`{}` has no camera to make a video of",
                env.name
            )));
        }
        if self.bitrate < LEAST_BITRATE {
            let found = self.bitrate;
            return Err(RecordError(format!(
                "the video bit rate is {found}, expected at least {LEAST_BITRATE}"
            )));
        }
        if self.cameras.is_empty() {
            self.cameras = known;
        }
        if self.fps == 0 {
            self.fps = env.control_hz.max(1);
        }
        fs::create_dir_all(&self.dir).map_err(|err| RecordError::file(&self.dir, err))?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_resolution_keeps_the_shape_and_enlarges_nothing() {
        let low = CameraSize::LOW_RES;
        let size = |(height, width)| ImageSize { height, width };
        assert_eq!(
            [(480, 640), (960, 480), (64, 64)].map(|sides| low.of(size(sides))),
            [(96, 128), (128, 64), (64, 64)].map(size)
        );
    }

    #[test]
    fn a_grid_that_is_too_large_keeps_its_shape() {
        let size = |height, width| ImageSize { height, width };
        let shrunk = |camera, all| fit(camera, all, size(1080, 1920));
        assert_eq!(shrunk(size(224, 224), size(448, 896)), size(224, 224));
        assert_eq!(shrunk(size(960, 960), size(1920, 3840)), size(480, 480));
        assert_eq!(shrunk(size(960, 960), size(2160, 960)), size(480, 480));
    }
}
