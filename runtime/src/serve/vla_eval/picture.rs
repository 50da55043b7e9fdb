//! The pictures in an observation: arrays, or what vla-eval's `image_codec` makes of them.
//!
//! ```text
//! {"__image__": true, "format": "png", "data": file, "shape": [height, width, 3]}   its default
//! {"__image__": true, "format": "raw", "data": …, "dtype": "|u1", "shape": …}
//! ```

use std::io::Cursor;

use bytes::Bytes;
use wire::{Array, Dtype, Value};

/// Offset of width and height in a PNG file: behind its signature and the head of the chunk IHDR.
const IHDR: std::ops::Range<usize> = 16..24;

/// The reason why a picture cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PictureError {
    /// It has another form.
    #[error("expected an array [height, width, 3] of uint8, as it is or as PNG")]
    Form,
    /// JPEG, or a later format.
    #[error("the format `{found}` is not read, expected png or raw")]
    Format { found: String },
    /// It is too large.
    #[error("{height} x {width} pixels, expected at most {most} along an edge (--max-picture)")]
    TooLarge {
        height: usize,
        width: usize,
        most: usize,
    },
    /// The file is damaged, or is not an RGB picture of 8 bits.
    #[error("not a PNG file: {reason}")]
    Png { reason: String },
}

/// Returns the pixels `[height, width, 3]`.
pub(super) fn read(image: &Value, longest_edge: usize) -> Result<Array, PictureError> {
    let array = match image {
        Value::Array(array) => array.clone(),
        other => match format(other) {
            None => return Err(PictureError::Form),
            Some("raw") => raw(other).ok_or(PictureError::Form)?,
            Some("png") => png(file(other).ok_or(PictureError::Form)?, longest_edge)?,
            Some(found) => {
                let found = found.chars().take(20).collect();
                return Err(PictureError::Format { found });
            }
        },
    };
    match *array.shape() {
        [height, width, 3] if array.dtype().descr().ends_with("u1") => {
            if height.max(width) > longest_edge {
                return Err(PictureError::TooLarge {
                    height,
                    width,
                    most: longest_edge,
                });
            }
            Ok(array)
        }
        _ => Err(PictureError::Form),
    }
}

/// Returns how much memory a picture takes once it is decoded; nothing if it will be refused.
pub(super) fn decoded_bytes(image: &Value, longest_edge: usize) -> usize {
    match image {
        Value::Array(array) => array.data().len(),
        encoded => match file(encoded).and_then(edges) {
            Some([width, height]) if width.max(height) <= longest_edge => width * height * 3,
            _ => 0,
        },
    }
}

fn format(image: &Value) -> Option<&str> {
    image.get("__image__")?;
    image.get("format").and_then(Value::as_text)
}

fn file(image: &Value) -> Option<&Bytes> {
    match image.get("data") {
        Some(Value::Bytes(file)) => Some(file),
        _ => None,
    }
}

fn edges(png: &Bytes) -> Option<[usize; 2]> {
    let (edges, _) = png.get(IHDR)?.as_chunks::<4>();
    match edges {
        [width, height] => Some([*width, *height].map(|edge| u32::from_be_bytes(edge) as usize)),
        _ => None,
    }
}

fn raw(image: &Value) -> Option<Array> {
    let dtype = image.get("dtype").and_then(Value::as_text)?;
    let shape = image.get("shape").and_then(Value::as_list)?;
    let edge = |edge: &Value| edge.as_u64().and_then(|edge| usize::try_from(edge).ok());
    let shape: Option<Vec<usize>> = shape.iter().take(4).map(edge).collect();
    Array::new(Dtype::new(dtype).ok()?, shape?, file(image)?.clone()).ok()
}

fn png(file: &Bytes, longest_edge: usize) -> Result<Array, PictureError> {
    let damaged = |err: png::DecodingError| PictureError::Png {
        reason: err.to_string(),
    };
    // The head tells the size before anything is decompressed or allocated.
    if let Some([width, height]) = edges(file)
        && height.max(width) > longest_edge
    {
        return Err(PictureError::TooLarge {
            height,
            width,
            most: longest_edge,
        });
    }
    let decoder = png::Decoder::new(Cursor::new(&file[..]));
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (width, height) = (reader.info().width, reader.info().height);
    let [height, width] = [height, width].map(|edge| edge as usize);
    let (colour, depth) = reader.output_color_type();
    if (colour, depth) != (png::ColorType::Rgb, png::BitDepth::Eight) {
        return Err(PictureError::Png {
            reason: format!("{colour:?} of {} bits, expected RGB of 8", depth as u8),
        });
    }
    let mut pixels = vec![0; height * width * 3];
    reader.next_frame(&mut pixels).map_err(damaged)?;
    Ok(Array::of_u8(&[height, width, 3], pixels.into()))
}
