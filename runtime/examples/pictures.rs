//! Measures the time from a camera image to patches with the released sizes, with one thread and
//! with all threads.
//!
//! `cargo run --release -p runtime --example pictures -- <vlm/preprocessor_config.json>`

use std::path::PathBuf;
use std::time::Instant;

use gr00t::processor::{Geometry, PictureProcessor, RgbPicture};
use rayon::prelude::*;

/// Number of rounds. The fastest one counts, because other programs slow the others down.
const ROUNDS: usize = 40;
/// Number of samples in a batch, each with two images.
const SAMPLES: usize = 8;

fn main() {
    let path = std::env::args()
        .nth(1)
        .map(PathBuf::from)
        .expect("expected the backbone's preprocessor_config.json");
    let geometry = Geometry::Area {
        edge: 256,
        crop_fraction: 0.95,
    };
    let pictures = PictureProcessor::read(geometry, &path).expect("the file must be readable");
    println!(
        "height x width  geometry [ms]  with patches [ms]  {SAMPLES} samples of two, a picture [ms]"
    );
    for (height, width) in [
        (256, 256),
        (480, 640),
        (480, 480),
        (512, 512),
        (180, 320),
        (720, 1280),
    ] {
        let bytes: Vec<u8> = (0u32..height * width * 3)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let (height, width) = (height as usize, width as usize);
        let picture =
            RgbPicture::new(height, width, &bytes).expect("the picture has all its bytes");
        let transform = fastest(|| drop(pictures.transform(picture)));
        let one = fastest(|| drop(pictures.prepare(&[picture])));
        let many = fastest(|| {
            drop(
                (0..SAMPLES)
                    .into_par_iter()
                    .map(|_| pictures.prepare(&[picture; 2]))
                    .collect::<Vec<_>>(),
            )
        }) / (2 * SAMPLES) as f64;
        println!("{height:6} x {width:<5} {transform:14.3} {one:18.3} {many:34.3}");
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}
