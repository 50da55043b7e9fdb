//! Encodes the images of one camera in one episode as a video, and computes their statistics.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::env::{CameraSpec, Frame};
use crate::record::RecordError;
use crate::record::episode::CameraImages;
use crate::record::lerobot::moments::Moments;
use crate::record::video::film::{Fault, Film, Place};
use crate::record::video::h264::{LEAST_BITRATE, Rate};
use crate::record::video::tile::Tiling;

/// Maximum bits per pixel. Training reads the images, so they may take more space than videos for
/// people.
const BITS_PER_PIXEL: u64 = 1;
/// Distance of key frames, because training accesses frames at random (lerobot's own default,
/// `g=2`).
const KEYFRAME_EVERY: u32 = 2;
/// Minimum and maximum number of images of an episode that enter the statistics, if it has them
/// (lerobot: `estimate_num_samples`).
const COUNTED: RangeInclusive<usize> = 100..=10_000;
/// Larger images are subsampled to about this many rows and columns for the statistics.
const COUNTED_SIDE: usize = 150;
/// Minimum height and width of an image; OpenH264 encodes no smaller one.
const SMALLEST: u32 = 16;

/// Returns height and width of a camera's video, which are even, see [`refuse_odd`].
pub(super) fn size(pictures: &CameraImages) -> Option<(usize, usize)> {
    let first = pictures.frames.first()?;
    Some((first.height as usize, first.width as usize))
}

/// Refuses cameras with an odd or too small size. H.264 stores one colour value for two rows and
/// two columns, and an image of another size would not be the camera's.
pub(super) fn refuse_odd(cameras: &[CameraSpec]) -> Result<(), RecordError> {
    let is_odd =
        |camera: &&CameraSpec| !camera.height.is_multiple_of(2) || !camera.width.is_multiple_of(2);
    let is_small = |camera: &&CameraSpec| camera.height < SMALLEST || camera.width < SMALLEST;
    match cameras
        .iter()
        .find(|camera| is_odd(camera) || is_small(camera))
    {
        Some(CameraSpec {
            name,
            height,
            width,
        }) => Err(RecordError(format!(
            "camera `{name}` has {height} rows and {width} columns: the videos of a LeRobot dataset (H.264) need even numbers \
             from {SMALLEST} on; \
             --record-format hdf5 keeps the pictures as they are"
        ))),
        None => Ok(()),
    }
}

/// Writes the video; afterwards every player can read it.
pub(super) fn write(
    path: &Path,
    camera: &str,
    pictures: &CameraImages,
    fps: u32,
) -> Result<(), String> {
    let Some((height, width)) = size(pictures) else {
        return Ok(());
    };
    let bits = (height * width) as u64 * u64::from(fps) * BITS_PER_PIXEL;
    let bitrate = bits.clamp(100_000, 200_000_000) as u32;
    let rate = |bitrate| Rate {
        fps,
        bitrate,
        keyframe_every: KEYFRAME_EVERY,
    };
    // At high bit rates OpenH264 fails on noise, and a dataset must not lack a video because of
    // that.
    code(path, camera, pictures, rate(bitrate))
        .or_else(|_| code(path, camera, pictures, rate(LEAST_BITRATE)))
}

fn code(path: &Path, camera: &str, pictures: &CameraImages, rate: Rate) -> Result<(), String> {
    let Some(size) = size(pictures) else {
        return Ok(());
    };
    let said = |fault| match fault {
        Fault::Images(reason) => reason,
        Fault::File(err) => err.to_string(),
    };
    let mut film = Film::new(size, rate, Place::Path(path.to_owned())).map_err(said)?;
    let mut canvas = Vec::new();
    let names = [camera.to_owned()];
    for frame in &pictures.frames {
        let shown = BTreeMap::from([(camera.to_owned(), frame.clone())]);
        Tiling::of(&names, &shown, |size| size)?.draw(&shown, &mut canvas)?;
        film.push(&canvas).map_err(said)?;
    }
    film.close().map_err(|err| err.to_string())
}

/// Returns the statistics of some of the images, spread over the episode.
pub(super) fn moments(pictures: &CameraImages) -> Moments {
    let frames = pictures.frames.len();
    let wanted = (frames as f64).powf(0.75) as usize;
    let count = wanted.clamp(*COUNTED.start(), *COUNTED.end()).min(frames);
    let mut counts = [[0; 256]; 3];
    for at in 0..count {
        let frame = &pictures.frames[at * (frames - 1) / (count - 1).max(1)];
        tally(frame, &mut counts);
    }
    Moments::of_pictures(&counts, count as u64)
}

fn tally(frame: &Frame, counts: &mut [[u64; 256]; 3]) {
    let (height, width) = (frame.height as usize, frame.width as usize);
    let step = (height.max(width) / COUNTED_SIDE).max(1);
    for row in frame.rgb.chunks_exact(width * 3).step_by(step) {
        for pixel in row.as_chunks::<3>().0.iter().step_by(step) {
            (0..3).for_each(|colour| counts[colour][pixel[colour] as usize] += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_gets_a_video() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = 1u32;
        let mut noise = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 7) as u8
        };
        let mut frame = || Frame {
            height: 64,
            width: 96,
            rgb: (0..64 * 96 * 3).map(|_| noise()).collect::<Vec<_>>().into(),
        };
        let pictures = CameraImages {
            frames: (0..6).map(|_| frame()).collect(),
        };
        let path = dir.path().join("noise.mp4");
        write(&path, "front", &pictures, 10).unwrap();
        assert!(path.metadata().unwrap().len() > 10_000);
    }
}
