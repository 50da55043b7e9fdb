//! An mp4 file that is playable after any interruption: a header, then fragments that are complete
//! by themselves.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use muxide::fragmented::{FragmentConfig, FragmentedMuxer};

use crate::record::video::boxes::TICKS;
use crate::record::video::h264::EncodedImage;
use crate::record::video::progressive;

/// Minimum number of images in a fragment within an episode, because muxide guesses the duration of
/// a single sample as 1/30 s.
const LEAST: u64 = 2;

/// A file that is being written.
pub(in crate::record) struct Mp4 {
    file: File,
    path: PathBuf,
    muxer: FragmentedMuxer,
    fps: u32,
    written: u64,
    pending: u64,
}

/// A file that is closed.
#[derive(Debug)]
pub(in crate::record) struct ClosedMp4 {
    /// Path of the file.
    pub(in crate::record) path: PathBuf,
    /// Message for the user if the file could not be rewritten; it is playable nevertheless.
    pub(in crate::record) note: Option<String>,
}

impl Mp4 {
    /// Creates `<dir>/<stem>.mp4`, or `<stem>_part2.mp4`, … if that exists, and writes the header,
    /// which depends on the first sample.
    pub(in crate::record) fn create(
        dir: &Path,
        stem: &str,
        picture: Picture,
        first: &EncodedImage,
    ) -> io::Result<Self> {
        let (file, path) = create_new(dir, stem)?;
        Self::begin(file, path, picture, first)
    }

    /// Creates `path`, and overwrites an existing file.
    pub(in crate::record) fn replace(
        path: PathBuf,
        picture: Picture,
        first: &EncodedImage,
    ) -> io::Result<Self> {
        Self::begin(File::create(&path)?, path, picture, first)
    }

    fn begin(
        file: File,
        path: PathBuf,
        picture: Picture,
        first: &EncodedImage,
    ) -> io::Result<Self> {
        let mut config =
            FragmentConfig::new(picture.width, picture.height, picture.fps * TICKS as u32);
        config.sps.clone_from(&first.sps);
        config.pps.clone_from(&first.pps);
        let mut muxer = FragmentedMuxer::new(config).map_err(io::Error::other)?;
        let header = muxer.init_segment();
        let mut mp4 = Self {
            file,
            path,
            muxer,
            fps: picture.fps,
            written: 0,
            pending: 0,
        };
        let sets = first.sps.len() >= 4 && !first.pps.is_empty();
        let missing = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the first picture came without parameter sets",
            )
        };
        match sets
            .then_some(())
            .ok_or_else(missing)
            .and_then(|()| mp4.write(&header))
        {
            Ok(()) => Ok(mp4),
            Err(err) => {
                // There is nothing to play yet.
                fs::remove_file(&mp4.path)?;
                Err(err)
            }
        }
    }

    /// Returns the path of the file.
    pub(in crate::record) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of images so far.
    pub(in crate::record) fn frames(&self) -> u64 {
        self.written + self.pending
    }

    /// Adds an image; a fragment is written to the file once a second.
    pub(in crate::record) fn push(&mut self, sample: &EncodedImage) -> io::Result<()> {
        let time = self.frames() * TICKS;
        self.muxer
            .write_video(time, time, &sample.bytes, sample.keyframe)
            .map_err(io::Error::other)?;
        self.pending += 1;
        if self.pending >= u64::from(self.fps).max(LEAST) {
            self.flush(LEAST)
        } else {
            Ok(())
        }
    }

    /// Writes all images of a finished episode to the file, so that none is lost afterwards. If the
    /// last fragment has a single image, it lasts 1/30 s until the file is [`Mp4::close`]d or
    /// mended.
    pub(in crate::record) fn end_of_episode(&mut self) -> io::Result<()> {
        self.flush(1)
    }

    /// Writes the rest and rewrites the file for browsers, as `name` in its folder if a name is
    /// given.
    pub(in crate::record) fn close(mut self, name: Option<&str>) -> io::Result<ClosedMp4> {
        self.flush(1)?;
        let to = name.map_or_else(|| self.path.clone(), |name| self.path.with_file_name(name));
        let Err(reason) = progressive::rewrite(&self.path, &to) else {
            return Ok(ClosedMp4 {
                path: to,
                note: None,
            });
        };
        self.file.sync_data()?;
        fs::rename(&self.path, &to)?;
        let line = format!(
            "`{}` stays in fragments, which some browsers play without its duration: {reason}",
            to.display()
        );
        Ok(ClosedMp4 {
            path: to,
            note: Some(line),
        })
    }

    /// Deletes the file.
    pub(in crate::record) fn discard(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    fn flush(&mut self, least: u64) -> io::Result<()> {
        if self.pending < least {
            return Ok(());
        }
        let Some(fragment) = self.muxer.flush_segment() else {
            return Ok(());
        };
        self.write(&fragment)?;
        self.written += self.pending;
        self.pending = 0;
        Ok(())
    }

    /// Writes all bytes or, as far as the system allows, none.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let start = self.file.seek(SeekFrom::End(0))?;
        let written = self.file.write_all(bytes);
        if written.is_err() {
            self.file.set_len(start)?;
        }
        written
    }
}

/// Size and frame rate of the images.
#[derive(Clone, Copy, Debug)]
pub(in crate::record) struct Picture {
    /// Width in pixels.
    pub(in crate::record) width: u32,
    /// Height in pixels.
    pub(in crate::record) height: u32,
    /// Images per second, at least 1.
    pub(in crate::record) fps: u32,
}

fn create_new(dir: &Path, stem: &str) -> io::Result<(File, PathBuf)> {
    let mut part = 1;
    loop {
        let name = if part == 1 {
            format!("{stem}.mp4")
        } else {
            format!("{stem}_part{part}.mp4")
        };
        let path = dir.join(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                progressive::mend(&path);
                part += 1;
            }
            Err(err) => return Err(err),
        }
    }
}
