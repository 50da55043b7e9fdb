//! Measures the time from a camera image to patches with the released sizes, with one thread and
//! with all threads: `measure pictures vlm/preprocessor_config.json`.

use std::path::Path;

use models::gr00t::processor::{Geometry, PictureProcessor, RgbPicture};
use rayon::prelude::*;

use crate::{Outcome, now};

/// Number of rounds. The fastest one counts, because other programs slow the others down.
const ROUNDS: usize = 40;
/// Number of samples in a batch, each with two images.
const SAMPLES: usize = 8;
/// Heights and widths of the images.
const SIZES: [[usize; 2]; 6] = [
    [256, 256],
    [480, 640],
    [480, 480],
    [512, 512],
    [180, 320],
    [720, 1280],
];

pub fn main(words: &[&str]) -> Outcome<()> {
    let [path] = words else {
        return Err("expected the backbone's preprocessor_config.json".into());
    };
    let geometry = Geometry::Area {
        edge: 256,
        crop_fraction: 0.95,
    };
    let pictures = PictureProcessor::read(geometry, Path::new(path))?;
    println!(
        "height x width  geometry [ms]  with patches [ms]  {SAMPLES} samples of two, a picture [ms]"
    );
    for [height, width] in SIZES {
        let bytes: Vec<u8> = (0..(height * width * 3) as u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let picture = RgbPicture::new(height, width, &bytes)?;
        let sample = |_| pictures.prepare(&[picture; 2]);
        let transform = fastest(|| drop(pictures.transform(picture)));
        let one = fastest(|| drop(pictures.prepare(&[picture])));
        let batch = || (0..SAMPLES).into_par_iter().map(sample).collect::<Vec<_>>();
        let many = fastest(|| drop(batch())) / (2 * SAMPLES) as f64;
        println!("{height:6} x {width:<5} {transform:14.3} {one:18.3} {many:34.3}");
    }
    Ok(())
}

fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = now();
        work();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}
