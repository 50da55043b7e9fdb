//! Small pictures of what the cameras of an environment show, side by side, as PNG.

use std::collections::BTreeMap;

use crate::env::{Frame, ImageSize};
use crate::record::video::{fit, tile::Tiling};

/// Height of a picture in pixels.
const HEIGHT: u32 = 120;

/// Most cameras in a picture; the first ones by name.
const CAMERAS: usize = 2;

/// Renders a picture; `None` if there is no camera, or an image cannot be shown.
pub fn thumbnail(pictures: &BTreeMap<String, Frame>) -> Option<Vec<u8>> {
    let cameras: Vec<_> = pictures.keys().take(CAMERAS).cloned().collect();
    if cameras.is_empty() {
        return None;
    }
    let limit = ImageSize {
        height: HEIGHT,
        width: u32::MAX,
    };
    let tiling = Tiling::of(&cameras, pictures, |size| fit(size, size, limit)).ok()?;
    let mut canvas = Vec::new();
    tiling.draw(pictures, &mut canvas).ok()?;
    png(&canvas, tiling.width, tiling.height).ok()
}

fn png(rgb: &[u8], width: usize, height: usize) -> Result<Vec<u8>, png::EncodingError> {
    let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX);
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, side(width), side(height));
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(png)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::frame;

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
}
