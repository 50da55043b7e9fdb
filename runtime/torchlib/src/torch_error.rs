//! Errors of libtorch, CUDA and NCCL, classified by their text: tch keeps only the text of an
//! exception, and most of its operators panic with it.

use std::any::Any;
use std::cell::Cell;
use std::panic::{
    AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind, set_hook, take_hook,
};
use std::sync::Once;

use tch::TchError;

/// Texts of out-of-memory errors in torch 2.11: c10/cuda/CUDACachingAllocator.cpp and the CUDA
/// driver ("out of memory"), c10/core/impl/alloc_cpu.cpp ("can't allocate memory"), and cuBLAS and
/// cuDNN, which create their handles and workspaces at their first use.
const OUT_OF_MEMORY: [&str; 4] = [
    "out of memory",
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
];

/// Prefixes of a CUDA error in libtorch: c10/cuda/CUDAException.cpp and c10/cuda/driver_api.h,
/// torch 2.11.
const OF_CUDA: [&str; 2] = ["CUDA error: ", "CUDA driver error: "];

/// Errors after which a process can no longer use a GPU: every later call returns the same error,
/// and only a new process gets a context. Texts of `cudaGetErrorString` of CUDA 13.0, with the
/// numbers of `cudaError_t`. NVIDIA says of most that "the process must be terminated and
/// relaunched" (CUDA Runtime API, Data types, `cudaError`).
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

/// Errors with the same effect that no kernel can cause: the hardware or something outside of this
/// process failed.
const FAILED_HARDWARE: [&str; 5] = [
    "uncorrectable ECC error encountered", // 214 cudaErrorECCUncorrectable
    "uncorrectable NVLink error detected during the execution", // 220 cudaErrorNvlinkUncorrectable
    "Invalid access of peer GPU memory over nvlink", // 226 cudaErrorContained
    "the MPS client has been terminated by the server", // 810 cudaErrorMpsClientTerminated
    "an async error has occured in external entity outside of CUDA", // 911 cudaErrorExternalDevice
];

/// Prefix of tch's panics.
const UNWRAPPED: &str = "called `Result::unwrap()` on an `Err` value: Torch(\"";

/// End of the part of libtorch's message that says how much GPU memory is free; the part about its
/// users follows.
const FREE: &str = " is free";

/// Prefix of tch's errors.
const INTERNAL: &str = "Internal torch error: ";

/// Beginnings of the C++ backtrace, in a message and in one that was printed with escaped line
/// ends.
const BACKTRACE: [&str; 4] = [
    "\nException raised from",
    "\\nException raised from",
    "\nframe #0",
    "\\nframe #0",
];

/// An error of libtorch, CUDA or NCCL, or the reason why they cannot be used here. Its text says
/// what kind it is.
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

/// Returns whether the error is an out-of-memory error.
pub fn is_out_of_memory(text: &str) -> bool {
    OUT_OF_MEMORY.iter().any(|words| text.contains(words))
}

/// Returns whether the process can no longer use its GPU.
pub fn is_context_lost(text: &str) -> bool {
    cuda_says(text, &LOST_CONTEXT) || is_hardware_failure(text)
}

/// Returns whether the GPU is lost through no fault of the computation.
pub fn is_hardware_failure(text: &str) -> bool {
    cuda_says(text, &FAILED_HARDWARE)
}

fn cuda_says(text: &str, errors: &[&str]) -> bool {
    let mut said = OF_CUDA.iter().flat_map(|start| text.split(start).skip(1));
    said.any(|said| errors.iter().any(|error| said.starts_with(error)))
}

/// Returns whether a panic carries an error of libtorch: tch and our own operators cannot report
/// errors in another way.
pub fn is_panic(text: &str) -> bool {
    text.starts_with(UNWRAPPED) || text.starts_with("libtorch: ")
}

/// Returns the first line of libtorch's message; links and advice for developers follow it.
pub fn first_line(text: &str) -> &str {
    let text = message(text);
    let end = ["\n", "\\n"].iter().filter_map(|end| text.find(end)).min();
    text[..end.unwrap_or(text.len())].trim_end()
}

/// Returns libtorch's message without tch's prefix and the C++ backtrace, for errors and panics.
pub fn message(text: &str) -> &str {
    let text = text
        .strip_prefix(UNWRAPPED)
        .or_else(|| text.strip_prefix(INTERNAL))
        .unwrap_or(text);
    let end = BACKTRACE.iter().filter_map(|start| text.find(start)).min();
    text[..end.unwrap_or(text.len())].trim_end()
}

/// Returns the part of an out-of-memory message that says what was requested and what is free,
/// without the users of the rest and without advice. Other messages are returned as they are.
pub fn shortage(text: &str) -> &str {
    let text = message(text);
    text.find(FREE).map_or(text, |at| &text[..at + FREE.len()])
}

thread_local! {
    /// Number of nested [`caught`] calls in this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Runs `body` and catches a panic. A panic with libtorch's text is treated as an error and not
/// printed; any other panic is a bug and is printed.
///
/// # Errors
/// Returns the message of the panic.
pub fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    let text = |panic: Box<dyn Any + Send>| match words(panic.as_ref()) {
        Some(text) => message(text).to_owned(),
        None => "a panic without a message".to_owned(),
    };
    quietly(body).map_err(text)
}

/// Works like [`caught`], for the outermost use of libtorch: other panics continue as panics.
///
/// # Errors
/// Returns libtorch's message.
pub fn caught_of_libtorch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    let text = |panic: Box<dyn Any + Send>| match words(panic.as_ref()) {
        Some(text) if is_panic(text) => message(text).to_owned(),
        _ => resume_unwind(panic),
    };
    quietly(body).map_err(text)
}

/// Runs `body` and returns its result or its panic, which is not printed if it is an error of
/// libtorch.
fn quietly<T>(body: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| on_panic(panic, &usual)));
    });
    DEPTH.set(DEPTH.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    DEPTH.set(DEPTH.get() - 1);
    outcome
}

/// Prints a panic as usual, unless it is an error of libtorch that will be caught.
fn on_panic(panic: &PanicHookInfo<'_>, usual: &dyn Fn(&PanicHookInfo<'_>)) {
    let is_known = |text: &str| is_panic(text) || is_out_of_memory(text);
    if DEPTH.get() == 0 || !words(panic.payload()).is_some_and(is_known) {
        usual(panic);
    }
}

/// Returns the text of a panic.
fn words(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    /// A number of bytes larger than any address space (x86-64: 2^47), even with memory
    /// overcommitment.
    const ABSURD: i64 = 1 << 50;

    /// Returns libtorch's real message for a shortage of memory.
    fn real_shortage() -> String {
        Tensor::f_empty([ABSURD], (Kind::Uint8, Device::Cpu))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn libtorchs_own_words_for_a_shortage_are_known() {
        let text = real_shortage();
        assert!(is_out_of_memory(&text), "{text}");
        assert!(!message(&text).contains('\n'), "{text}");
        let other = Tensor::from(1.0).f_reshape([2]).unwrap_err().to_string();
        assert!(!is_out_of_memory(&other), "{other}");
    }

    #[test]
    fn words_of_a_gpu_are_known() {
        let asked = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which \
                     8.00 MiB is free";
        let cuda = format!(
            "{asked}. Including non-PyTorch memory, this process has 139.79 GiB memory in use."
        );
        assert!(is_out_of_memory(&cuda));
        assert_eq!(shortage(&cuda), asked);
        assert!(is_out_of_memory(
            "CUDA error: out of memory\nCUDA kernel errors might be reported later"
        ));
        assert!(is_out_of_memory(
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
        ));
        assert!(!is_out_of_memory(
            "CUDA error: an illegal memory access was encountered"
        ));
    }

    /// The message of an emulated GPU's driver through libtorch 2.11, as an error and as a panic of
    /// tch.
    const ECC: [&str; 2] = [
        "CUDA error: uncorrectable ECC error encountered\nSearch for `cudaErrorECCUncorrectable' in https://docs.nvidia.com",
        "called `Result::unwrap()` on an `Err` value: Torch(\"CUDA error: uncorrectable ECC error encountered\\nSearch for\")",
    ];

    #[test]
    fn a_lost_context_is_known_by_its_text() {
        ECC.iter()
            .for_each(|text| assert!(is_context_lost(text), "{text}"));
        for text in LOST_CONTEXT.into_iter().chain(FAILED_HARDWARE) {
            assert!(
                is_context_lost(&format!(
                    "libtorch: CUDA error: {text}\nCUDA kernel errors might be"
                )),
                "{text}"
            );
        }
        assert!(is_context_lost("CUDA driver error: misaligned address"));
        assert!(
            is_hardware_failure(ECC[0]) && !is_hardware_failure("CUDA error: misaligned address")
        );
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
        others
            .iter()
            .for_each(|text| assert!(!is_context_lost(text), "{text}"));
    }

    #[test]
    fn only_panics_of_libtorch_are_caught() {
        assert_eq!(
            caught_of_libtorch(|| Tensor::from(1.0).reshape([2])).unwrap_err(),
            "shape '[2]' is invalid for input of size 1"
        );
        assert_eq!(caught_of_libtorch(|| 7), Ok(7));
        let other = catch_unwind(|| caught_of_libtorch(|| panic!("{}", "no tensor".to_owned())))
            .unwrap_err();
        assert_eq!(other.downcast_ref::<String>().unwrap(), "no tensor");
    }

    #[test]
    fn the_first_line_is_the_error() {
        assert_eq!(
            ECC.map(first_line),
            ["CUDA error: uncorrectable ECC error encountered"; 2]
        );
    }

    #[test]
    fn an_error_is_cut_to_what_was_wrong() {
        let text = Tensor::from(1.0).f_reshape([2]).unwrap_err().to_string();
        assert_eq!(message(&text), "shape '[2]' is invalid for input of size 1");
    }

    #[test]
    fn a_panic_of_tch_becomes_an_error_with_libtorchs_words_alone() {
        let text = caught(|| Tensor::from(1.0).reshape([2])).unwrap_err();
        assert_eq!(text, "shape '[2]' is invalid for input of size 1");
        let text = caught(|| Tensor::empty([ABSURD], (Kind::Uint8, Device::Cpu))).unwrap_err();
        assert!(
            is_out_of_memory(&text) && !text.starts_with("called"),
            "{text}"
        );
        assert_eq!(caught(|| 7), Ok(7));
    }

    #[test]
    fn a_panic_of_ours_keeps_its_words() {
        assert_eq!(
            caught(|| -> () { panic!("a table is empty") }),
            Err("a table is empty".to_owned())
        );
        let size = 3;
        assert_eq!(
            caught(|| -> () { panic!("a table of {size}") }),
            Err("a table of 3".to_owned())
        );
    }

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
