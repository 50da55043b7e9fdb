//! What libtorch says when something fails. tch keeps only the text of an exception, so what kind it was is read there.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Memory that is not there, in the words of torch 2.11: c10/cuda/CUDACachingAllocator.cpp and the CUDA driver ("out of
/// memory"), c10/core/impl/alloc_cpu.cpp ("can't allocate memory"), cuBLAS and cuDNN, which make their handles and
/// workspaces when they are first used.
const OUT_OF_MEMORY: [&str; 4] =
    ["out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"];

/// What libtorch writes before the text of a CUDA error: c10/cuda/CUDAException.cpp and c10/cuda/driver_api.h, torch 2.11.
const OF_CUDA: [&str; 2] = ["CUDA error: ", "CUDA driver error: "];

/// Errors that end a process's use of a GPU: every later call answers the same, and only another process has a context
/// again. Texts of `cudaGetErrorString` of CUDA 13.0, by the numbers of `cudaError_t`. NVIDIA says of most that "the process
/// must be terminated and relaunched" (CUDA Runtime API, Data types, `cudaError`).
const LOST_CONTEXT: [&str; 12] = [
    "an illegal memory access was encountered", // 700 cudaErrorIllegalAddress
    "the launch timed out and was terminated",  // 702 cudaErrorLaunchTimeout
    "context is destroyed",                     // 709 cudaErrorContextIsDestroyed
    "device-side assert triggered",             // 710 cudaErrorAssert
    "hardware stack error",                     // 714 cudaErrorHardwareStackError
    "an illegal instruction was encountered",   // 715 cudaErrorIllegalInstruction
    "misaligned address",                       // 716 cudaErrorMisalignedAddress
    "operation not supported on global/shared address space", // 717 cudaErrorInvalidAddressSpace
    "invalid program counter",                  // 718 cudaErrorInvalidPc
    "unspecified launch failure",               // 719 cudaErrorLaunchFailure
    "tensor memory not completely freed",       // 721 cudaErrorTensorMemoryLeak
    "unknown error",                            // 999 cudaErrorUnknown
];

/// The same, where no kernel can be to blame: the hardware or somebody outside of this process failed.
const FAILED_HARDWARE: [&str; 5] = [
    "uncorrectable ECC error encountered", // 214 cudaErrorECCUncorrectable
    "uncorrectable NVLink error detected during the execution", // 220 cudaErrorNvlinkUncorrectable
    "Invalid access of peer GPU memory over nvlink", // 226 cudaErrorContained
    "the MPS client has been terminated by the server", // 810 cudaErrorMpsClientTerminated
    "an async error has occured in external entity outside of CUDA", // 911 cudaErrorExternalDevice
];

/// What tch's panics begin with.
const UNWRAPPED: &str = "called `Result::unwrap()` on an `Err` value: Torch(\"";

/// Where the C++ backtrace begins, in a message and in one that was printed with its line ends escaped.
const BACKTRACE: [&str; 4] = ["\nException raised from", "\\nException raised from", "\nframe #0", "\\nframe #0"];

/// Whether memory was short.
pub fn is_out_of_memory(text: &str) -> bool {
    OUT_OF_MEMORY.iter().any(|words| text.contains(words))
}

/// Whether the process can use its GPU no more.
pub fn is_context_lost(text: &str) -> bool {
    cuda_says(text, &LOST_CONTEXT) || is_hardware_failure(text)
}

/// Whether that is so, and nothing that it computed is to blame.
pub fn is_hardware_failure(text: &str) -> bool {
    cuda_says(text, &FAILED_HARDWARE)
}

fn cuda_says(text: &str, errors: &[&str]) -> bool {
    let mut said = OF_CUDA.iter().flat_map(|start| text.split(start).skip(1));
    said.any(|said| errors.iter().any(|error| said.starts_with(error)))
}

/// Whether a panic tells an error of libtorch: tch and our own operators have no other way.
pub fn is_panic(text: &str) -> bool {
    text.starts_with(UNWRAPPED) || text.starts_with("libtorch: ")
}

/// Runs what may panic with an error of libtorch, and gives its message. Other panics go on.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match panic.downcast::<String>() {
        Ok(text) if is_panic(&text) => message(&text).to_owned(),
        Ok(other) => resume_unwind(other),
        Err(other) => resume_unwind(other),
    })
}

/// The first line of libtorch's message: behind it come links and advice for developers.
pub fn first_line(text: &str) -> &str {
    let text = message(text);
    let end = ["\n", "\\n"].iter().filter_map(|end| text.find(end)).min();
    text[..end.unwrap_or(text.len())].trim_end()
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

    /// As the driver of an imitated card says it through libtorch 2.11, in a message and in a panic of tch.
    const ECC: [&str; 2] = [
        "CUDA error: uncorrectable ECC error encountered\nSearch for `cudaErrorECCUncorrectable' in https://docs.nvidia.com",
        "called `Result::unwrap()` on an `Err` value: Torch(\"CUDA error: uncorrectable ECC error encountered\\nSearch for\")",
    ];

    #[test]
    fn a_lost_context_is_known_by_its_text() {
        ECC.iter().for_each(|text| assert!(is_context_lost(text), "{text}"));
        for text in LOST_CONTEXT.into_iter().chain(FAILED_HARDWARE) {
            assert!(is_context_lost(&format!("libtorch: CUDA error: {text}\nCUDA kernel errors might be")), "{text}");
        }
        assert!(is_context_lost("CUDA driver error: misaligned address"));
        assert!(is_hardware_failure(ECC[0]) && !is_hardware_failure("CUDA error: misaligned address"));
    }

    #[test]
    fn other_errors_leave_the_context_as_it_is() {
        let others = [
            "CUDA error: out of memory",
            "CUDA error: invalid device ordinal",
            "CUDA error: too many resources requested for launch",
            "CUDA error: operation not permitted when stream is capturing",
            "CUDA error: no kernel image is available for execution on the device",
            "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`",
            "the simulator said: unknown error",
        ];
        others.iter().for_each(|text| assert!(!is_context_lost(text), "{text}"));
    }

    #[test]
    fn only_panics_of_libtorch_are_caught() {
        assert_eq!(
            caught(|| Tensor::from(1.0).reshape([2])).unwrap_err(),
            "shape '[2]' is invalid for input of size 1"
        );
        assert_eq!(caught(|| 7), Ok(7));
        let other = catch_unwind(|| caught(|| panic!("{}", "no tensor".to_owned()))).unwrap_err();
        assert_eq!(other.downcast_ref::<String>().unwrap(), "no tensor");
    }

    #[test]
    fn the_first_line_is_the_error() {
        assert_eq!(ECC.map(first_line), ["CUDA error: uncorrectable ECC error encountered"; 2]);
    }

    #[test]
    fn a_panic_is_cut_to_what_was_wrong() {
        let panic = std::panic::catch_unwind(|| Tensor::from(1.0).reshape([2])).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(message(text), "shape '[2]' is invalid for input of size 1");
    }
}
