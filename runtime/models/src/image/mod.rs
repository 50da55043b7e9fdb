//! Turns camera pictures into the patches that the vision tower reads.
//!
//! ```text
//! picture ─► square ─► geometry (area or bilinear) ─► size rule (bicubic) ─► patches, as bytes
//! ```
//!
//! All steps work on bytes and give the same bytes as the reference (OpenCV for `area`, ATen for
//! the other two); the network's device normalises them. Pictures are independent of each other:
//! [`PictureProcessor::prepare`] processes many at the same time.

mod area;
mod average;
mod axis;
mod between;
mod patches;

use std::path::Path;

use rayon::prelude::*;
use tch::{Kind, Tensor};

use crate::error::input;
use crate::json::Document;
use area::Area;
use jobs::refusal::Refusal;
pub use patches::PixelScale;
use patches::{BYTES, SizeRule};

/// How pictures are resized after they were padded with zeros to a square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Geometry {
    /// `use_albumentations`: resize to `edge`, crop the middle, and resize to `edge` again, by
    /// area.
    Area {
        /// Edge of the result in pixels.
        edge: usize,
        /// Edge of the crop as a fraction, above 0 and up to 1.
        crop_fraction: f64,
    },
    /// torchvision: resize to `target`, crop the middle `crop`, and resize to `target`, bilinear
    /// with antialiasing.
    Bilinear {
        /// Height and width of the crop in pixels.
        crop: [usize; 2],
        /// Height and width of the result in pixels.
        target: [usize; 2],
    },
}

/// An antialiased filter of ATen on bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    Bilinear,
    Bicubic,
}

/// Maximum edge of a camera picture in pixels.
const LONGEST_EDGE: usize = 1 << 15;

/// A borrowed picture: `[height, width, 3]`, `u8`, RGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RgbPicture<'a> {
    height: usize,
    width: usize,
    rgb: &'a [u8],
}

impl<'a> RgbPicture<'a> {
    /// Creates a picture from `height * width * 3` bytes.
    ///
    /// # Errors
    /// Returns [`Refusal`] if it has no pixels or another number of bytes.
    pub fn new(height: usize, width: usize, rgb: &'a [u8]) -> Result<Self, Refusal> {
        let sane = (1..=LONGEST_EDGE).contains(&height) && (1..=LONGEST_EDGE).contains(&width);
        if !sane || rgb.len() != height * width * 3 {
            let found = format!("{height} x {width} pixels in {} bytes", rgb.len());
            let wanted = "expected 3 bytes a pixel and at least one pixel";
            return Err(input("a picture", found, wanted));
        }
        Ok(Self { height, width, rgb })
    }

    fn row(&self, index: usize) -> &'a [u8] {
        &self.rgb[index * self.width * 3..][..self.width * 3]
    }
}

/// An owned picture: `[height, width, 3]`, `u8`, RGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Number of rows.
    pub height: usize,
    /// Number of columns.
    pub width: usize,
    /// The pixels as `height * width * 3` bytes.
    pub rgb: Vec<u8>,
}

impl Image {
    fn as_picture(&self) -> RgbPicture<'_> {
        RgbPicture {
            height: self.height,
            width: self.width,
            rgb: &self.rgb,
        }
    }
}

/// The patches of one sample's pictures.
#[derive(Debug)]
pub struct Prepared {
    /// Patches, picture by picture: `[sum of height / 16 * width / 16, 768]`, `u8`.
    pub pixels: Tensor,
    /// Number of patches of each picture along time, height and width.
    pub grids: Vec<[i64; 3]>,
    /// Number of tokens of each picture in the prompt.
    pub tokens: Vec<usize>,
}

/// Prepares pictures for one checkpoint.
#[derive(Debug)]
pub struct PictureProcessor {
    geometry: Geometry,
    area: Area,
    size: SizeRule,
    /// How the network's device normalises the patches.
    pub scale: PixelScale,
}

impl PictureProcessor {
    /// Reads the `preprocessor_config.json` of the backbone.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names file and field.
    pub fn read(geometry: Geometry, preprocessor: &Path) -> Result<Self, Refusal> {
        let (size, scale) = patches::read(&Document::read(preprocessor)?)?;
        Ok(Self {
            geometry,
            area: Area::new(),
            size,
            scale,
        })
    }

    /// Applies the geometric steps and returns the picture that the reference hands to the
    /// backbone's image processor.
    pub fn transform(&self, picture: RgbPicture) -> Image {
        match self.geometry {
            Geometry::Area {
                edge,
                crop_fraction,
            } => self.area.apply(picture, edge, crop_fraction),
            Geometry::Bilinear { crop, target } => {
                let large = resize(squared(picture), target, Filter::Bilinear);
                resize(center(&large, crop), target, Filter::Bilinear)
            }
        }
    }

    /// Applies all steps to all pictures of a sample at the same time.
    ///
    /// # Errors
    /// Returns [`Refusal`] if a picture is too long and narrow for the backbone.
    pub fn prepare(&self, pictures: &[RgbPicture]) -> Result<Prepared, Refusal> {
        let images = pictures.par_iter().map(|picture| self.sized(*picture));
        let images: Vec<Image> = images.collect::<Result<_, _>>()?;
        let mut bytes = vec![0; images.iter().map(|image| image.rgb.len()).sum()];
        let (mut rest, mut parts) = (&mut bytes[..], Vec::with_capacity(images.len()));
        for image in &images {
            let (part, others) = rest.split_at_mut(image.rgb.len());
            parts.push((image, part));
            rest = others;
        }
        let parts = parts.into_par_iter();
        parts.for_each(|(image, part)| patches::cut(image, part));
        Ok(Prepared {
            pixels: Tensor::from_slice(&bytes).view([-1, BYTES as i64]),
            grids: images.iter().map(patches::grid).collect(),
            tokens: images.iter().map(patches::tokens).collect(),
        })
    }

    /// Returns the picture in the size that the backbone needs, not yet cut into patches.
    fn sized(&self, picture: RgbPicture) -> Result<Image, Refusal> {
        let image = self.transform(picture);
        let size = self.size.of([image.height, image.width])?;
        Ok(resize(image, size, Filter::Bicubic))
    }
}

/// Pads a picture to a black square as large as its longer edge; an odd remaining pixel goes to the
/// right or the bottom.
fn squared(picture: RgbPicture) -> Image {
    let edge = picture.height.max(picture.width);
    let mut rgb = vec![0; edge * edge * 3];
    let (top, left) = ((edge - picture.height) / 2, (edge - picture.width) / 2);
    let rows = rgb.chunks_exact_mut(edge * 3).skip(top);
    for (index, row) in rows.take(picture.height).enumerate() {
        row[left * 3..][..picture.width * 3].copy_from_slice(picture.row(index));
    }
    Image {
        height: edge,
        width: edge,
        rgb,
    }
}

/// Resizes the picture to height and width `size`; returns it unchanged if it already has that
/// size.
fn resize(image: Image, size: [usize; 2], filter: Filter) -> Image {
    let [height, width] = size;
    if [image.height, image.width] == size {
        return image;
    }
    let shape = [1, image.height as i64, image.width as i64, 3];
    let pixels = Tensor::from_slice(&image.rgb).view(shape);
    let planes = pixels.permute([0, 3, 1, 2]);
    let size = [height as i64, width as i64];
    let planes = match filter {
        Filter::Bilinear => planes.internal_upsample_bilinear2d_aa(size, false, None, None),
        Filter::Bicubic => planes.internal_upsample_bicubic2d_aa(size, false, None, None),
    };
    let mut rgb = vec![0; height * width * 3];
    let bytes = planes.permute([0, 2, 3, 1]).contiguous();
    let bytes = bytes.to_kind(Kind::Uint8).view(-1);
    bytes.copy_data(&mut rgb, height * width * 3);
    Image { height, width, rgb }
}

/// Crops the middle of a picture, whose size it does not exceed; halves of a pixel are rounded to
/// even, as in torchvision.
fn center(image: &Image, [height, width]: [usize; 2]) -> Image {
    let offset =
        |whole: usize, part: usize| ((whole - part) as f64 / 2.0).round_ties_even() as usize;
    let (top, left) = (offset(image.height, height), offset(image.width, width));
    let rows = image.rgb.chunks_exact(image.width * 3).skip(top);
    let middle = rows.take(height).map(|row| &row[left * 3..][..width * 3]);
    let rgb = middle.flatten().copied().collect();
    Image { height, width, rgb }
}
