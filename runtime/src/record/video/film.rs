//! A growing video: what environment videos, grids and LeRobot's videos share.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::env::{Frame, ImageSize};
use crate::record::RecordError;
use crate::record::video::CameraSize;
use crate::record::video::h264::{EncodedImage, H264, Rate};
use crate::record::video::mp4::{Mp4, Picture};
use crate::record::video::tile::{Tiling, fit};
use crate::record::video::yuv::Planes;

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
    pub(super) path: PathBuf,
    /// True if a file at the path is overwritten; else the name gets `_part2`, … if there is one.
    pub(in crate::record) replaces: bool,
    /// Cameras from left to right.
    cameras: Vec<String>,
    pub(super) size: CameraSize,
    /// Rows and columns of cells, each with all cameras.
    pub(super) grid: (usize, usize),
    /// Maximum size of the whole image.
    pub(super) limit: ImageSize,
    rate: Rate,
    canvas: Option<Canvas>,
    pub(super) file: Option<Mp4>,
    /// The next image becomes a key frame, to which players can seek.
    pub(super) wants_keyframe: bool,
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
            size: CameraSize::AsRendered,
            grid: (1, 1),
            limit: ImageSize {
                height: u32::MAX,
                width: u32::MAX,
            },
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
        let whole = Tiling::of(&self.cameras, pictures, |from| self.size.of(from))?;
        let all = ImageSize {
            height: u32::try_from(whole.height * rows).unwrap_or(u32::MAX),
            width: u32::try_from(whole.width * columns).unwrap_or(u32::MAX),
        };
        let tiling = Tiling::of(&self.cameras, pictures, |from| {
            fit(self.size.of(from), all, self.limit)
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
