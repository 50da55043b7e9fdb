//! Encodes canvases into a file: the common part of environment videos and grid videos.

use std::path::{Path, PathBuf};

use crate::record::video::h264::{H264, Rate, Sample};
use crate::record::video::mp4::{Mp4, Picture};
use crate::record::video::yuv::Planes;

/// The reason why an image is not in a video.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The images cannot be laid out or encoded; the encoder cannot be used any more.
    #[error("{0}")]
    Picture(String),
    /// The file cannot be written.
    #[error("{0}")]
    File(String),
}

impl Fault {
    /// Creates an error about the file.
    pub(super) fn file(err: impl ToString) -> Self {
        Self::File(err.to_string())
    }
}

/// An encoder and, from the first image on, its file.
pub(super) struct Film {
    planes: Planes,
    encoder: H264,
    rate: Rate,
    file: Option<Mp4>,
}

impl Film {
    /// Creates an encoder for canvases of this even size.
    pub(super) fn new(height: usize, width: usize, rate: Rate) -> Result<Self, String> {
        Ok(Self {
            planes: Planes::new(height, width),
            encoder: H264::new(rate)?,
            rate,
            file: None,
        })
    }

    /// Makes the next image a key frame.
    pub(super) fn want_keyframe(&mut self) {
        self.encoder.want_keyframe();
    }

    /// Encodes a canvas, `[height, width, 3]`, and adds it to the file, `<dir>/<stem>.mp4`.
    pub(super) fn push(&mut self, canvas: &[u8], dir: &Path, stem: &str) -> Result<Sample, Fault> {
        self.planes.fill(canvas);
        let sample = self.encoder.encode(&self.planes).map_err(Fault::Picture)?;
        let picture = self.picture();
        let file = match &mut self.file {
            Some(file) => file,
            None => self
                .file
                .insert(Mp4::create(dir, stem, picture, &sample).map_err(Fault::file)?),
        };
        file.push(&sample).map_err(Fault::file)?;
        Ok(sample)
    }

    /// Returns size and frame rate of the images.
    pub(super) fn picture(&self) -> Picture {
        Picture {
            width: self.planes.width as u32,
            height: self.planes.height as u32,
            fps: self.rate.fps,
        }
    }

    /// Returns the file, if there is an image.
    pub(super) fn file(&mut self) -> Option<&mut Mp4> {
        self.file.as_mut()
    }

    /// Returns the number of images so far.
    pub(super) fn frames(&self) -> u64 {
        self.file.as_ref().map_or(0, Mp4::frames)
    }

    /// Returns the path of the file, if there is an image.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(Mp4::path)
    }

    /// Closes the file. Returns a message for the user, if there is one.
    pub(super) fn close(self) -> Result<Option<String>, String> {
        let Some(file) = self.file else {
            return Ok(None);
        };
        let path: PathBuf = file.path().to_owned();
        file.close(None)
            .map(|(_, note)| note)
            .map_err(|err| format!("`{}`: {err}", path.display()))
    }
}
