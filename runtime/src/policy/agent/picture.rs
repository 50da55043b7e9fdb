//! Encodes pictures as PNG, for chat servers and for people.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::env::Frame;

/// A camera's picture as a PNG file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PngPicture {
    /// Name of the camera.
    pub(super) camera: String,
    /// The content of the file.
    pub(super) png: Vec<u8>,
}

impl PngPicture {
    /// Compresses a frame `[height, width, 3]`.
    pub(super) fn new(camera: &str, frame: &Frame) -> Result<Self, String> {
        let refuse = |err: png::EncodingError| {
            format!("the picture of camera `{camera}` is not a PNG: {err}")
        };
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, frame.width, frame.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(refuse)?;
        writer.write_image_data(&frame.rgb).map_err(refuse)?;
        writer.finish().map_err(refuse)?;
        Ok(Self {
            camera: camera.to_owned(),
            png,
        })
    }

    /// Returns the picture as a data URL for a request.
    pub(super) fn data_url(&self) -> String {
        format!("data:image/png;base64,{}", STANDARD.encode(&self.png))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::frame;

    #[test]
    fn a_picture_comes_out_as_it_went_in() {
        let rgb: Vec<u8> = (0..2 * 3 * 3).collect();
        let picture = PngPicture::new(
            "front",
            &Frame {
                height: 2,
                width: 3,
                rgb: rgb.clone().into(),
            },
        )
        .unwrap();
        let text = picture.data_url();
        let bytes = STANDARD
            .decode(text.strip_prefix("data:image/png;base64,").unwrap())
            .unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
            .read_info()
            .unwrap();
        let mut found = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut found).unwrap();
        assert_eq!((info.width, info.height, found), (3, 2, rgb));
    }

    #[test]
    fn bytes_that_are_no_picture_are_refused() {
        let mut frame = frame([2, 3], 0);
        frame.rgb.truncate(5);
        let refused = PngPicture::new("front", &frame).unwrap_err();
        assert!(refused.contains("camera `front`"));
    }
}
