//! Canvases to a file: what the video of an environment and that of a grid have in common.

use std::path::{Path, PathBuf};

use super::h264::{H264, Rate, Sample};
use super::mp4::{Mp4, Picture};
use super::yuv::Planes;

/// Why a picture is not in a video.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The pictures cannot be shown or coded; the encoder is of no use any more.
    #[error("{0}")]
    Picture(String),
    /// The file cannot be written.
    #[error("{0}")]
    File(String),
}

impl Fault {
    /// An error of the file.
    pub(super) fn file(err: impl ToString) -> Self {
        Self::File(err.to_string())
    }
}

/// An encoder and, from the first picture on, its file.
pub(super) struct Film {
    planes: Planes,
    encoder: H264,
    rate: Rate,
    file: Option<Mp4>,
}

impl Film {
    /// For canvases of this even size.
    pub(super) fn new(height: usize, width: usize, rate: Rate) -> Result<Self, String> {
        Ok(Self { planes: Planes::new(height, width), encoder: H264::new(rate)?, rate, file: None })
    }

    /// Makes the next picture a keyframe.
    pub(super) fn want_keyframe(&mut self) {
        self.encoder.want_keyframe();
    }

    /// Codes a canvas, `[height, width, 3]`, and adds it to the file, `<dir>/<stem>.mp4`.
    pub(super) fn push(&mut self, canvas: &[u8], dir: &Path, stem: &str) -> Result<Sample, Fault> {
        self.planes.fill(canvas);
        let sample = self.encoder.encode(&self.planes).map_err(Fault::Picture)?;
        let picture = self.picture();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(Mp4::create(dir, stem, picture, &sample).map_err(Fault::file)?),
        };
        file.push(&sample).map_err(Fault::file)?;
        Ok(sample)
    }

    /// Size and rate of its pictures.
    pub(super) fn picture(&self) -> Picture {
        Picture { width: self.planes.width as u32, height: self.planes.height as u32, fps: self.rate.fps }
    }

    /// The file, once there is a picture.
    pub(super) fn file(&mut self) -> Option<&mut Mp4> {
        self.file.as_mut()
    }

    /// Pictures so far.
    pub(super) fn frames(&self) -> u64 {
        self.file.as_ref().map_or(0, Mp4::frames)
    }

    /// Where the file is.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(Mp4::path)
    }

    /// Closes the file. The value tells what the user should know.
    pub(super) fn close(self) -> Result<Option<String>, String> {
        let Some(file) = self.file else { return Ok(None) };
        let path: PathBuf = file.path().to_owned();
        file.close(None).map(|(_, note)| note).map_err(|err| format!("`{}`: {err}", path.display()))
    }
}
