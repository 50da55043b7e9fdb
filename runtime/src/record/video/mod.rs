//! Videos: one mp4 for each environment and, on request, one for each episode and each worker,
//! encoded by background threads.
//!
//! ```text
//!                    ┌► thread 0 ─ track 0, track 2, …   film: tile (canvas) ─► yuv ─► h264 ─► mp4
//! Recorder ─ events ─┤
//!                    └► thread 1 ─ track 1, grid 0, …    the same
//! ```
//!
//! A file is fragmented while it grows, and is finished in place when it is closed (see `mp4`). The
//! videos of environments, grids and LeRobot's are a [`Film`] each.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::env::{EnvSpec, Frame, ImageSize};
use crate::record::RecordError;
use crate::record::video::h264::{EncodedImage, H264, Rate};
use crate::record::video::mp4::{Mp4, Picture};
use crate::record::video::tile::{Tiling, fit};
use crate::record::video::yuv::Planes;

mod avx2;
pub(super) mod crew;
pub(super) mod h264;
pub(super) mod mp4;
pub(super) mod tile;
pub(super) mod yuv;

pub use tile::thumbnail;

/// Distance of key frames, to which players can seek, in seconds.
const KEYFRAME_SECONDS: u32 = 2;
/// The limit of cameras that are shown as the simulator rendered them.
pub const AS_RENDERED: ImageSize = ImageSize {
    height: u32::MAX,
    width: u32::MAX,
};
/// The limit for `use_high_res_cameras: False`.
pub const LOW_RES: ImageSize = ImageSize {
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
    /// Additional grid videos, one for each worker: the indices of its environments, row by row, by
    /// the file name without extension, `<job>_video_rank<w>_gpu<g>_grid`.
    pub grids: BTreeMap<String, Vec<usize>>,
    /// Cameras from left to right, at least one.
    pub cameras: Vec<String>,
    /// Maximum size of each camera in the video. A larger one is scaled down to fit into it, with
    /// its aspect ratio.
    pub camera_limit: ImageSize,
    /// Frames per second, at least 1.
    pub fps: u32,
    /// Approximate maximum of bits per second; at least 10 000. A grid has this bit rate for each
    /// of its environments.
    pub bitrate: u32,
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
        film.camera_limit = self.camera_limit;
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

/// Why an image is not in a video.
#[derive(Clone, Debug, thiserror::Error)]
pub(in crate::record) enum Fault {
    /// The images cannot be laid out or encoded; the encoder cannot be used any more.
    #[error("{0}")]
    Images(String),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] RecordError),
}

/// A video, which is created with its first image.
pub(in crate::record) struct Film {
    path: PathBuf,
    /// True if a file at the path is overwritten; else the name gets `_part2`, … if there is one.
    pub(in crate::record) replaces: bool,
    /// Cameras from left to right.
    cameras: Vec<String>,
    /// Maximum size of each of them.
    camera_limit: ImageSize,
    /// Rows and columns of cells, each with all cameras.
    grid: (usize, usize),
    /// Maximum size of the whole image.
    limit: ImageSize,
    rate: Rate,
    canvas: Option<Canvas>,
    file: Option<Mp4>,
    /// The next image becomes a key frame, to which players can seek.
    wants_keyframe: bool,
}

/// What depends on the size of the first images.
struct Canvas {
    tiling: Tiling,
    /// `[height, width, 3]`
    rgb: Vec<u8>,
    planes: Planes,
    encoder: H264,
}

impl Film {
    /// Plans a video of one environment.
    pub(in crate::record) fn new(path: PathBuf, rate: Rate, cameras: &[String]) -> Self {
        Self {
            path,
            replaces: false,
            cameras: cameras.to_vec(),
            camera_limit: AS_RENDERED,
            grid: (1, 1),
            limit: AS_RENDERED,
            rate,
            canvas: None,
            file: None,
            wants_keyframe: false,
        }
    }

    /// Draws the images of an environment on its cell.
    pub(in crate::record) fn draw(
        &mut self,
        cell: usize,
        pictures: &BTreeMap<String, Frame>,
    ) -> Result<(), Fault> {
        let canvas = match self.canvas.take() {
            Some(canvas) => canvas,
            None => self.canvas(pictures).map_err(Fault::Images)?,
        };
        let Canvas { tiling, rgb, .. } = self.canvas.insert(canvas);
        let columns = self.grid.1;
        let stride = tiling.width * columns * 3;
        let at = cell / columns * tiling.height * stride + cell % columns * tiling.width * 3;
        let drawn = tiling.draw(pictures, &mut rgb[at..], stride);
        drawn.map_err(Fault::Images)
    }

    fn canvas(&self, pictures: &BTreeMap<String, Frame>) -> Result<Canvas, String> {
        let (rows, columns) = self.grid;
        let shown = |from| fit(from, from, self.camera_limit);
        let whole = Tiling::of(&self.cameras, pictures, shown)?;
        let all = ImageSize {
            height: u32::try_from(whole.height * rows).unwrap_or(u32::MAX),
            width: u32::try_from(whole.width * columns).unwrap_or(u32::MAX),
        };
        let tiling = Tiling::of(&self.cameras, pictures, |from| {
            fit(shown(from), all, self.limit)
        })?;
        let (height, width) = (tiling.height * rows, tiling.width * columns);
        Ok(Canvas {
            tiling,
            rgb: vec![0; height * width * 3],
            planes: Planes::new(height, width),
            encoder: H264::new(self.rate)?,
        })
    }

    /// Encodes the canvas and adds it to the file; returns the image, unless nothing was drawn.
    pub(in crate::record) fn show(&mut self) -> Result<Option<EncodedImage>, Fault> {
        let Some(canvas) = &mut self.canvas else {
            return Ok(None);
        };
        let planes = &mut canvas.planes;
        planes.fill(&canvas.rgb);
        let wants_keyframe = std::mem::take(&mut self.wants_keyframe);
        let sample = canvas.encoder.encode(planes, wants_keyframe);
        let sample = sample.map_err(Fault::Images)?;
        let picture = Picture {
            width: planes.width as u32,
            height: planes.height as u32,
            fps: self.rate.fps,
        };
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = Mp4::create(&self.path, self.replaces, picture, &sample)?;
                self.file.insert(file)
            }
        };
        file.push(&sample)?;
        Ok(Some(sample))
    }

    /// Writes all images of a finished episode to the file, so that none is lost afterwards.
    pub(super) fn flush(&mut self) -> Result<(), RecordError> {
        self.file.as_mut().map_or(Ok(()), Mp4::flush)
    }

    /// Returns the number of images so far.
    pub(super) fn frames(&self) -> u64 {
        self.file.as_ref().map_or(0, Mp4::frames)
    }

    /// Closes the file.
    pub(in crate::record) fn close(&mut self) -> Result<(), RecordError> {
        let closed = self.file.take().map(|file| file.close(None));
        closed.map_or(Ok(()), |closed| closed.map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_resolution_keeps_the_shape_and_enlarges_nothing() {
        let size = |(height, width)| ImageSize { height, width };
        assert_eq!(
            [(480, 640), (960, 480), (64, 64)].map(|sides| fit(size(sides), size(sides), LOW_RES)),
            [(96, 128), (128, 64), (64, 64)].map(size)
        );
    }
}
