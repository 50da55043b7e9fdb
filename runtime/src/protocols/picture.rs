//! Pictures as openpi's client sends them: resized without distortion and padded with black.
//!
//! The filter reproduces Pillow's `BILINEAR` (Resample.c, Pillow 13) byte for byte: a triangle as
//! wide as the reduction, in integers with 22 fractional bits, first along rows, then along
//! columns, with bytes in between. ATen's filter of the same name rounds differently.

use wire::Array;

use crate::env::Frame;

/// Fractional bits of a weight.
const PRECISION: u32 = 22;

/// Fits the picture into `height` × `width` pixels and centres it on black: `[height, width, 3]`.
pub(super) fn padded(frame: &Frame, [height, width]: [usize; 2]) -> Array {
    let bytes = resize_with_pad(frame, [height, width]);
    Array::of_u8(&[height, width, 3], bytes.into())
}

/// Returns the picture as it is.
pub(super) fn whole(frame: &Frame) -> Array {
    let shape = [frame.height as usize, frame.width as usize, 3];
    Array::of_u8(&shape, frame.rgb.bytes().clone())
}

fn resize_with_pad(frame: &Frame, [height, width]: [usize; 2]) -> Vec<u8> {
    let (rows, columns) = (frame.height as usize, frame.width as usize);
    if [rows, columns] == [height, width] {
        return frame.rgb.to_vec();
    }
    let ratio = (columns as f64 / width as f64).max(rows as f64 / height as f64);
    let inner = [rows, columns].map(|edge| ((edge as f64 / ratio) as usize).max(1));
    let small = resize(&frame.rgb, [rows, columns], inner);
    let (top, left) = (
        height.saturating_sub(inner[0]) / 2,
        width.saturating_sub(inner[1]) / 2,
    );
    let mut padded = vec![0; height * width * 3];
    for (row, pixels) in small.chunks_exact(inner[1] * 3).enumerate() {
        padded[((top + row) * width + left) * 3..][..pixels.len()].copy_from_slice(pixels);
    }
    padded
}

fn resize(rgb: &[u8], [rows, columns]: [usize; 2], [height, width]: [usize; 2]) -> Vec<u8> {
    let narrow = if columns == width {
        rgb.to_vec()
    } else {
        along_rows(rgb, columns, &weights(columns, width))
    };
    if rows == height {
        narrow
    } else {
        along_columns(&narrow, width, &weights(rows, height))
    }
}

/// The weights of one result pixel: the index of the first source pixel, and the weights from there
/// on.
struct ResizeWeights {
    first: usize,
    weights: Vec<i64>,
}

fn weights(from: usize, to: usize) -> Vec<ResizeWeights> {
    let scale = from as f64 / to as f64;
    let reduction = scale.max(1.0);
    let at = |index: usize| {
        let center = (index as f64 + 0.5) * scale;
        let first = (center - reduction + 0.5).max(0.0) as usize;
        let end = ((center + reduction + 0.5) as usize).min(from);
        let triangle =
            |source: usize| (1.0 - ((source as f64 - center + 0.5) / reduction).abs()).max(0.0);
        let raw: Vec<f64> = (first..end).map(triangle).collect();
        let sum: f64 = raw.iter().sum();
        let fixed = |weight: &f64| (0.5 + weight / sum * f64::from(1u32 << PRECISION)) as i64;
        ResizeWeights {
            first,
            weights: raw.iter().map(fixed).collect(),
        }
    };
    (0..to).map(at).collect()
}

fn along_rows(rgb: &[u8], columns: usize, all: &[ResizeWeights]) -> Vec<u8> {
    let mut narrow = Vec::with_capacity(rgb.len() / columns * all.len());
    for row in rgb.chunks_exact(columns * 3) {
        for ResizeWeights { first, weights } in all {
            narrow.extend(
                (0..3).map(|colour| blend(weights, |index| row[(first + index) * 3 + colour])),
            );
        }
    }
    narrow
}

fn along_columns(rgb: &[u8], width: usize, all: &[ResizeWeights]) -> Vec<u8> {
    let stride = width * 3;
    let mut low = Vec::with_capacity(stride * all.len());
    for ResizeWeights { first, weights } in all {
        low.extend(
            (0..stride).map(|at| blend(weights, |index| rgb[(first + index) * stride + at])),
        );
    }
    low
}

fn blend(weights: &[i64], source: impl Fn(usize) -> u8) -> u8 {
    let half = 1i64 << (PRECISION - 1);
    let sum = weights
        .iter()
        .enumerate()
        .map(|(index, weight)| weight * i64::from(source(index)))
        .sum::<i64>();
    ((half + sum) >> PRECISION).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a picture of noise and edges that the Python script can generate as well.
    fn frame(height: u32, width: u32) -> Frame {
        let mut state = 1u32;
        let rgb: Vec<u8> = (0..height * width * 3)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        Frame {
            height,
            width,
            rgb: rgb.into(),
        }
    }

    /// Returns the 64-bit FNV-1a hash.
    fn sum(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    #[test]
    fn pictures_are_byte_for_byte_those_of_openpis_client() {
        // Expected results: openpi_client.image_tools.resize_with_pad on Pillow 13.0.0, by
        // tests/fixtures/remote/pictures.py.
        let sums = [
            ([48, 64], [24, 24], 0x7ae2_73e4_0638_562f),
            ([64, 48], [24, 24], 0x9083_0f22_614c_9630),
            ([90, 160], [56, 56], 0x0475_6a21_4a71_26fb),
            ([24, 24], [56, 40], 0x4fb0_2dae_dc67_3dca),
            ([30, 37], [32, 32], 0xcb25_057b_b5ac_9a7c),
            ([13, 200], [32, 32], 0x9817_bca1_45ad_196b),
            ([64, 64], [24, 24], 0xc84a_f45b_4559_ffa0),
        ];
        for ([height, width], to, wanted) in sums {
            let picture = resize_with_pad(&frame(height, width), to);
            assert_eq!(sum(&picture), wanted, "{height} x {width} to {to:?}");
        }
    }

    #[test]
    fn a_picture_of_the_right_size_stays_and_another_is_in_the_middle_of_black() {
        let right = frame(24, 24);
        assert_eq!(resize_with_pad(&right, [24, 24]), *right.rgb);
        let white = Frame {
            height: 2,
            width: 4,
            rgb: vec![255; 24].into(),
        };
        let padded = resize_with_pad(&white, [8, 8]);
        let rows: Vec<bool> = padded
            .chunks_exact(24)
            .map(|row| row.iter().all(|byte| *byte == 255))
            .collect();
        assert_eq!(rows, [false, false, true, true, true, true, false, false]);
    }
}
