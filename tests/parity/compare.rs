//! Compares two tensors.

use std::fmt::Arguments;

use gr00t::model::Tap;
use tch::{Kind, Tensor};

use crate::parity::case::Tensors;

/// The largest accepted differences.
#[derive(Clone, Copy)]
pub struct Tolerance {
    /// Norm of the difference, relative to the norm of the expected tensor.
    pub relative: f64,
    /// Largest difference, relative to the largest expected value.
    pub of_largest: f64,
    /// Largest difference.
    pub absolute: f64,
}

impl Tolerance {
    /// The bounds in the README of every float32 case.
    pub const FLOAT32: Self = Self {
        relative: 1e-5,
        of_largest: 2e-5,
        absolute: f64::INFINITY,
    };

    /// Returns the bounds of the bfloat16 case, which are tighter for the network's output.
    pub fn bfloat16(name: &str) -> Self {
        match name {
            "action_pred" => Self {
                relative: 0.015,
                of_largest: f64::INFINITY,
                absolute: 0.1,
            },
            _ => Self {
                relative: 0.02,
                of_largest: f64::INFINITY,
                absolute: f64::INFINITY,
            },
        }
    }
}

/// Returns the relative Frobenius error, or the reason why it is not accepted.
pub fn compare(found: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<f64, String> {
    if found.size() != expected.size() {
        return Err(format!(
            "shape {:?}, expected {:?}",
            found.size(),
            expected.size()
        ));
    }
    if !expected.is_floating_point() {
        return if found == expected {
            Ok(0.0)
        } else {
            Err("integers differ".to_owned())
        };
    }
    let (found, expected) = (found.to_kind(Kind::Double), expected.to_kind(Kind::Double));
    let difference = found - &expected;
    let relative = difference.norm().double_value(&[])
        / expected.norm().double_value(&[]).max(f64::MIN_POSITIVE);
    let absolute = difference.abs().max().double_value(&[]);
    let of_largest = absolute
        / expected
            .abs()
            .max()
            .double_value(&[])
            .max(f64::MIN_POSITIVE);
    let fits = relative <= tolerance.relative
        && of_largest <= tolerance.of_largest
        && absolute <= tolerance.absolute;
    if fits {
        Ok(relative)
    } else {
        Err(format!(
            "relative {relative:.1e}, of largest {of_largest:.1e}, absolute {absolute:.1e}"
        ))
    }
}

/// Records copies of all tensors, under a prefix.
#[derive(Default)]
pub struct Recorder {
    pub prefix: &'static str,
    pub seen: Tensors,
}

impl Tap for Recorder {
    fn is_listening(&self) -> bool {
        true
    }

    fn record(&mut self, name: Arguments<'_>, value: &Tensor) {
        self.seen
            .insert(format!("{}{name}", self.prefix), value.copy());
    }
}
