//! Shrinks a picture: each result pixel is the mean of the source pixels that it covers.

use crate::image::axis::{ResizeAxis, Weighted};
use crate::image::{Image, RgbPicture};

/// Number of values that the loops process at a time. Three of them are a pixel; the fourth belongs
/// to the next pixel, which overwrites it.
const LANES: usize = 4;

/// Adding and subtracting this constant rounds a number below 2²² to the nearest integer, ties to
/// even.
const ROUNDER: f32 = 12_582_912.0;

/// Tables of a resize that shrinks both axes by fractional factors.
#[derive(Debug)]
pub(super) struct Averages {
    rows: Vec<Weighted>,
    columns: Columns,
    /// Width of the picture in pixels.
    present: usize,
}

/// The weights of all columns, each with the same number of terms, so that the inner loop is
/// uniform.
#[derive(Debug)]
struct Columns {
    /// Index of the first source value (pixel times three) of each column.
    first: Vec<usize>,
    /// `terms` weights for each column, padded with zeros.
    weights: Vec<f32>,
    terms: usize,
}

impl Averages {
    pub(super) fn new([y, x]: [ResizeAxis; 2]) -> Self {
        Self {
            rows: y.weighted(),
            columns: Columns::new(&x.weighted()),
            present: x.present,
        }
    }

    pub(super) fn apply(&self, picture: RgbPicture) -> Image {
        let width = self.columns.first.len() * 3;
        let mut rgb = vec![0; self.rows.len() * width];
        let mut wide = vec![0.0; self.present * 3 + self.columns.terms * 3 + LANES];
        // One value more than the row, because the last pixel is written with four lanes.
        let mut narrow = vec![0.0; width + 1];
        let mut narrow_is = None;
        let mut sum = vec![0.0; width];
        for (out, row) in rgb.chunks_exact_mut(width).zip(&self.rows) {
            for (index, weight) in row.weights.iter().enumerate() {
                // Two result rows share at most one source row: the last of one is the first of the
                // next.
                if narrow_is != Some(row.first + index) {
                    let bytes = picture.row(row.first + index);
                    let pairs = wide.iter_mut().zip(bytes);
                    pairs.for_each(|(wide, byte)| *wide = f32::from(*byte));
                    self.columns.apply(&wide, &mut narrow);
                    narrow_is = Some(row.first + index);
                }
                let terms = narrow.iter().map(|value| weight * value);
                let pairs = sum.iter_mut().zip(terms);
                match index {
                    0 => pairs.for_each(|(sum, term)| *sum = term),
                    _ => pairs.for_each(|(sum, term)| *sum += term),
                }
            }
            let pairs = out.iter_mut().zip(&sum);
            if !row.weights.is_empty() {
                pairs.for_each(|(out, sum)| *out = to_byte(*sum));
            }
        }
        Image {
            height: self.rows.len(),
            width: width / 3,
            rgb,
        }
    }
}

impl Columns {
    fn new(columns: &[Weighted]) -> Self {
        let lengths = columns.iter().map(|column| column.weights.len());
        let terms = lengths.max().unwrap_or_default();
        let mut weights = vec![0.0; columns.len() * terms];
        for (at, column) in columns.iter().enumerate() {
            weights[at * terms..][..column.weights.len()].copy_from_slice(&column.weights);
        }
        Self {
            first: columns.iter().map(|column| column.first * 3).collect(),
            weights,
            terms,
        }
    }

    fn apply(&self, wide: &[f32], narrow: &mut [f32]) {
        match self.terms {
            1 => self.sum(self.weights.as_chunks::<1>().0, wide, narrow),
            2 => self.sum(self.weights.as_chunks::<2>().0, wide, narrow),
            3 => self.sum(self.weights.as_chunks::<3>().0, wide, narrow),
            4 => self.sum(self.weights.as_chunks::<4>().0, wide, narrow),
            5 => self.sum(self.weights.as_chunks::<5>().0, wide, narrow),
            terms => self.sum(self.weights.chunks_exact(terms.max(1)), wide, narrow),
        }
    }

    /// Sums all columns; the loop over the weights is unrolled where their number is a constant.
    fn sum<W: AsRef<[f32]>>(
        &self,
        weights: impl IntoIterator<Item = W>,
        wide: &[f32],
        narrow: &mut [f32],
    ) {
        for (index, (first, weights)) in self.first.iter().zip(weights).enumerate() {
            let weights = weights.as_ref();
            let sources = &wide[*first..][..weights.len() * 3 + 1];
            let mut sum = [0.0; LANES];
            for (term, weight) in weights.iter().enumerate() {
                add(&mut sum, &sources[term * 3..term * 3 + LANES], *weight);
            }
            narrow[index * 3..index * 3 + LANES].copy_from_slice(&sum);
        }
    }
}

fn add(sum: &mut [f32; LANES], pixel: &[f32], weight: f32) {
    for (sum, value) in sum.iter_mut().zip(pixel) {
        *sum += value * weight;
    }
}

/// Rounds a number from 0 to slightly above 255 to the nearest byte, ties to even.
fn to_byte(value: f32) -> u8 {
    ((value + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits())).min(255) as u8
}

/// Shrinks both axes by integer factors: each result is the mean of the bytes in a block of `[rows,
/// columns]` source pixels.
///
/// The rows of a block are added first, many pixels at a time; integer sums do not depend on the
/// order.
pub(super) fn blocks(
    picture: RgbPicture,
    [y, x]: &[ResizeAxis; 2],
    [rows, columns]: [usize; 2],
) -> Image {
    let width = x.count * 3;
    let mut rgb = vec![0; y.count * width];
    let mut sums = vec![0u32; picture.width * 3];
    // OpenCV divides blocks of 2 × 2 with integers and all others with floats.
    let (is_four, part) = ((rows, columns) == (2, 2), 1.0 / (rows * columns) as f32);
    let mean = |sum: u32| match is_four {
        true => ((sum + 2) >> 2) as u8,
        false => to_byte(sum as f32 * part),
    };
    let (first, last) = (x.from * columns, (x.from + x.count) * columns);
    for (index, out) in rgb.chunks_exact_mut(width).enumerate() {
        sums.fill(0);
        let top = (y.from + index) * rows;
        for row in y.within(top..top + rows) {
            let pairs = sums.iter_mut().zip(picture.row(row));
            pairs.for_each(|(sum, byte)| *sum = sum.wrapping_add(u32::from(*byte)));
        }
        let blocks = (first..last).step_by(columns);
        for (out, left) in out.as_chunks_mut::<3>().0.iter_mut().zip(blocks) {
            let pixels = x.within(left..left + columns);
            let mut block = [0u32; 3];
            for pixel in sums[pixels.start * 3..pixels.end * 3].as_chunks::<3>().0 {
                let pairs = block.iter_mut().zip(pixel);
                pairs.for_each(|(block, sum)| *block = block.wrapping_add(*sum));
            }
            *out = block.map(mean);
        }
    }
    Image {
        height: y.count,
        width: x.count,
        rgb,
    }
}
