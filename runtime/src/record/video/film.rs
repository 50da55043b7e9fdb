//! Encodes canvases into a file: what environment videos, grids and LeRobot's videos share.

use std::path::{Path, PathBuf};

use crate::record::RecordError;
use crate::record::video::h264::{EncodedImage, H264, Rate};
use crate::record::video::mp4::{Mp4, Picture};
use crate::record::video::yuv::Planes;

/// Why an image is not in a video.
#[derive(Clone, Debug)]
pub(in crate::record) enum Fault {
    /// The images cannot be laid out or encoded; the encoder cannot be used any more.
    Images(String),
    /// The file cannot be written.
    File(RecordError),
}

/// Where a video is written.
#[derive(Clone, Debug)]
pub(in crate::record) enum Place {
    /// `<dir>/<stem>.mp4`, or `<stem>_part2.mp4`, … if that exists.
    New { dir: PathBuf, stem: String },
    /// This path, whatever is there.
    Path(PathBuf),
}

/// An encoder and, from the first image on, its file.
pub(in crate::record) struct Film {
    planes: Planes,
    encoder: H264,
    rate: Rate,
    place: Place,
    file: Option<Mp4>,
}

impl Place {
    /// Returns the path at which the video is, if nothing else is there.
    pub(in crate::record) fn path(&self) -> PathBuf {
        match self {
            Self::New { dir, stem } => dir.join(format!("{stem}.mp4")),
            Self::Path(path) => path.clone(),
        }
    }

    /// Creates the file.
    pub(super) fn create(&self, picture: Picture, first: &EncodedImage) -> Result<Mp4, Fault> {
        let made = match self {
            Self::New { dir, stem } => Mp4::create(dir, stem, picture, first),
            Self::Path(path) => Mp4::replace(path.clone(), picture, first),
        };
        made.map_err(|err| Fault::File(RecordError::file(&self.path(), err)))
    }
}

impl Film {
    /// Creates a video for canvases of this even size.
    pub(in crate::record) fn new(
        (height, width): (usize, usize),
        rate: Rate,
        place: Place,
    ) -> Result<Self, Fault> {
        Ok(Self {
            planes: Planes::new(height, width),
            encoder: H264::new(rate).map_err(Fault::Images)?,
            rate,
            place,
            file: None,
        })
    }

    /// Makes the next image a key frame.
    pub(super) fn want_keyframe(&mut self) {
        self.encoder.want_keyframe();
    }

    /// Encodes a canvas, `[height, width, 3]`, and adds it to the file.
    pub(in crate::record) fn push(&mut self, canvas: &[u8]) -> Result<EncodedImage, Fault> {
        self.planes.fill(canvas);
        let sample = self.encoder.encode(&self.planes).map_err(Fault::Images)?;
        let picture = self.picture();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.place.create(picture, &sample)?),
        };
        let pushed = file.push(&sample);
        pushed.map_err(|err| Fault::File(RecordError::file(file.path(), err)))?;
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

    /// Writes all images of a finished episode to the file, so that none is lost afterwards.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let flushed = file.flush();
        flushed.map_err(|err| Fault::File(RecordError::file(file.path(), err)))
    }

    /// Returns the number of images so far.
    pub(super) fn frames(&self) -> u64 {
        self.file.as_ref().map_or(0, Mp4::frames)
    }

    /// Returns the path of the file, if there is an image.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(Mp4::path)
    }

    /// Closes the file.
    pub(in crate::record) fn close(self) -> Result<(), RecordError> {
        let Some(file) = self.file else {
            return Ok(());
        };
        let path = file.path().to_owned();
        let closed = file.close(None);
        closed
            .map(drop)
            .map_err(|err| RecordError::file(&path, err))
    }
}
