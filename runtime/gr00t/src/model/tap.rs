//! Gives access to intermediate tensors of the network.

use std::fmt::Arguments;

use tch::Tensor;

/// Receives intermediate tensors by name, such as `vision.block.00` or `step0.dit_in`.
pub trait Tap {
    /// Returns whether [`Self::record`] does anything.
    fn is_listening(&self) -> bool;

    /// Receives one tensor. The network may change it in place afterwards, so an implementation
    /// that keeps it must copy it.
    fn record(&mut self, name: Arguments<'_>, value: &Tensor);
}

/// A tap that ignores all tensors and costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTap;

impl Tap for NoTap {
    fn is_listening(&self) -> bool {
        false
    }

    fn record(&mut self, _name: Arguments<'_>, _value: &Tensor) {}
}

/// Passes `value` to `tap`, reshaped if `shape` is given.
pub(super) fn note(tap: &mut dyn Tap, name: Arguments<'_>, value: &Tensor, shape: Option<&[i64]>) {
    if !tap.is_listening() {
        return;
    }
    match shape {
        Some(shape) => tap.record(name, &value.reshape(shape)),
        None => tap.record(name, value),
    }
}
