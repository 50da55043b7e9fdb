//! Pads to a square, resizes, crops the middle and resizes again, by area and in OpenCV's
//! arithmetic.
//!
//! The reference is OpenCV 4.11, `imgproc/src/resize.cpp`, `INTER_AREA` on three-channel bytes:
//! shrinking averages, and enlarging interpolates with integers.

use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::Cache;
use crate::image::average::{self, Averages};
use crate::image::axis::ResizeAxis;
use crate::image::between::PairTables;
use crate::image::{Image, RgbPicture};

/// Number of tables that are kept; one robot has a few picture sizes.
const KEPT: u64 = 64;

/// The image steps of a released checkpoint, with tables for the sizes seen so far.
#[derive(Debug)]
pub(super) struct Area(Mutex<Cache<[ResizeAxis; 2], Arc<Tables>>>);

/// The tables for resizing pictures of one size.
#[derive(Debug)]
enum Tables {
    /// The size stays the same; only bars and crop are applied.
    Copy([ResizeAxis; 2]),
    /// Both axes shrink by integer factors: plain means of integers.
    Blocks([ResizeAxis; 2], [usize; 2]),
    /// Both axes shrink.
    Average(Averages),
    /// At least one axis grows.
    Between(PairTables),
}

impl Area {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Cache::new(KEPT)))
    }

    pub(super) fn apply(&self, picture: RgbPicture, edge: usize, crop_fraction: f64) -> Image {
        let crop = cropped(edge, crop_fraction);
        let source = picture.height.max(picture.width);
        let axis = |present: usize| ResizeAxis {
            source,
            bar: (source - present) / 2,
            present,
            target: edge,
            from: (edge - crop) / 2,
            count: crop,
        };
        let middle = self.resize(picture, [axis(picture.height), axis(picture.width)]);
        let whole = ResizeAxis {
            source: crop,
            bar: 0,
            present: crop,
            target: edge,
            from: 0,
            count: edge,
        };
        if crop == edge {
            middle
        } else {
            self.resize(middle.as_picture(), [whole, whole])
        }
    }

    fn resize(&self, picture: RgbPicture, axes: [ResizeAxis; 2]) -> Image {
        match &*self.tables(axes) {
            Tables::Copy(axes) => copy(picture, axes),
            Tables::Blocks(axes, block) => average::blocks(picture, axes, *block),
            Tables::Average(averages) => averages.apply(picture),
            Tables::Between(pairs) => pairs.apply(picture),
        }
    }

    fn tables(&self, axes: [ResizeAxis; 2]) -> Arc<Tables> {
        // Only complete tables are kept, so a lock poisoned by a panic elsewhere does no harm.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or(axes, || Arc::new(Tables::new(axes)))
    }
}

impl Tables {
    fn new(axes: [ResizeAxis; 2]) -> Self {
        let [y, x] = axes;
        if y.source == y.target && x.source == x.target {
            return Self::Copy(axes);
        }
        if let (Some(rows), Some(columns)) = (y.whole_scale(), x.whole_scale()) {
            return Self::Blocks(axes, [rows, columns]);
        }
        if y.scale() >= 1.0 && x.scale() >= 1.0 {
            Self::Average(Averages::new(axes))
        } else {
            Self::Between(PairTables::new(axes))
        }
    }
}

/// Returns the edge of what a crop leaves of `edge` pixels.
fn cropped(edge: usize, fraction: f64) -> usize {
    ((edge as f64 * fraction) as usize).max(1)
}

/// Copies the needed part of the square around a picture.
fn copy(picture: RgbPicture, axes: &[ResizeAxis; 2]) -> Image {
    let [y, x] = axes;
    let mut rgb = vec![0; y.count * x.count * 3];
    let columns = x.within(x.from..x.from + x.count);
    let left = columns.start + x.bar - x.from;
    for (index, out) in rgb.chunks_exact_mut(x.count * 3).enumerate() {
        for row in y.within(y.from + index..y.from + index + 1) {
            let bytes = &picture.row(row)[columns.start * 3..columns.end * 3];
            out[left * 3..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    Image {
        height: y.count,
        width: x.count,
        rgb,
    }
}

#[cfg(test)]
mod tests;
