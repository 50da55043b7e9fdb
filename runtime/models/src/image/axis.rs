//! One axis of an area resize: maps each result pixel to its source pixels.
//!
//! The black bars around a picture are never written: an [`ResizeAxis`] knows where in the square the
//! picture lies, and its tables leave out black pixels, since adding zero changes no sum. Pixels
//! that the crop would cut away are not computed either.

use std::ops::Range;

/// One axis of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ResizeAxis {
    /// Pixels of the source, including its bars.
    pub(super) source: usize,
    /// Pixels of the bar before the picture.
    pub(super) bar: usize,
    /// Pixels of the picture itself.
    pub(super) present: usize,
    /// Pixels of the whole result.
    pub(super) target: usize,
    /// Index of the first result pixel that is needed.
    pub(super) from: usize,
    /// Number of result pixels that are needed.
    pub(super) count: usize,
}

/// The source pixels whose weighted mean is one result pixel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Weighted {
    /// Index of the first source pixel in the picture; the others follow it.
    pub(super) first: usize,
    /// One weight per pixel; empty if all are black.
    pub(super) weights: Vec<f32>,
}

/// The two source pixels between which one result pixel lies, with their integer weights, whose
/// sum is 2048.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Between {
    pub(super) pixels: [usize; 2],
    pub(super) weights: [i16; 2],
}

/// OpenCV 4.11, `imgproc/src/resize.cpp`: `INTER_RESIZE_COEF_SCALE`.
const COEFFICIENT_SCALE: f32 = 2048.0;
/// A remaining part of a pixel below this is ignored, as in OpenCV.
const REST: f64 = 1e-3;

impl ResizeAxis {
    /// Returns the number of source pixels per result pixel.
    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.target as f64 / self.source as f64)
    }

    /// Returns [`ResizeAxis::scale`] if it is an integer of at least 1.
    pub(super) fn whole_scale(&self) -> Option<usize> {
        let scale = self.scale();
        let whole = scale.round_ties_even();
        ((scale - whole).abs() < f64::EPSILON && whole >= 1.0).then_some(whole as usize)
    }

    /// Returns the picture pixels among source pixels that may lie in the bars.
    pub(super) fn within(&self, sources: Range<usize>) -> Range<usize> {
        let end = sources.end.saturating_sub(self.bar).min(self.present);
        sources.start.saturating_sub(self.bar).min(end)..end
    }

    /// Returns the weights of a shrinking axis, for each needed result pixel.
    pub(super) fn weighted(&self) -> Vec<Weighted> {
        let needed = self.from..self.from + self.count;
        needed.map(|target| self.weighted_at(target)).collect()
    }

    fn weighted_at(&self, target: usize) -> Weighted {
        let scale = self.scale();
        let begin = target as f64 * scale;
        let end = begin + scale;
        let cell = scale.min(self.source as f64 - begin);
        let last = (end.floor() as usize).min(self.source - 1);
        let first = (begin.ceil() as usize).min(last);
        let mut terms = Vec::new();
        if first as f64 - begin > REST {
            terms.push((first - 1, ((first as f64 - begin) / cell) as f32));
        }
        terms.extend((first..last).map(|source| (source, (1.0 / cell) as f32)));
        if end - last as f64 > REST {
            terms.push((last, ((end - last as f64).min(1.0).min(cell) / cell) as f32));
        }
        let start = terms.first().map_or(0, |(source, _)| *source);
        let inside = self.within(start..start + terms.len());
        let skipped = (inside.start + self.bar).saturating_sub(start);
        let (first, terms) = (inside.start, terms.iter().skip(skipped).take(inside.len()));
        let weights = terms.map(|(_, weight)| *weight).collect();
        Weighted { first, weights }
    }

    /// Returns the pixel pairs of an enlarging axis, for each needed result pixel.
    pub(super) fn between(&self) -> Vec<Between> {
        let needed = self.from..self.from + self.count;
        needed.map(|target| self.between_at(target)).collect()
    }

    fn between_at(&self, target: usize) -> Between {
        let inverse = self.target as f64 / self.source as f64;
        let mut left = (target as f64 * self.scale()).floor() as usize;
        let offset = ((target as f64 + 1.0) - (left as f64 + 1.0) * inverse) as f32;
        let mut part = if offset <= 0.0 {
            0.0
        } else {
            offset - offset.floor()
        };
        if left >= self.source - 1 {
            (left, part) = (self.source - 1, 0.0);
        }
        let weight = |part: f32| (part * COEFFICIENT_SCALE).round_ties_even() as i16;
        let pair = [
            (left, weight(1.0 - part)),
            ((left + 1).min(self.source - 1), weight(part)),
        ];
        // A black pixel counts like any pixel with weight 0.
        let seen = pair.map(|(source, weight)| match self.within(source..source + 1) {
            inside if inside.is_empty() => (inside.start.min(self.present - 1), 0),
            inside => (inside.start, weight),
        });
        Between {
            pixels: seen.map(|(pixel, _)| pixel),
            weights: seen.map(|(_, weight)| weight),
        }
    }
}
