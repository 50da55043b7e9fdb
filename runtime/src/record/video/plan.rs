//! What to make videos of.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::h264::{LEAST_BITRATE, Rate};
use crate::env::EnvSpec;
use crate::record::RecordError;

/// A player can jump to a picture every two seconds.
const KEYFRAME_SECONDS: u32 = 2;

/// The videos of a rank: `<dir>/<stem>.mp4` of each environment, with `_part2`, … instead of writing over a file.
#[derive(Clone, Debug)]
pub struct VideoPlan {
    /// The folder.
    pub dir: PathBuf,
    /// Names without their ending, one an environment and no two the same: `<job>_video_rank<r>_gpu<g>_env<i>`.
    pub stems: Vec<String>,
    /// Also a file an episode: `<stem>_episode<e>_success.mp4` or `…_failure.mp4`, `…_unfinished.mp4` until its end.
    pub per_episode: bool,
    /// Also one file for the environments of each of these workers.
    pub grids: Vec<GridPlan>,
    /// Cameras from left to right; empty for all.
    pub cameras: Vec<String>,
    /// Size of each camera on the video.
    pub size: CameraSize,
    /// Frames a second; 0 for the steps a second of the environment.
    pub fps: u32,
    /// Bits a second, at most about; at least 10 000. A grid has as many times more as it has environments.
    pub bitrate: u32,
    /// Threads that code; 0 for one a file, but no more than there are cores.
    pub threads: usize,
}

/// The environments of one worker in one video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridPlan {
    /// Its name without the ending: `<job>_video_rank<w>_gpu<g>_grid`.
    pub stem: String,
    /// Which environments, row by row. Each is in one grid at most.
    pub envs: Vec<usize>,
}

/// Size of one camera on a video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CameraSize {
    /// As the simulator rendered it.
    #[default]
    AsRendered,
    /// Made smaller where it is larger, in its own shape: `use_high_res_cameras: False` is 128×128.
    AtMost {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
    /// This size, whatever was rendered.
    Exactly {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
}

impl CameraSize {
    /// What `use_high_res_cameras: False` leaves of a camera.
    pub const LOW_RES: Self = Self::AtMost { height: 128, width: 128 };

    /// `(height, width)` on the video of a camera of this `(height, width)`.
    pub fn of(self, (height, width): (u32, u32)) -> (u32, u32) {
        match self {
            Self::AsRendered => (height, width),
            Self::Exactly { height, width } => (height, width),
            Self::AtMost { height: tall, width: wide } if height <= tall && width <= wide => (height, width),
            Self::AtMost { height: tall, width: wide } => {
                let sides = [height, width, tall, wide].map(u64::from);
                let (part, of) = if sides[0] * sides[3] > sides[1] * sides[2] { (tall, height) } else { (wide, width) };
                let side = |side: u32| (u64::from(side) * u64::from(part) / u64::from(of)).max(1) as u32;
                (side(height), side(width))
            }
        }
    }
}

impl VideoPlan {
    /// Of a video with this many times its bit rate.
    pub(super) fn rate(&self, times: u32) -> Rate {
        let fps = self.fps.max(1);
        let keyframe_every = fps.saturating_mul(KEYFRAME_SECONDS);
        Rate { fps, bitrate: self.bitrate.saturating_mul(times), keyframe_every }
    }

    /// Puts names and rate where the plan left them to the environment, and makes the folder.
    pub(in crate::record) fn resolve(mut self, env: &EnvSpec, num_envs: usize) -> Result<Self, RecordError> {
        self.check_stems(num_envs)?;
        self.check_grids(num_envs)?;
        let known: Vec<String> = env.cameras.iter().map(|camera| camera.name.clone()).collect();
        if let Some(unknown) = self.cameras.iter().find(|camera| !known.contains(camera)) {
            let known = known.join(", ");
            return Err(RecordError::Plan(format!("`{}` has no camera `{unknown}`: known are {known}", env.name)));
        }
        if known.is_empty() {
            return Err(RecordError::Plan(format!("`{}` has no camera to make a video of", env.name)));
        }
        if self.bitrate < LEAST_BITRATE {
            let found = self.bitrate;
            return Err(RecordError::Plan(format!(
                "the video bit rate is {found}, at least {LEAST_BITRATE} is needed"
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

    fn check_stems(&self, num_envs: usize) -> Result<(), RecordError> {
        if self.stems.len() != num_envs {
            let found = self.stems.len();
            return Err(RecordError::Plan(format!("{found} names of videos are given for {num_envs} environments")));
        }
        let mut seen = BTreeSet::new();
        let mut stems = self.stems.iter().chain(self.grids.iter().map(|grid| &grid.stem));
        match stems.find(|stem| !seen.insert(stem.as_str())) {
            Some(twice) => Err(RecordError::Plan(format!("two videos are called `{twice}`"))),
            None => Ok(()),
        }
    }

    fn check_grids(&self, num_envs: usize) -> Result<(), RecordError> {
        let mut seen = BTreeSet::new();
        for grid in &self.grids {
            if grid.envs.is_empty() {
                return Err(RecordError::Plan(format!("grid `{}` has no environment", grid.stem)));
            }
            if let Some(env) = grid.envs.iter().find(|env| **env >= num_envs) {
                return Err(RecordError::Plan(format!("grid `{}` has environment {env} of {num_envs}", grid.stem)));
            }
            if let Some(twice) = grid.envs.iter().find(|env| !seen.insert(**env)) {
                return Err(RecordError::Plan(format!("environment {twice} is in two grids")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_resolution_keeps_the_shape_and_enlarges_nothing() {
        let low = CameraSize::LOW_RES;
        assert_eq!([(480, 640), (960, 480), (64, 64)].map(|size| low.of(size)), [(96, 128), (128, 64), (64, 64)]);
    }
}
