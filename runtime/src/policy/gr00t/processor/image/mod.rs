//! Camera pictures into the patches that the vision tower reads.
//!
//! ```text
//! picture ─► square ─► geometry (area or bilinear) ─► backbone's size rule (bicubic) ─► patches, −1 to 1
//! ```
//!
//! Every step but the last works on bytes and gives the bytes of the reference (OpenCV for `area`, ATen for the other
//! two). Pictures are independent of each other: [`Pictures::prepare`] works on many at the same time.

mod area;
mod average;
mod axis;
mod between;
mod patches;
mod resample;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use tch::Tensor;

use super::ProcessorError;
use super::config::Geometry;
use area::Area;
use patches::Patches;
pub use patches::Scale;
use resample::Filter;

/// Longest edge of a camera picture, in pixels.
const LONGEST_EDGE: usize = 1 << 15;

/// A picture that someone else owns: `[height, width, 3]`, `u8`, RGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    height: usize,
    width: usize,
    rgb: &'a [u8],
}

impl<'a> Picture<'a> {
    /// A picture of `height * width * 3` bytes.
    ///
    /// # Errors
    /// [`ProcessorError::Input`] if it has no pixels or another number of bytes.
    pub fn new(height: usize, width: usize, rgb: &'a [u8]) -> Result<Self, ProcessorError> {
        let sane = (1..=LONGEST_EDGE).contains(&height) && (1..=LONGEST_EDGE).contains(&width);
        if !sane || rgb.len() != height * width * 3 {
            let found = format!("{height} x {width} pixels in {} bytes", rgb.len());
            return Err(ProcessorError::input("a picture", found, "3 bytes a pixel, at least one pixel, are needed"));
        }
        Ok(Self { height, width, rgb })
    }

    fn row(&self, index: usize) -> &'a [u8] {
        &self.rgb[index * self.width * 3..][..self.width * 3]
    }
}

/// A picture of our own: `[height, width, 3]`, `u8`, RGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// `height * width * 3` bytes.
    pub rgb: Vec<u8>,
}

impl Image {
    fn as_picture(&self) -> Picture<'_> {
        Picture { height: self.height, width: self.width, rgb: &self.rgb }
    }
}

/// The patches of the pictures of one sample.
#[derive(Debug)]
pub struct Prepared {
    /// Picture by picture: `[sum of height / 16 * width / 16, 1536]`, `f32`, from −1 to 1; or `[…, 768]`, `u8`, where
    /// they are asked for [as bytes](Pictures::give_bytes).
    pub pixels: Tensor,
    /// Patches of each picture: time, height, width.
    pub grids: Vec<[i64; 3]>,
    /// Tokens of each picture in the prompt.
    pub tokens: Vec<usize>,
}

/// Prepares the pictures of one checkpoint.
#[derive(Debug)]
pub struct Pictures {
    geometry: Steps,
    patches: Patches,
    /// Buffers for patches, one for each sample that was ever prepared at the same time: fresh memory costs more than
    /// all the arithmetic.
    buffers: Mutex<Vec<Vec<f32>>>,
    gives_bytes: bool,
}

#[derive(Debug)]
enum Steps {
    Area(Area),
    Bilinear { crop: [usize; 2], target: [usize; 2] },
}

impl Pictures {
    /// Reads `preprocessor_config.json` of the backbone.
    ///
    /// # Errors
    /// [`ProcessorError`] naming file and field.
    pub fn read(geometry: Geometry, preprocessor: &Path) -> Result<Self, ProcessorError> {
        let geometry = match geometry {
            Geometry::Area { edge, crop_fraction } => Steps::Area(Area::new(edge, crop_fraction)),
            Geometry::Bilinear { crop, target } => Steps::Bilinear { crop, target },
        };
        Ok(Self { geometry, patches: Patches::read(preprocessor)?, buffers: Mutex::default(), gives_bytes: false })
    }

    /// The geometric steps: what the reference hands to the backbone's image processor.
    pub fn transform(&self, picture: Picture) -> Image {
        match &self.geometry {
            Steps::Area(area) => area.apply(picture),
            Steps::Bilinear { crop, target } => {
                let large = resample::resize(squared(picture), *target, Filter::Bilinear);
                let middle = resample::center(&large, *crop);
                resample::resize(middle, *target, Filter::Bilinear)
            }
        }
    }

    /// All steps, for all pictures of a sample at the same time.
    ///
    /// # Errors
    /// [`ProcessorError::Input`] if a picture is too long and narrow for the backbone.
    pub fn prepare(&self, pictures: &[Picture]) -> Result<Prepared, ProcessorError> {
        let images: Vec<Image> = pictures.par_iter().map(|picture| self.sized(*picture)).collect::<Result<_, _>>()?;
        if self.gives_bytes {
            return Ok(prepared(&images, bytes(&images)));
        }
        let buffers = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pixels = buffers().pop().unwrap_or_default();
        pixels.resize(images.iter().map(patches::numbers).sum(), 0.0);
        let mut rest = &mut pixels[..];
        let mut parts = Vec::with_capacity(images.len());
        for image in &images {
            let (part, others) = rest.split_at_mut(patches::numbers(image));
            parts.push((image, part));
            rest = others;
        }
        parts.into_par_iter().for_each(|(image, part)| self.patches.cut(image, part));
        let tensor = patches::tensor(&pixels);
        buffers().push(pixels);
        Ok(prepared(&images, tensor))
    }

    /// From now on patches are not normalised: an eighth of the bytes go to the device, which does that.
    pub fn give_bytes(&mut self) {
        self.gives_bytes = true;
    }

    /// How bytes become numbers.
    pub fn scale(&self) -> Scale {
        self.patches.scale()
    }

    /// The picture as the backbone wants it, but for the patches.
    fn sized(&self, picture: Picture) -> Result<Image, ProcessorError> {
        let image = self.transform(picture);
        let size = self.patches.size([image.height, image.width])?;
        Ok(resample::resize(image, size, Filter::Bicubic))
    }
}

fn prepared(images: &[Image], pixels: Tensor) -> Prepared {
    let (grids, tokens) = (images.iter().map(patches::grid).collect(), images.iter().map(patches::tokens).collect());
    Prepared { pixels, grids, tokens }
}

/// The patches of all pictures, one after the other.
fn bytes(images: &[Image]) -> Tensor {
    let mut all = vec![0; images.iter().map(patches::bytes).sum()];
    let mut rest = &mut all[..];
    for image in images {
        let (part, others) = rest.split_at_mut(patches::bytes(image));
        Patches::cut_bytes(image, part);
        rest = others;
    }
    patches::tensor_of_bytes(&all)
}

/// The picture in the middle of a black square as large as its longer edge; an odd rest goes to the right and below.
fn squared(picture: Picture) -> Image {
    let edge = picture.height.max(picture.width);
    let mut rgb = vec![0; edge * edge * 3];
    let (top, left) = ((edge - picture.height) / 2, (edge - picture.width) / 2);
    for (index, row) in rgb.chunks_exact_mut(edge * 3).skip(top).take(picture.height).enumerate() {
        row[left * 3..][..picture.width * 3].copy_from_slice(picture.row(index));
    }
    Image { height: edge, width: edge, rgb }
}
