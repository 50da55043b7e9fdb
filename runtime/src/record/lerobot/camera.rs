//! Encodes the images of one camera in one episode as a video, and computes their statistics.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::env::{CameraSpec, Frame};
use crate::record::RecordError;
use crate::record::lerobot::stats::Moments;
use crate::record::video::h264::{LEAST_BITRATE, Rate};
use crate::record::video::{Fault, Film};

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

/// Refuses cameras with an odd or too small size. H.264 stores one colour value for two rows and
/// two columns, and an image of another size would not be the camera's.
pub(super) fn refuse_odd(cameras: &[CameraSpec]) -> Result<(), RecordError> {
    let fits = |side: u32| side.is_multiple_of(2) && side >= SMALLEST;
    let mut cameras = cameras.iter();
    match cameras.find(|camera| !fits(camera.height) || !fits(camera.width)) {
        Some(CameraSpec {
            name,
            height,
            width,
        }) => Err(RecordError(format!(
            "camera `{name}` has {height} rows and {width} columns: the videos of a LeRobot \
             dataset (H.264) need even numbers from {SMALLEST} on; \
             --record-format hdf5 keeps the pictures as they are"
        ))),
        None => Ok(()),
    }
}

/// Writes the video; afterwards every player can read it.
pub(super) fn write(
    path: &Path,
    camera: &str,
    pictures: &[Frame],
    fps: u32,
) -> Result<(), RecordError> {
    let pixels = pictures
        .first()
        .map_or(0, |first| first.size().rgb_bytes() / 3);
    let bits = pixels as u64 * u64::from(fps) * BITS_PER_PIXEL;
    let bitrate = bits.clamp(100_000, 200_000_000) as u32;
    // At high bit rates OpenH264 fails on noise, and a dataset must not lack a video because of
    // that.
    let coded = code(path, camera, pictures, fps, bitrate);
    let coded = coded.or_else(|_| code(path, camera, pictures, fps, LEAST_BITRATE));
    coded.map_err(|fault| match fault {
        Fault::Images(reason) => RecordError::file(path, reason),
        Fault::File(err) => err,
    })
}

fn code(
    path: &Path,
    camera: &str,
    pictures: &[Frame],
    fps: u32,
    bitrate: u32,
) -> Result<(), Fault> {
    let rate = Rate {
        fps,
        bitrate,
        keyframe_every: KEYFRAME_EVERY,
    };
    let mut film = Film::new(path.to_owned(), rate, &[camera.to_owned()]);
    film.replaces = true;
    for frame in pictures {
        film.draw(0, &BTreeMap::from([(camera.to_owned(), frame.clone())]))?;
        film.show()?;
    }
    Ok(film.close()?)
}

/// Returns the statistics of some of the images, spread over the episode.
pub(super) fn moments(pictures: &[Frame]) -> Moments {
    let frames = pictures.len();
    let wanted = (frames as f64).powf(0.75) as usize;
    let count = wanted.clamp(*COUNTED.start(), *COUNTED.end()).min(frames);
    let mut counts = [[0; 256]; 3];
    for at in 0..count {
        let frame = &pictures[at * (frames - 1) / (count - 1).max(1)];
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
        let mut noise = crate::record::tests::noise(1);
        let mut frame = || Frame {
            height: 64,
            width: 96,
            rgb: (0..64 * 96 * 3).map(|_| noise()).collect::<Vec<_>>().into(),
        };
        let pictures: Vec<_> = (0..6).map(|_| frame()).collect();
        let path = dir.path().join("noise.mp4");
        write(&path, "front", &pictures, 10).unwrap();
        assert!(path.metadata().unwrap().len() > 10_000);
    }
}
