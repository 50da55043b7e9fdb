//! What libtorch, CUDA or NCCL refuses.

use tch::TchError;

use crate::torch_error::{is_out_of_memory, message};

/// An error of libtorch, CUDA or NCCL, or the reason why they cannot be used here. Its text says
/// what kind it is: see [`torch_error`](crate::torch_error).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TorchError(String);

impl TorchError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Says what an exception of C++ says, on one line and without the stack frames that some
    /// texts contain.
    pub(crate) fn thrown(text: &str) -> Self {
        let line: Vec<_> = message(text).split_whitespace().collect();
        let line = line.join(" ");
        let who = match is_out_of_memory(text) {
            true => "out of memory",
            false => "libtorch",
        };
        Self(format!("{who}: {line}"))
    }
}

impl From<TchError> for TorchError {
    fn from(err: TchError) -> Self {
        Self::thrown(&err.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backtrace_is_cut_and_lines_are_joined() {
        let text = "no such\n tensor\nException raised from find at x.cpp:1\nframe #0: b";
        let said = TorchError::thrown(text).to_string();
        assert_eq!(said, "libtorch: no such tensor");
        let full = TorchError::thrown("CUDA out of memory. Tried to allocate 1 GiB.").to_string();
        assert!(
            full.starts_with("out of memory: CUDA out of memory"),
            "{full}"
        );
    }
}
