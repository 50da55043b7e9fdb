//! The backbone's own image processor: its size rule, patches, and how they are normalised.
//!
//! It follows `Qwen2VLImageProcessorFast` of transformers 4.57.

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
/// Number of bytes in a patch: channel, row, column.
pub(super) const BYTES: usize = 3 * PATCH * PATCH;

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
#[derive(Debug, Deserialize)]
pub(super) struct SizeRule {
    shortest_edge: usize,
    longest_edge: usize,
}

/// Reads a `preprocessor_config.json`.
pub(super) fn read(file: &Document) -> Result<(SizeRule, PixelScale), Refusal> {
    file.check(&FIXED)?;
    let found: Preprocessor = file.get(&[])?;
    let (least, most) = (found.size.shortest_edge, found.size.longest_edge);
    let wanted = format_args!("expected edges from 1 to {MOST_PIXELS}, in order");
    let holds = (1..=most).contains(&least) && most <= MOST_PIXELS;
    file.need(holds, &["size"], wanted)?;
    let rescale = found.rescale_factor.unwrap_or(1.0 / 255.0);
    let wanted = "expected a number above 0";
    file.need(rescale > 0.0, &["rescale_factor"], wanted)?;
    // (byte − mean / rescale) / (std / rescale) in `f32`, as torch does.
    let scaled = |number: f64| number as f32 * (1.0 / rescale) as f32;
    let (mean, deviation) = (found.image_mean.map(scaled), found.image_std.map(scaled));
    let holds = !deviation.contains(&0.0);
    file.need(holds, &["image_std"], "expected numbers other than 0")?;
    Ok((found.size, PixelScale { mean, deviation }))
}

impl SizeRule {
    /// Returns the height and width, multiples of a token's edge, to which a picture is resized.
    pub(super) fn of(&self, [height, width]: [usize; 2]) -> Result<[usize; 2], Refusal> {
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
        let (least, most) = (self.shortest_edge as f64, self.longest_edge as f64);
        let (h, w) = if rounded > most {
            let beta = (pixels / most).sqrt();
            let fit = |edge: f64| ((edge / beta / factor).floor() * factor).max(factor);
            (fit(h), fit(w))
        } else if rounded < least {
            let beta = (least / pixels).sqrt();
            let fit = |edge: f64| (edge * beta / factor).ceil() * factor;
            (fit(h), fit(w))
        } else {
            (near(h), near(w))
        };
        Ok([h as usize, w as usize])
    }
}

/// Writes the patches of a picture, whose edges are multiples of a token's.
///
/// The order is: tokens row by row, the 2 × 2 patches of a token row by row, and in a patch
/// channel, row, column.
pub(super) fn cut(image: &Image, out: &mut [u8]) {
    let columns = image.width / (PATCH * MERGE);
    for (index, patch) in out.chunks_exact_mut(BYTES).enumerate() {
        let (token, part) = (index / (MERGE * MERGE), index % (MERGE * MERGE));
        let top = (token / columns * MERGE + part / MERGE) * PATCH;
        let left = (token % columns * MERGE + part % MERGE) * PATCH;
        let (planes, _) = patch.as_chunks_mut::<{ PATCH * PATCH }>();
        for y in 0..PATCH {
            let row = &image.rgb[((top + y) * image.width + left) * 3..][..PATCH * 3];
            for (channel, plane) in planes.iter_mut().enumerate() {
                let pixels = row.as_chunks::<3>().0.iter();
                let line = plane[y * PATCH..][..PATCH].iter_mut();
                line.zip(pixels)
                    .for_each(|(out, pixel)| *out = pixel[channel]);
            }
        }
    }
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

    #[test]
    fn a_small_picture_grows_and_a_huge_one_shrinks() {
        // Those of the released checkpoint.
        let rule = SizeRule {
            shortest_edge: 65_536,
            longest_edge: 16_777_216,
        };
        assert_eq!(rule.of([256, 256]).unwrap(), [256, 256]);
        assert_eq!(rule.of([224, 224]).unwrap(), [256, 256]);
        assert_eq!(rule.of([64, 128]).unwrap(), [192, 384]);
        assert_eq!(rule.of([8000, 8000]).unwrap(), [4096, 4096]);
        let refusal = rule.of([1, 201]).unwrap_err().to_string();
        assert!(refusal.contains("1 x 201"), "{refusal}");
    }
}
