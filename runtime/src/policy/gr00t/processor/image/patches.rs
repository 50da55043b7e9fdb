//! The backbone's own image processor: its size rule, and patches of normalised numbers.
//!
//! transformers 4.57, `Qwen2VLImageProcessorFast`.

use std::path::Path;

use tch::Tensor;

use super::super::ProcessorError;
use super::super::field::{Field, Json};
use super::Image;

/// Longest over shortest edge that the backbone accepts.
const MOST_ELONGATED: f64 = 200.0;
/// Most pixels that the size rule may ask for.
const MOST_PIXELS: usize = 1 << 28;
/// Edge of a patch, pixels.
const PATCH: usize = 16;
/// Patches on an edge of a token.
const MERGE: usize = 2;
/// Frames in a patch: the same picture twice.
const FRAMES: usize = 2;
/// Numbers in a patch: channel, frame, row, column.
const NUMBERS: usize = 3 * FRAMES * PATCH * PATCH;

/// Size rule and normalisation.
#[derive(Debug)]
pub(super) struct Patches {
    least: usize,
    most: usize,
    /// What a byte becomes, for each channel.
    values: [[f32; 256]; 3],
}

impl Patches {
    pub(super) fn read(path: &Path) -> Result<Self, ProcessorError> {
        Self::from_json(&Json::read(path)?)
    }

    fn from_json(file: &Json) -> Result<Self, ProcessorError> {
        let root = file.root();
        for (name, wanted) in [("patch_size", PATCH), ("merge_size", MERGE), ("temporal_patch_size", FRAMES)] {
            let field = root.get(name)?;
            if field.size(1, 1 << 16)? != wanted {
                return Err(field.refuse(&format!("{wanted} is needed, the network's patches are made of it")));
            }
        }
        for name in ["do_resize", "do_rescale", "do_normalize"] {
            let field = root.get(name)?;
            if !field.is_missing() && !field.bool()? {
                return Err(field.refuse("true is needed, the reference does it"));
            }
        }
        let size = root.get("size")?;
        let least = size.get("shortest_edge")?.size(1, MOST_PIXELS)?;
        let most = size.get("longest_edge")?.size(least, MOST_PIXELS)?;
        Ok(Self { least, most, values: values(&root)? })
    }

    /// Height and width, multiples of a token's edge, that a picture is resized to.
    pub(super) fn size(&self, [height, width]: [usize; 2]) -> Result<[usize; 2], ProcessorError> {
        let factor = (PATCH * MERGE) as f64;
        let (h, w) = (height as f64, width as f64);
        if h.max(w) / h.min(w) > MOST_ELONGATED {
            let found = format!("{height} x {width} pixels");
            return Err(ProcessorError::input("a picture", found, "edges of a ratio up to 200 are needed"));
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

    /// Writes the patches of a picture whose edges are multiples of a token's into [`numbers`] numbers.
    ///
    /// Order: tokens row by row, in a token its 2 × 2 patches row by row; in a patch channel, frame, row, column.
    pub(super) fn cut(&self, image: &Image, out: &mut [f32]) {
        let columns = image.width / (PATCH * MERGE);
        let (patches, _) = out.as_chunks_mut::<NUMBERS>();
        for (token, patches) in patches.chunks_exact_mut(MERGE * MERGE).enumerate() {
            let (top, left) = (token / columns * MERGE, token % columns * MERGE);
            for (index, patch) in patches.iter_mut().enumerate() {
                self.fill(image, [(top + index / MERGE) * PATCH, (left + index % MERGE) * PATCH], patch);
            }
        }
    }

    fn fill(&self, image: &Image, [top, left]: [usize; 2], patch: &mut [f32; NUMBERS]) {
        let (planes, _) = patch.as_chunks_mut::<{ PATCH * PATCH }>();
        for y in 0..PATCH {
            let row = &image.rgb[((top + y) * image.width + left) * 3..][..PATCH * 3];
            for channel in 0..3 {
                let mut line = [0.0; PATCH];
                for (out, pixel) in line.iter_mut().zip(row.as_chunks::<3>().0) {
                    *out = self.values[channel][usize::from(pixel[channel])];
                }
                for frame in 0..FRAMES {
                    planes[channel * FRAMES + frame][y * PATCH..][..PATCH].copy_from_slice(&line);
                }
            }
        }
    }
}

/// Numbers in the patches of a picture.
pub(super) fn numbers(image: &Image) -> usize {
    tokens(image) * MERGE * MERGE * NUMBERS
}

/// Tokens of a picture in the prompt.
pub(super) fn tokens(image: &Image) -> usize {
    (image.height / (PATCH * MERGE)) * (image.width / (PATCH * MERGE))
}

/// Patches of a picture: time, height, width.
pub(super) fn grid(image: &Image) -> [i64; 3] {
    [1, image.height / PATCH, image.width / PATCH].map(|count| i64::try_from(count).expect("patches fit memory"))
}

/// The patches of one sample, `[P, 1536]`.
pub(super) fn tensor(numbers: &[f32]) -> Tensor {
    let width = i64::try_from(NUMBERS).expect("1536 fits");
    Tensor::from_slice(numbers).view([-1, width])
}

/// (byte − mean / rescale) / (std / rescale), in `f32` as torch does it.
fn values(root: &Field) -> Result<[[f32; 256]; 3], ProcessorError> {
    let field = root.get("rescale_factor")?;
    let rescale = if field.is_missing() { 1.0 / 255.0 } else { field.number()? };
    if rescale <= 0.0 {
        return Err(field.refuse("a number above 0 is needed"));
    }
    let channels = |name: &str| -> Result<[f32; 3], ProcessorError> {
        let field = root.get(name)?;
        let numbers: Result<[f64; 3], _> = field.numbers()?.try_into();
        let numbers = numbers.map_err(|_| field.refuse("one number a channel is needed"))?;
        Ok(numbers.map(|number| number as f32 * (1.0 / rescale) as f32))
    };
    let (mean, std) = (channels("image_mean")?, channels("image_std")?);
    if std.contains(&0.0) {
        return Err(root.get("image_std")?.refuse("numbers other than 0 are needed"));
    }
    let mut values = [[0.0; 256]; 3];
    for (channel, values) in values.iter_mut().enumerate() {
        for (byte, value) in (0u8..=255).zip(values.iter_mut()) {
            *value = (f32::from(byte) - mean[channel]) / std[channel];
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn released() -> Patches {
        let text = br#"{"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5], "size": {"shortest_edge": 65536, "longest_edge": 16777216}}"#;
        Patches::from_json(&Json::parse(Path::new("preprocessor_config.json"), text).unwrap()).unwrap()
    }

    #[test]
    fn a_small_picture_grows_and_a_huge_one_shrinks() {
        let patches = released();
        assert_eq!(patches.size([256, 256]).unwrap(), [256, 256]);
        assert_eq!(patches.size([224, 224]).unwrap(), [256, 256]);
        assert_eq!(patches.size([64, 128]).unwrap(), [192, 384]);
        assert_eq!(patches.size([8000, 8000]).unwrap(), [4096, 4096]);
        assert!(patches.size([1, 201]).unwrap_err().to_string().contains("1 x 201"));
    }

    #[test]
    fn bytes_become_minus_one_to_one() {
        let values = released().values[0];
        assert_eq!((values[0], values[255], values[128]), (-1.0, 1.0, (128.0 - 127.5) / 127.5));
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_refused_without_a_panic(text in "\\{\"(size|patch_size|image_mean)\": [0-9\\[\\]{}\",a-z:.-]{0,12}\\}") {
            if let Ok(json) = Json::parse(Path::new("preprocessor_config.json"), text.as_bytes()) {
                prop_assert!(Patches::from_json(&json).is_err());
            }
        }
    }
}
