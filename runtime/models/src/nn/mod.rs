//! Layers that networks are built from, and access to intermediate tensors, for comparisons and
//! measurements.

pub(crate) mod attention;
pub(crate) mod layers;
pub(crate) mod rope;

use std::cell::RefCell;
use std::fmt::Arguments;

use tch::Tensor;

type Listener = Box<dyn FnMut(Arguments<'_>, &Tensor)>;

thread_local! {
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// Runs `work`, and tells `listener` of each intermediate tensor by name, such as `vision.block.00`
/// or `step0.dit_in`. The network may change a tensor in place afterwards.
pub fn listen<T>(
    listener: impl FnMut(Arguments<'_>, &Tensor) + 'static,
    work: impl FnOnce() -> T,
) -> T {
    LISTENER.set(Some(Box::new(listener)));
    let done = work();
    LISTENER.set(None);
    done
}

/// Returns whether somebody listens.
pub(crate) fn is_heard() -> bool {
    LISTENER.with_borrow(Option::is_some)
}

/// Tells of `value` if somebody listens, reshaped if `shape` is given.
pub(crate) fn note(name: Arguments<'_>, value: &Tensor, shape: Option<&[i64]>) {
    LISTENER.with_borrow_mut(|listener| match (listener, shape) {
        (Some(listener), Some(shape)) => listener(name, &value.reshape(shape)),
        (Some(listener), None) => listener(name, value),
        (None, _) => {}
    });
}
