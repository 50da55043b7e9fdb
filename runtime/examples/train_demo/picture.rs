//! Pictures at the size that the network sees.

use runtime::env::Frame;

/// Edge of a picture that the network sees, in pixels.
pub const EDGE: usize = 96;

/// Source pixels of one destination pixel, with their weights.
type Cells = Vec<(usize, f32)>;

/// A square picture shrunk as OpenCV's INTER_AREA does: `[EDGE, EDGE, 3]`, `u8`.
pub fn shrink(frame: &Frame) -> Vec<u8> {
    let (height, width) = (frame.height as usize, frame.width as usize);
    let (rows, columns) = (cells(height), cells(width));
    let mut wide = vec![0.0f32; height * EDGE * 3];
    for y in 0..height {
        for (x, parts) in columns.iter().enumerate() {
            for channel in 0..3 {
                let sum = |sum, &(at, weight): &(usize, f32)| {
                    sum + f32::from(frame.rgb[(y * width + at) * 3 + channel]) * weight
                };
                wide[(y * EDGE + x) * 3 + channel] = parts.iter().fold(0.0, sum);
            }
        }
    }
    let mut out = Vec::with_capacity(EDGE * EDGE * 3);
    for parts in &rows {
        for at in 0..EDGE * 3 {
            let sum = parts.iter().fold(0.0, |sum, &(y, weight)| sum + wide[y * EDGE * 3 + at] * weight);
            out.push(sum.round_ties_even().clamp(0.0, 255.0) as u8);
        }
    }
    out
}

/// Which of `source` pixels make up each of [`EDGE`].
fn cells(source: usize) -> Vec<Cells> {
    let scale = source as f64 / EDGE as f64;
    let cell = |destination: usize| {
        let start = destination as f64 * scale;
        let (end, size) = (start + scale, scale.min(source as f64 - start));
        let last = (end.floor() as usize).min(source - 1);
        let first = (start.ceil() as usize).min(last);
        let mut parts = Vec::new();
        if first as f64 - start > 1e-3 {
            parts.push((first - 1, ((first as f64 - start) / size) as f32));
        }
        parts.extend((first..last).map(|at| (at, (1.0 / size) as f32)));
        if end - last as f64 > 1e-3 {
            parts.push((last, ((end - last as f64).min(1.0).min(size) / size) as f32));
        }
        parts
    };
    (0..EDGE).map(cell).collect()
}
