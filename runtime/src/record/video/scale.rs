//! Scales images by area: every new pixel is the exact mean of the area that it covers in the old
//! image.

use crate::env::ImageSize;

/// The old pixels and their weights for each new pixel along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AxisWeights {
    old: usize,
    taps: Vec<Taps>,
}

/// The old pixels of one new pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taps {
    /// The first old pixel.
    first: usize,
    /// Weights of the old pixels from there on, which sum to the number of old pixels.
    weights: Vec<u32>,
}

impl AxisWeights {
    /// Computes the weights in units of `1 / new` old pixels: new pixel `i` covers `[i·old,
    /// (i+1)·old)`, old pixel `j` covers `[j·new, (j+1)·new)`.
    fn of(old: usize, new: usize) -> Self {
        let taps = (0..new).map(|i| {
            let (start, end) = (i * old, (i + 1) * old);
            let first = start / new;
            let weights = (first..end.div_ceil(new))
                .map(|j| (end.min((j + 1) * new) - start.max(j * new)) as u32);
            Taps {
                first,
                weights: weights.collect(),
            }
        });
        Self {
            old,
            taps: taps.collect(),
        }
    }
}

/// A change of size, computed once for many images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resize {
    rows: AxisWeights,
    columns: AxisWeights,
}

impl Resize {
    /// Creates the scaling from one size to another; all sides must be above 0.
    pub(super) fn new(from: ImageSize, to: ImageSize) -> Self {
        Self {
            rows: AxisWeights::of(from.height as usize, to.height as usize),
            columns: AxisWeights::of(from.width as usize, to.width as usize),
        }
    }

    /// Writes the new image into `target`, whose rows are `stride` bytes apart.
    pub(super) fn apply(&self, rgb: &[u8], target: &mut [u8], stride: usize) {
        let width = self.columns.taps.len();
        let area = (self.rows.old * self.columns.old) as u64;
        let mut sums = vec![0_u64; width * 3];
        for (target_row, Taps { first, weights }) in self.rows.taps.iter().enumerate() {
            sums.fill(0);
            for (offset, weight) in weights.iter().enumerate() {
                let start = (first + offset) * self.columns.old * 3;
                self.add_row(
                    &rgb[start..start + self.columns.old * 3],
                    u64::from(*weight),
                    &mut sums,
                );
            }
            let line = &mut target[target_row * stride..][..width * 3];
            for (byte, sum) in line.iter_mut().zip(&sums) {
                *byte = ((sum + area / 2) / area) as u8;
            }
        }
    }

    fn add_row(&self, row: &[u8], weight: u64, sums: &mut [u64]) {
        for (pixel, Taps { first, weights }) in sums.chunks_exact_mut(3).zip(&self.columns.taps) {
            for (old, across) in row[first * 3..].chunks_exact(3).zip(weights) {
                let weight = weight * u64::from(*across);
                pixel[0] += weight * u64::from(old[0]);
                pixel[1] += weight * u64::from(old[1]);
                pixel[2] += weight * u64::from(old[2]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(height: u32, width: u32) -> ImageSize {
        ImageSize { height, width }
    }

    #[test]
    fn two_by_two_pixels_become_their_mean() {
        let rgb = [0, 10, 255, 4, 10, 255, 8, 20, 255, 12, 20, 255];
        let mut target = [0; 3];
        Resize::new(size(2, 2), size(1, 1)).apply(&rgb, &mut target, 3);
        assert_eq!(target, [6, 15, 255]);
    }

    #[test]
    fn doubling_repeats_each_pixel() {
        let mut target = [0; 12];
        Resize::new(size(1, 2), size(1, 4)).apply(&[1, 2, 3, 7, 8, 9], &mut target, 12);
        assert_eq!(target, [1, 2, 3, 1, 2, 3, 7, 8, 9, 7, 8, 9]);
    }

    proptest! {
        #[test]
        fn one_colour_stays_that_colour(
            from in (1..40_u32, 1..40_u32), to in (1..40_u32, 1..40_u32), colour in any::<u8>(),
        ) {
            let (from, to) = (size(from.0, from.1), size(to.0, to.1));
            let rgb = vec![colour; from.rgb_bytes()];
            let mut target = vec![0; to.rgb_bytes()];
            Resize::new(from, to).apply(&rgb, &mut target, to.width as usize * 3);
            prop_assert!(target.iter().all(|byte| *byte == colour));
        }
    }
}
