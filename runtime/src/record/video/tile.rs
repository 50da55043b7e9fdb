//! Places the images of several cameras side by side: in videos, and in small pictures as PNG.
//! Images are scaled by area: every new pixel is the exact mean of the area that it covers in the
//! old image.

use std::collections::BTreeMap;

use crate::env::{Frame, ImageSize};
use crate::record::{check_bytes, check_size};

/// Minimum height and width of a canvas: OpenH264 encodes no smaller image, and after one it fails
/// on all others.
const SMALLEST: usize = 16;

/// The position of each camera's image, which the first images determine.
#[derive(Clone, Debug)]
pub(in crate::record) struct Tiling {
    /// Height of the canvas, even.
    pub(in crate::record) height: usize,
    /// Width of the canvas, even.
    pub(in crate::record) width: usize,
    tiles: Vec<Tile>,
}

#[derive(Clone, Debug)]
struct Tile {
    camera: String,
    /// Size of the camera's images.
    from: ImageSize,
    /// Columns on the canvas before this tile.
    left: usize,
    scale: Option<Resize>,
}

impl Tiling {
    /// Places `cameras` from left to right; `size` converts the size of a camera's images to that
    /// on the canvas. H.264 with half-size colour planes needs even sizes. An odd canvas is padded
    /// with a black row or column, and one that is too small with as many as it needs.
    pub(in crate::record) fn of(
        cameras: &[String],
        pictures: &BTreeMap<String, Frame>,
        size: impl Fn(ImageSize) -> ImageSize,
    ) -> Result<Self, String> {
        let (mut tiles, mut height, mut width) = (Vec::new(), 0, 0);
        for camera in cameras {
            let frame = picture(pictures, camera)?;
            let from = frame.size();
            let to = size(from);
            if from.rgb_bytes() == 0 || to.rgb_bytes() == 0 {
                return Err(format!(
                    "camera `{camera}` has pictures of {from} shown as {to}"
                ));
            }
            let scale = (from != to).then(|| Resize::new(from, to));
            tiles.push(Tile {
                camera: camera.clone(),
                from,
                left: width,
                scale,
            });
            height = height.max(to.height as usize);
            width += to.width as usize;
        }
        let side = |side: usize| side.max(SMALLEST).next_multiple_of(2);
        Ok(Self {
            height: side(height),
            width: side(width),
            tiles,
        })
    }

    /// Draws the images on a canvas of at least this size, or a part of it that begins at
    /// `canvas[0]`; rows are `stride` bytes apart.
    pub(in crate::record) fn draw(
        &self,
        pictures: &BTreeMap<String, Frame>,
        canvas: &mut [u8],
        stride: usize,
    ) -> Result<(), String> {
        for tile in &self.tiles {
            let frame = picture(pictures, &tile.camera)?;
            check_size(&tile.camera, tile.from, frame.size())?;
            let target = &mut canvas[tile.left * 3..];
            match &tile.scale {
                Some(scale) => scale.apply(&frame.rgb, target, stride),
                None => copy(&frame.rgb, frame.width as usize * 3, target, stride),
            }
        }
        Ok(())
    }
}

/// Returns the largest size with the aspect ratio of `size` at which `all` fits into `limit`, when
/// it shrinks likewise; `size` itself if it fits as it is.
pub(in crate::record) fn fit(size: ImageSize, all: ImageSize, limit: ImageSize) -> ImageSize {
    if all.height <= limit.height && all.width <= limit.width {
        return size;
    }
    let [height, width, tall, wide] =
        [all.height, all.width, limit.height, limit.width].map(u64::from);
    // The side that exceeds the limit by the larger factor decides.
    let (part, of) = if height * wide > width * tall {
        (tall, height)
    } else {
        (wide, width)
    };
    let scaled = |side: u32| (u64::from(side) * part / of).max(1) as u32;
    ImageSize {
        height: scaled(size.height),
        width: scaled(size.width),
    }
}

fn copy(rgb: &[u8], line: usize, target: &mut [u8], stride: usize) {
    for (row, line) in rgb.chunks_exact(line).enumerate() {
        target[row * stride..][..line.len()].copy_from_slice(line);
    }
}

fn picture<'a>(pictures: &'a BTreeMap<String, Frame>, camera: &str) -> Result<&'a Frame, String> {
    let frame = pictures.get(camera);
    let frame = frame.ok_or_else(|| format!("camera `{camera}` gave no picture"))?;
    check_bytes(camera, frame)?;
    Ok(frame)
}

/// Maximum size of one camera in a small picture, in pixels.
const THUMBNAIL: ImageSize = ImageSize {
    height: 120,
    width: u32::MAX,
};

/// Most cameras in a small picture; the first ones by name.
const CAMERAS: usize = 2;

/// Renders a small picture as PNG; `None` if there is no camera, or an image cannot be shown.
pub fn thumbnail(pictures: &BTreeMap<String, Frame>) -> Option<Vec<u8>> {
    let cameras: Vec<_> = pictures.keys().take(CAMERAS).cloned().collect();
    if cameras.is_empty() {
        return None;
    }
    let tiling = Tiling::of(&cameras, pictures, |size| fit(size, size, THUMBNAIL)).ok()?;
    let mut rgb = vec![0; tiling.height * tiling.width * 3];
    tiling.draw(pictures, &mut rgb, tiling.width * 3).ok()?;
    let mut png = Vec::new();
    let [width, height] = [tiling.width, tiling.height].map(|side| side as u32);
    let mut encoder = png::Encoder::new(&mut png, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(&rgb).ok()?;
    writer.finish().ok()?;
    Some(png)
}

/// The old pixels of one new pixel along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taps {
    /// The first old pixel.
    first: usize,
    /// Weights of the old pixels from there on, which sum to the number of old pixels.
    weights: Vec<u32>,
}

/// Computes the weights in units of `1 / new` old pixels: new pixel `i` covers `[i·old,
/// (i+1)·old)`, old pixel `j` covers `[j·new, (j+1)·new)`.
fn taps(old: u32, new: u32) -> Vec<Taps> {
    let (old, new) = (old as usize, new as usize);
    let taps = (0..new).map(|i| {
        let (start, end) = (i * old, (i + 1) * old);
        let pixels = start / new..end.div_ceil(new);
        let weight = |j: usize| (end.min((j + 1) * new) - start.max(j * new)) as u32;
        Taps {
            first: pixels.start,
            weights: pixels.map(weight).collect(),
        }
    });
    taps.collect()
}

/// A change of size, computed once for many images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resize {
    from: ImageSize,
    rows: Vec<Taps>,
    columns: Vec<Taps>,
}

impl Resize {
    /// Creates the scaling from one size to another; all sides must be above 0.
    pub(super) fn new(from: ImageSize, to: ImageSize) -> Self {
        Self {
            from,
            rows: taps(from.height, to.height),
            columns: taps(from.width, to.width),
        }
    }

    /// Writes the new image into `target`, whose rows are `stride` bytes apart.
    pub(super) fn apply(&self, rgb: &[u8], target: &mut [u8], stride: usize) {
        let area = u64::from(self.from.height) * u64::from(self.from.width);
        let mut sums = vec![0_u64; self.columns.len() * 3];
        for (target_row, Taps { first, weights }) in self.rows.iter().enumerate() {
            sums.fill(0);
            let lines = rgb.chunks_exact(self.from.width as usize * 3).skip(*first);
            for (line, weight) in lines.zip(weights) {
                self.add_row(line, u64::from(*weight), &mut sums);
            }
            let line = &mut target[target_row * stride..];
            for (byte, sum) in line.iter_mut().zip(&sums) {
                *byte = ((sum + area / 2) / area) as u8;
            }
        }
    }

    fn add_row(&self, row: &[u8], weight: u64, sums: &mut [u64]) {
        for (pixel, Taps { first, weights }) in sums.chunks_exact_mut(3).zip(&self.columns) {
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
    use super::*;
    use proptest::prelude::*;

    use crate::policy::tests::frame;

    fn pictures([left, right]: [[u32; 2]; 2]) -> BTreeMap<String, Frame> {
        let pictures = [("a", frame(left, 1)), ("b", frame(right, 2))];
        pictures
            .map(|(name, frame)| (name.to_owned(), frame))
            .into()
    }

    #[test]
    fn cameras_stand_in_the_order_of_the_plan_and_odd_sizes_are_padded() {
        let pictures = pictures([[1, 18], [17, 1]]);
        let tiling = Tiling::of(&["b".to_owned(), "a".to_owned()], &pictures, |from| from).unwrap();
        assert_eq!((tiling.height, tiling.width), (18, 20));
        let mut canvas = vec![0; 18 * 20 * 3];
        tiling.draw(&pictures, &mut canvas, 20 * 3).unwrap();
        let rows: Vec<Vec<u8>> = canvas
            .chunks(20 * 3)
            .map(|row| row.iter().copied().step_by(3).collect())
            .collect();
        assert_eq!(rows[0], [[2; 1].as_slice(), &[1; 18], &[0]].concat());
        assert!(
            rows[1..17]
                .iter()
                .all(|row| *row == [[2; 1].as_slice(), &[0; 19]].concat())
        );
        assert_eq!(rows[17], [0; 20]);
    }

    #[test]
    fn a_missing_camera_is_named() {
        let reason =
            Tiling::of(&["c".to_owned()], &pictures([[2, 2], [2, 2]]), |from| from).unwrap_err();
        assert_eq!(reason, "camera `c` gave no picture");
    }

    #[test]
    fn a_grid_that_is_too_large_keeps_its_shape() {
        let size = |height, width| ImageSize { height, width };
        let shrunk = |camera, all| fit(camera, all, size(1080, 1920));
        assert_eq!(shrunk(size(224, 224), size(448, 896)), size(224, 224));
        assert_eq!(shrunk(size(960, 960), size(1920, 3840)), size(480, 480));
        assert_eq!(shrunk(size(960, 960), size(2160, 960)), size(480, 480));
    }

    #[test]
    fn two_cameras_are_side_by_side_and_small() {
        let pictures = [("c", 3), ("b", 2), ("a", 1)];
        let pictures = pictures.map(|(name, byte)| (name.to_owned(), frame([480, 640], byte)));
        let bytes = thumbnail(&pictures.into()).unwrap();
        let reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info();
        let mut reader = reader.unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut rgb).unwrap();
        assert_eq!((info.width, info.height), (320, 120));
        assert_eq!((rgb[0], rgb[319 * 3]), (1, 2));
    }

    #[test]
    fn what_cannot_be_shown_is_no_picture() {
        assert_eq!(thumbnail(&BTreeMap::new()), None);
        let empty = BTreeMap::from([("a".to_owned(), frame([0, 0], 0))]);
        assert_eq!(thumbnail(&empty), None);
        let mut wrong = frame([4, 4], 0);
        wrong.rgb = vec![0; 3].into();
        assert_eq!(thumbnail(&BTreeMap::from([("a".to_owned(), wrong)])), None);
    }

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
