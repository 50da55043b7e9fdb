//! Resizes by ATen's antialiased filters on bytes, and crops in between.

use tch::{Kind, Tensor};

use crate::image::Image;

/// A filter of ATen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Bilinear,
    Bicubic,
}

/// Resizes the picture to height and width `size`; returns it unchanged if it already has that
/// size.
pub(super) fn resize(image: Image, size: [usize; 2], filter: Filter) -> Image {
    let [height, width] = size;
    if [image.height, image.width] == size {
        return image;
    }
    let pixels =
        Tensor::from_slice(&image.rgb).view([1, length(image.height), length(image.width), 3]);
    let planes = pixels.permute([0, 3, 1, 2]);
    let size = [length(height), length(width)];
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
pub(super) fn center(image: &Image, [height, width]: [usize; 2]) -> Image {
    let offset =
        |whole: usize, part: usize| ((whole - part) as f64 / 2.0).round_ties_even() as usize;
    let (top, left) = (offset(image.height, height), offset(image.width, width));
    let rows = image.rgb.chunks_exact(image.width * 3).skip(top);
    let middle = rows.take(height).map(|row| &row[left * 3..][..width * 3]);
    let rgb = middle.flatten().copied().collect();
    Image { height, width, rgb }
}

fn length(size: usize) -> i64 {
    i64::try_from(size).expect("a picture's edge is at most 2^24")
}
