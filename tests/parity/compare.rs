//! Compares two tensors.

use tch::{Kind, Tensor};

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

    /// Returns the bounds of the bfloat16 case, which are tighter for the network's output. The
    /// network rounds once where the reference rounds twice; the last velocities show it most.
    pub fn bfloat16(name: &str) -> Self {
        let relative = match name {
            "action_pred" => 0.015,
            _ if name.ends_with(".velocity") => 0.03,
            _ => 0.02,
        };
        let absolute = match name {
            "action_pred" => 0.1,
            _ => f64::INFINITY,
        };
        Self {
            relative,
            of_largest: f64::INFINITY,
            absolute,
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
