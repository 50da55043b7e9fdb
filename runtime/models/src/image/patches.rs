//! The backbone's own image processor: its size rule, and patches of normalised values.
//!
//! It follows `Qwen2VLImageProcessorFast` of transformers 4.57.

use std::path::Path;

use jobs::refusal::Refusal;
use serde::Deserialize;

use crate::error::input;
use crate::image::Image;
use crate::json::Fixed::{IfGiven, Needed};
use crate::json::{Document, Fixed};

/// Maximum ratio of the longest to the shortest edge that the backbone accepts.
const MOST_ELONGATED: f64 = 200.0;
/// Maximum number of pixels that the size rule may ask for.
const MOST_PIXELS: usize = 1 << 28;
/// Edge of a patch in pixels.
const PATCH: usize = 16;
/// Number of patches along each edge of a token.
const MERGE: usize = 2;
/// Number of frames in a patch: the same picture twice.
pub(super) const FRAMES: usize = 2;
/// Number of values in a patch: channel, frame, row, column.
pub(super) const NUMBERS: usize = 3 * FRAMES * PATCH * PATCH;

/// The size rule and the normalisation.
#[derive(Debug)]
pub(super) struct Patches {
    least: usize,
    most: usize,
    /// The normalised value of each byte, for each channel.
    values: [[f32; 256]; 3],
    pub(super) scale: PixelScale,
}

/// The normalisation of bytes for each channel: (byte − mean) / deviation in `f32`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelScale {
    /// Mean of each channel, in units of a byte.
    pub mean: [f32; 3],
    /// Standard deviation of each channel, in units of a byte.
    pub deviation: [f32; 3],
}

/// Of what the network's patches are made, and the steps that are always taken.
const FIXED: [Fixed; 6] = [
    Needed("/patch_size", "16"),
    Needed("/merge_size", "2"),
    Needed("/temporal_patch_size", "2"),
    IfGiven("/do_resize", "true"),
    IfGiven("/do_rescale", "true"),
    IfGiven("/do_normalize", "true"),
];

/// The rest of `preprocessor_config.json`.
#[derive(Deserialize)]
struct Preprocessor {
    size: SizeRule,
    rescale_factor: Option<f64>,
    image_mean: [f64; 3],
    image_std: [f64; 3],
}

/// Number of pixels that a picture has at least and at most.
#[derive(Deserialize)]
struct SizeRule {
    shortest_edge: usize,
    longest_edge: usize,
}

impl Patches {
    pub(super) fn read(path: &Path) -> Result<Self, Refusal> {
        Self::from_json(&Document::read(path)?)
    }

    fn from_json(file: &Document) -> Result<Self, Refusal> {
        file.check(&FIXED)?;
        let found: Preprocessor = file.get(&[])?;
        let (least, most) = (found.size.shortest_edge, found.size.longest_edge);
        let wanted = format_args!("expected edges from 1 to {MOST_PIXELS}, in order");
        let holds = (1..=most).contains(&least) && most <= MOST_PIXELS;
        file.need(holds, &["size"], wanted)?;
        let rescale = found.rescale_factor.unwrap_or(1.0 / 255.0);
        file.need(
            rescale > 0.0,
            &["rescale_factor"],
            "expected a number above 0",
        )?;
        // (byte − mean / rescale) / (std / rescale) in `f32`, as torch does.
        let scaled = |number: f64| number as f32 * (1.0 / rescale) as f32;
        let (mean, deviation) = (found.image_mean.map(scaled), found.image_std.map(scaled));
        let holds = !deviation.contains(&0.0);
        file.need(holds, &["image_std"], "expected numbers other than 0")?;
        let value =
            |channel: usize, byte: usize| (byte as f32 - mean[channel]) / deviation[channel];
        let values = |channel| std::array::from_fn(|byte| value(channel, byte));
        Ok(Self {
            least,
            most,
            values: std::array::from_fn(values),
            scale: PixelScale { mean, deviation },
        })
    }

    /// Returns the height and width, multiples of a token's edge, to which a picture is resized.
    pub(super) fn size(&self, [height, width]: [usize; 2]) -> Result<[usize; 2], Refusal> {
        let factor = (PATCH * MERGE) as f64;
        let (h, w) = (height as f64, width as f64);
        if h.max(w) / h.min(w) > MOST_ELONGATED {
            let found = format!("{height} x {width} pixels");
            return Err(input(
                "a picture",
                found,
                "expected edges of a ratio up to 200",
            ));
        }
        let near = |edge: f64| (edge / factor).round_ties_even() * factor;
        let (pixels, rounded) = (h * w, near(h) * near(w));
        let (h, w) = if rounded > self.most as f64 {
            let beta = (pixels / self.most as f64).sqrt();
            let fit = |edge: f64| ((edge / beta / factor).floor() * factor).max(factor);
            (fit(h), fit(w))
        } else if rounded < self.least as f64 {
            let beta = (self.least as f64 / pixels).sqrt();
            let fit = |edge: f64| (edge * beta / factor).ceil() * factor;
            (fit(h), fit(w))
        } else {
            (near(h), near(w))
        };
        Ok([h as usize, w as usize])
    }

    /// Writes the patches of a picture, whose edges are multiples of a token's, into [`numbers`]
    /// values.
    ///
    /// The order is: tokens row by row, the 2 × 2 patches of a token row by row, and in a patch
    /// channel, frame, row, column.
    pub(super) fn cut(&self, image: &Image, out: &mut [f32]) {
        cut::<f32, FRAMES>(image, out, |channel, byte| {
            self.values[channel][usize::from(byte)]
        });
    }

    /// Writes the same patches as [`bytes`] bytes, with each frame once, for normalisation on the
    /// device.
    pub(super) fn cut_bytes(image: &Image, out: &mut [u8]) {
        cut::<u8, 1>(image, out, |_, byte| byte);
    }
}

/// Writes the patches with `N` equal frames each.
fn cut<T: Copy + Default, const N: usize>(
    image: &Image,
    out: &mut [T],
    value: impl Fn(usize, u8) -> T,
) {
    let columns = image.width / (PATCH * MERGE);
    let (planes, _) = out.as_chunks_mut::<{ PATCH * PATCH }>();
    for (token, patches) in planes.chunks_exact_mut(3 * N * MERGE * MERGE).enumerate() {
        let (top, left) = (token / columns * MERGE, token % columns * MERGE);
        for (index, patch) in patches.chunks_exact_mut(3 * N).enumerate() {
            let at = [
                (top + index / MERGE) * PATCH,
                (left + index % MERGE) * PATCH,
            ];
            fill::<T, N>(image, at, patch, &value);
        }
    }
}

/// Writes one patch in the layout `[channel * N + frame][row * 16 + column]`.
fn fill<T: Copy + Default, const N: usize>(
    image: &Image,
    [top, left]: [usize; 2],
    planes: &mut [[T; PATCH * PATCH]],
    value: &impl Fn(usize, u8) -> T,
) {
    for y in 0..PATCH {
        let row = &image.rgb[((top + y) * image.width + left) * 3..][..PATCH * 3];
        for channel in 0..3 {
            let mut line = [T::default(); PATCH];
            for (out, pixel) in line.iter_mut().zip(row.as_chunks::<3>().0) {
                *out = value(channel, pixel[channel]);
            }
            for frame in 0..N {
                planes[channel * N + frame][y * PATCH..][..PATCH].copy_from_slice(&line);
            }
        }
    }
}

/// Returns the number of values in the patches of a picture.
pub(super) fn numbers(image: &Image) -> usize {
    tokens(image) * MERGE * MERGE * NUMBERS
}

/// Returns the number of bytes of a picture.
pub(super) fn bytes(image: &Image) -> usize {
    numbers(image) / FRAMES
}

/// Returns the number of tokens of a picture in the prompt.
pub(super) fn tokens(image: &Image) -> usize {
    (image.height / (PATCH * MERGE)) * (image.width / (PATCH * MERGE))
}

/// Returns the number of patches of a picture along time, height and width.
pub(super) fn grid(image: &Image) -> [i64; 3] {
    [1, image.height / PATCH, image.width / PATCH]
        .map(|count| i64::try_from(count).expect("patches fit memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released() -> Patches {
        let text = br#"{"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5], "size": {"shortest_edge": 65536, "longest_edge": 16777216}}"#;
        Patches::from_json(&Document::parse(Path::new("preprocessor_config.json"), text).unwrap())
            .unwrap()
    }

    #[test]
    fn a_small_picture_grows_and_a_huge_one_shrinks() {
        let patches = released();
        assert_eq!(patches.size([256, 256]).unwrap(), [256, 256]);
        assert_eq!(patches.size([224, 224]).unwrap(), [256, 256]);
        assert_eq!(patches.size([64, 128]).unwrap(), [192, 384]);
        assert_eq!(patches.size([8000, 8000]).unwrap(), [4096, 4096]);
        let refusal = patches.size([1, 201]).unwrap_err().to_string();
        assert!(refusal.contains("1 x 201"), "{refusal}");
    }

    #[test]
    fn bytes_become_minus_one_to_one() {
        let values = released().values[0];
        assert_eq!(
            (values[0], values[255], values[128]),
            (-1.0, 1.0, (128.0 - 127.5) / 127.5)
        );
    }

    #[test]
    fn bytes_are_the_patches_before_they_are_normalised() {
        let patches = released();
        let image = Image {
            height: 32,
            width: 64,
            rgb: (0..32 * 64 * 3).map(|i| (i * 7 % 251) as u8).collect(),
        };
        let (mut found, mut wanted) = (vec![0; bytes(&image)], vec![0.0; numbers(&image)]);
        Patches::cut_bytes(&image, &mut found);
        patches.cut(&image, &mut wanted);
        // Each plane of a colour stands there once, not for both frames.
        let both = |(at, plane): (usize, &[u8])| {
            let value = |&byte: &u8| patches.values[at % 3][usize::from(byte)];
            plane.repeat(2).iter().map(value).collect::<Vec<_>>()
        };
        let found: Vec<f32> = found.chunks(256).enumerate().flat_map(both).collect();
        assert_eq!(found, wanted);
    }
}
