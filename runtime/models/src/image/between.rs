//! Enlarges a picture: each result pixel lies between two source pixels on either axis. All
//! arithmetic is on integers.

use crate::image::axis::{Between, ResizeAxis};
use crate::image::{Image, RgbPicture};

/// Tables of an enlarging resize.
#[derive(Debug)]
pub(super) struct PairTables {
    rows: Vec<Between>,
    columns: Vec<Between>,
}

/// A source row interpolated between its columns: 16 times the scale of bytes times 2048,
/// truncated, as OpenCV stores it.
struct InterpolatedRow {
    source: Option<usize>,
    values: Vec<i16>,
}

impl PairTables {
    pub(super) fn new([y, x]: [ResizeAxis; 2]) -> Self {
        Self {
            rows: y.between(),
            columns: x.between(),
        }
    }

    pub(super) fn apply(&self, picture: RgbPicture) -> Image {
        let width = self.columns.len() * 3;
        let mut rgb = vec![0; self.rows.len() * width];
        let mut rows = [(); 2].map(|()| InterpolatedRow {
            source: None,
            values: vec![0; width],
        });
        for (out, pair) in rgb.chunks_exact_mut(width).zip(&self.rows) {
            // From one result row to the next, the lower source row of a pair becomes the upper
            // one.
            if rows[0].source != Some(pair.pixels[0]) && rows[1].source == Some(pair.pixels[0]) {
                rows.swap(0, 1);
            }
            for (row, source) in rows.iter_mut().zip(pair.pixels) {
                if row.source != Some(source) {
                    self.fill(picture.row(source), &mut row.values);
                    row.source = Some(source);
                }
            }
            let [upper, lower] = &rows;
            for ((out, upper), lower) in out.iter_mut().zip(&upper.values).zip(&lower.values) {
                *out = mix(*upper, *lower, pair.weights);
            }
        }
        Image {
            height: self.rows.len(),
            width: width / 3,
            rgb,
        }
    }

    fn fill(&self, row: &[u8], values: &mut [i16]) {
        let (pixels, _) = row.as_chunks::<3>();
        let (values, _) = values.as_chunks_mut::<3>();
        for (out, pair) in values.iter_mut().zip(&self.columns) {
            let (left, right) = (&pixels[pair.pixels[0]], &pixels[pair.pixels[1]]);
            for channel in 0..3 {
                // At most 255 · 2048, so it does not overflow 32 bits, and 15 bits are left after
                // the shift.
                let sum = product(left[channel], pair.weights[0])
                    .wrapping_add(product(right[channel], pair.weights[1]));
                out[channel] = (sum >> 4) as i16;
            }
        }
    }
}

fn product(byte: u8, weight: i16) -> i32 {
    i32::from(byte).wrapping_mul(i32::from(weight))
}

/// Computes (w₀·t₀ ≫ 16) + (w₁·t₁ ≫ 16) and rounds from quarters; both terms are below 1024, so 16
/// bits hold the sum.
fn mix(upper: i16, lower: i16, [w0, w1]: [i16; 2]) -> u8 {
    let high =
        |value: i16, weight: i16| (i32::from(value).wrapping_mul(i32::from(weight)) >> 16) as i16;
    let quarters = high(upper, w0)
        .wrapping_add(high(lower, w1))
        .wrapping_add(2);
    (quarters >> 2).clamp(0, 255) as u8
}
