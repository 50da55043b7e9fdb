//! What libtorch says when something fails. tch keeps only the text of an exception, so what kind it was is read there.

/// Memory that is not there, in the words of torch 2.11: c10/cuda/CUDACachingAllocator.cpp and the CUDA driver ("out of
/// memory"), c10/core/impl/alloc_cpu.cpp ("can't allocate memory"), cuBLAS and cuDNN, which make their handles and
/// workspaces when they are first used.
const OUT_OF_MEMORY: [&str; 4] =
    ["out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"];

/// What tch's panics begin with.
const UNWRAPPED: &str = "called `Result::unwrap()` on an `Err` value: Torch(\"";

/// Where the C++ backtrace begins, in a message and in one that was printed with its line ends escaped.
const BACKTRACE: [&str; 4] = ["\nException raised from", "\\nException raised from", "\nframe #0", "\\nframe #0"];

/// Whether memory was short.
pub fn is_out_of_memory(text: &str) -> bool {
    OUT_OF_MEMORY.iter().any(|words| text.contains(words))
}

/// libtorch's message without its C++ backtrace, of an error as of a panic.
pub fn message(text: &str) -> &str {
    let text = text.strip_prefix(UNWRAPPED).unwrap_or(text);
    let end = BACKTRACE.iter().filter_map(|start| text.find(start)).min();
    text[..end.unwrap_or(text.len())].trim_end()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    /// Bytes that no address space has (x86-64: 2^47), whatever the machine promises to its processes.
    pub const ABSURD: i64 = 1 << 50;

    /// What libtorch really says when memory is short.
    pub fn shortage() -> String {
        Tensor::f_empty([ABSURD], (Kind::Uint8, Device::Cpu)).unwrap_err().to_string()
    }

    #[test]
    fn libtorchs_own_words_for_a_shortage_are_known() {
        let text = shortage();
        assert!(is_out_of_memory(&text), "{text}");
        assert!(!message(&text).contains('\n'), "{text}");
        let other = Tensor::from(1.0).f_reshape([2]).unwrap_err().to_string();
        assert!(!is_out_of_memory(&other), "{other}");
    }

    #[test]
    fn words_of_a_gpu_are_known() {
        let cuda = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 GiB";
        assert!(is_out_of_memory(cuda));
        assert!(is_out_of_memory("CUDA error: out of memory\nCUDA kernel errors might be reported later"));
        assert!(is_out_of_memory("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"));
        assert!(!is_out_of_memory("CUDA error: an illegal memory access was encountered"));
    }

    #[test]
    fn a_panic_is_cut_to_what_was_wrong() {
        let panic = std::panic::catch_unwind(|| Tensor::from(1.0).reshape([2])).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(message(text), "shape '[2]' is invalid for input of size 1");
    }
}
