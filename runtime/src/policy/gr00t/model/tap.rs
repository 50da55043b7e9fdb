//! Looking at tensors inside the network.

use std::fmt::Arguments;

use tch::Tensor;

/// Sees intermediate tensors by name, `vision.block.00`, `step0.dit_in`.
pub trait Tap {
    /// Whether [`Self::record`] does anything.
    fn is_listening(&self) -> bool;

    /// Sees one tensor. The network may change it in place afterwards: whoever keeps it copies it.
    fn record(&mut self, name: Arguments<'_>, value: &Tensor);
}

/// Sees nothing and costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTap;

impl Tap for NoTap {
    fn is_listening(&self) -> bool {
        false
    }

    fn record(&mut self, _name: Arguments<'_>, _value: &Tensor) {}
}

/// Shows `value` to `tap`, in another shape if one is given.
pub(super) fn note(tap: &mut dyn Tap, name: Arguments<'_>, value: &Tensor, shape: Option<&[i64]>) {
    if !tap.is_listening() {
        return;
    }
    match shape {
        Some(shape) => tap.record(name, &value.reshape(shape)),
        None => tap.record(name, value),
    }
}
