//! Encodes canvases into a file: the common part of environment videos and grid videos.

use std::io;
use std::path::Path;

use crate::record::video::h264::{CodecError, EncodedImage, H264, Rate};
use crate::record::video::mp4::{Mp4, Picture};
use crate::record::video::yuv::Planes;
use crate::record::{ImageError, RecordError};

/// The reason why an image is not in a video.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::record) enum FilmError {
    /// The images cannot be laid out.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The images cannot be encoded; the encoder cannot be used any more.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The file cannot be written.
    #[error("{reason}")]
    File {
        /// The error of the system.
        reason: String,
    },
}

impl From<io::Error> for FilmError {
    fn from(err: io::Error) -> Self {
        Self::File {
            reason: err.to_string(),
        }
    }
}

/// An encoder and, from the first image on, its file.
pub(super) struct VideoEncoder {
    planes: Planes,
    encoder: H264,
    rate: Rate,
    file: Option<Mp4>,
}

impl VideoEncoder {
    /// Creates an encoder for canvases of this even size.
    pub(super) fn new(height: usize, width: usize, rate: Rate) -> Result<Self, CodecError> {
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
    pub(super) fn push(
        &mut self,
        canvas: &[u8],
        dir: &Path,
        stem: &str,
    ) -> Result<EncodedImage, FilmError> {
        self.planes.fill(canvas);
        let sample = self.encoder.encode(&self.planes)?;
        let picture = self.picture();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(Mp4::create(dir, stem, picture, &sample)?),
        };
        file.push(&sample)?;
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
    pub(super) fn close(self) -> Result<Option<String>, RecordError> {
        let Some(file) = self.file else {
            return Ok(None);
        };
        let path = file.path().to_owned();
        match file.close(None) {
            Ok(closed) => Ok(closed.note),
            Err(err) => Err(RecordError::file(&path, err)),
        }
    }
}
