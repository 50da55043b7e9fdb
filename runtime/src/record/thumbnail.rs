//! Small pictures of what the cameras of an environment show, side by side, as PNG.

use std::collections::BTreeMap;

use crate::env::{Frame, ImageSize};
use crate::record::video::tile::{Tiling, fit};

/// Maximum size of a picture of one camera in pixels.
const LIMIT: ImageSize = ImageSize {
    height: 120,
    width: u32::MAX,
};

/// Most cameras in a picture; the first ones by name.
const CAMERAS: usize = 2;

/// Renders a picture; `None` if there is no camera, or an image cannot be shown.
pub fn thumbnail(pictures: &BTreeMap<String, Frame>) -> Option<Vec<u8>> {
    let cameras: Vec<_> = pictures.keys().take(CAMERAS).cloned().collect();
    if cameras.is_empty() {
        return None;
    }
    let tiling = Tiling::of(&cameras, pictures, |size| fit(size, size, LIMIT)).ok()?;
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
