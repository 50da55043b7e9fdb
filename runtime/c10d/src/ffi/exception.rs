//! Exceptions of C++, as the shims report them.

use crate::torch_error::is_out_of_memory;

/// A C++ exception caught by the shim.
#[derive(Debug)]
pub struct CppException {
    pub kind: ExceptionKind,
    pub text: String,
}

impl CppException {
    /// Classifies an exception from tch, which keeps only its text and not its type.
    pub fn from_tch(text: &str) -> Self {
        let kind = if is_out_of_memory(text) {
            ExceptionKind::OutOfMemory
        } else {
            ExceptionKind::Other
        };
        Self {
            kind,
            text: text.to_owned(),
        }
    }
}

/// The type of the exception: `Status` in `shim/fault.h`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExceptionKind {
    Other,
    Store,
    Network,
    OutOfMemory,
}
