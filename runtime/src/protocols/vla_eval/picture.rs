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

/// The reason for a picture that has another form.
const FORM: &str = "expected an array [height, width, 3] of uint8, as it is or as PNG";

/// Returns the pixels `[height, width, 3]`.
pub(super) fn read(image: &Value, longest_edge: usize) -> Result<Array, String> {
    let array = match image {
        Value::Array(array) => array.clone(),
        other => match format(other) {
            None => return Err(FORM.to_owned()),
            Some("raw") => raw(other).ok_or(FORM)?,
            Some("png") => png(file(other).ok_or(FORM)?, longest_edge)?,
            Some(found) => {
                let found: String = found.chars().take(20).collect();
                return Err(format!(
                    "the format `{found}` is not read, expected png or raw"
                ));
            }
        },
    };
    match *array.shape() {
        [height, width, 3] if array.dtype().descr().ends_with("u1") => {
            check_edges(height, width, longest_edge)?;
            Ok(array)
        }
        _ => Err(FORM.to_owned()),
    }
}

fn check_edges(height: usize, width: usize, most: usize) -> Result<(), String> {
    if height.max(width) <= most {
        return Ok(());
    }
    Err(format!(
        "{height} x {width} pixels, expected at most {most} along an edge (--max-picture)"
    ))
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

fn png(file: &Bytes, longest_edge: usize) -> Result<Array, String> {
    let damaged = |err: png::DecodingError| format!("not a PNG file: {err}");
    // The head tells the size before anything is decompressed or allocated.
    if let Some([width, height]) = edges(file) {
        check_edges(height, width, longest_edge)?;
    }
    let decoder = png::Decoder::new(Cursor::new(&file[..]));
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (width, height) = (reader.info().width, reader.info().height);
    let [height, width] = [height, width].map(|edge| edge as usize);
    let (colour, depth) = reader.output_color_type();
    if (colour, depth) != (png::ColorType::Rgb, png::BitDepth::Eight) {
        let bits = depth as u8;
        return Err(format!(
            "not a PNG file: {colour:?} of {bits} bits, expected RGB of 8"
        ));
    }
    let mut pixels = vec![0; height * width * 3];
    reader.next_frame(&mut pixels).map_err(damaged)?;
    Ok(Array::of_u8(&[height, width, 3], pixels.into()))
}
