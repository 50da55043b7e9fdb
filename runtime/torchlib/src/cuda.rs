//! Loads libtorch's CUDA half and our CUDA shim on demand, if this machine has CUDA.
//!
//! [`load`] must be called before anything that asks libtorch about CUDA
//! (`tch::Cuda::is_available`, `tch::manual_seed`), because libtorch looks for its CUDA half only
//! once and remembers the result.

use crate::ffi::{
    LastWords, Library, RawGraph, RawTensor, RawUpload, checked, functions, made, raw,
};
use crate::libtorch;
use crate::torch_error::TorchError;
use libc::c_int;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use tch::Tensor;

/// The compiled `shim/cuda.cc`, built by build.rs.
static SHIM: &[u8] = include_bytes!(env!("RRUN_CUDA_SHIM"));

/// The version of libtorch, such as `2.11`, that [`SHIM`] was compiled for.
const SHIM_TORCH: &str = env!("RRUN_CUDA_SHIM_TORCH");

/// Files that show an NVIDIA driver: on a host, in a container that only gets devices, and under
/// WSL.
const SIGNS_OF_A_DRIVER: [&str; 3] = ["/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"];

/// A function that takes the index of a device.
type OnDevice = unsafe extern "C" fn(c_int) -> c_int;

/// A function that writes what it knows of a device.
pub(crate) type OfDevice<T> = unsafe extern "C" fn(c_int, *mut T) -> c_int;

functions! {
    /// The functions of `shim/cuda.cc`, `shim/products.cc` and `shim/upload.cc`.
    pub(crate) Functions {
        rr_cuda_last_words: LastWords,
        rr_cuda_device_count: unsafe extern "C" fn(*mut c_int) -> c_int,
        rr_cuda_describe: OfDevice<RawDevice>,
        rr_cuda_select: OnDevice,
        rr_cuda_memory: OfDevice<DeviceMemory>,
        rr_cuda_reset_peak: OnDevice,
        rr_cuda_empty_cache: unsafe extern "C" fn() -> c_int,
        rr_cuda_choose_attention: unsafe extern "C" fn() -> c_int,
        rr_cuda_limit: unsafe extern "C" fn(c_int, u64) -> c_int,
        rr_cuda_reserved: OfDevice<u64>,
        rr_cuda_ooms: OfDevice<u64>,
        rr_cuda_versions: unsafe extern "C" fn(*mut CudaVersions) -> c_int,
        rr_cuda_own_stream: OnDevice,
        rr_cuda_feed:
            unsafe extern "C" fn(c_int, *const RawTensor, *const RawTensor, usize) -> c_int,
        rr_cuda_fetch: unsafe extern "C" fn(RawTensor, *mut RawTensor) -> c_int,
        rr_cuda_add_linear:
            unsafe extern "C" fn(RawTensor, RawTensor, RawTensor, RawTensor, RawTensor) -> c_int,
        rr_graph_begin: OfDevice<*mut RawGraph>,
        rr_graph_end: unsafe extern "C" fn(*mut RawGraph, *mut u64) -> c_int,
        rr_graph_replay: unsafe extern "C" fn(*mut RawGraph) -> c_int,
        rr_graph_abort: unsafe extern "C" fn(*mut RawGraph),
        rr_graph_free: unsafe extern "C" fn(*mut RawGraph),
        rr_upload_pinned: unsafe extern "C" fn(i64, *mut RawTensor) -> c_int,
        rr_upload_new: unsafe extern "C" fn(c_int, c_int, *mut *mut RawUpload) -> c_int,
        rr_upload_free: unsafe extern "C" fn(*mut RawUpload) -> c_int,
        rr_upload_copy: unsafe extern "C" fn(*mut RawUpload, RawTensor, RawTensor) -> c_int,
        rr_upload_mark: unsafe extern "C" fn(*mut RawUpload, c_int) -> c_int,
        rr_upload_wait: unsafe extern "C" fn(*mut RawUpload, c_int) -> c_int,
    }
}

/// A handle that proves that libtorch's CUDA half is loaded.
#[derive(Clone, Copy)]
pub struct Cuda(&'static Functions);

/// The driver's description of a device: `RrDevice` in `shim/cuda.cc`.
#[repr(C)]
pub(crate) struct RawDevice {
    name: [u8; 256],
    uuid: [u8; 16],
    pci_domain: i32,
    pci_bus: i32,
    pci_device: i32,
    major: i32,
    minor: i32,
    total_bytes: u64,
}

/// Versions of the CUDA libraries, in their own numbering: `RrVersions` in `shim/cuda.cc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CudaVersions {
    /// Version of CUDA's runtime: 13000 means 13.0.
    pub runtime: i32,
    /// The newest CUDA version that the driver supports.
    pub driver: i32,
}

/// Properties of one CUDA device, as reported by the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Product name, such as "NVIDIA H200".
    pub name: String,
    /// The UUID as nvidia-smi prints it: `GPU-` and 32 hexadecimal digits in groups. It is the same
    /// in every process.
    pub uuid: String,
    /// PCI address `domain:bus:device` as in `/sys/bus/pci/devices`, with function 0.
    pub pci: String,
    /// Compute capability, major and minor number together: 90 for an H200.
    pub compute_capability: u32,
    /// Total memory of the device, in bytes.
    pub total_bytes: u64,
}

/// Memory usage of one CUDA device: `RrMemory` in `shim/cuda.cc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DeviceMemory {
    /// Memory that is currently free for all processes, in bytes.
    pub free_bytes: u64,
    /// Total memory, in bytes.
    pub total_bytes: u64,
    /// Memory in tensors of this process, in bytes.
    pub allocated_bytes: u64,
    /// Peak of the memory in tensors of this process since the start or the last
    /// [`Cuda::reset_peak`], in bytes.
    pub allocated_peak_bytes: u64,
    /// Peak of the memory that libtorch's allocator has taken from the device, in bytes.
    pub reserved_peak_bytes: u64,
}

/// The cached result of [`load`].
static LOADED: OnceLock<Result<Cuda, TorchError>> = OnceLock::new();

/// Returns CUDA if [`load`] has loaded it.
pub(crate) fn loaded() -> Option<&'static Cuda> {
    LOADED.get()?.as_ref().ok()
}

/// Loads CUDA once per process; later calls return the cached result.
pub fn load() -> Result<Cuda, TorchError> {
    LOADED.get_or_init(load_now).clone()
}

fn load_now() -> Result<Cuda, TorchError> {
    let mut signs = SIGNS_OF_A_DRIVER.iter();
    if !signs.any(|sign| Path::new(sign).exists()) {
        let none = "no NVIDIA driver: /proc/driver/nvidia is missing";
        return Err(TorchError::new(none));
    }
    let no_driver = |err| TorchError::new(format!("no NVIDIA driver: {err}"));
    Library::open("libcuda.so.1", false).map_err(no_driver)?;
    let cuda = load_libraries()?;
    cuda.device_count()?;
    cuda.choose_attention()?;
    Ok(cuda)
}

/// Extends dlopen's error about a missing library with advice; other errors stay unchanged.
fn of_library(err: TorchError) -> TorchError {
    let text = err.to_string();
    let Some((library, _)) = text.split_once(": cannot open shared object file") else {
        return err;
    };
    let name = library.rsplit('/').next().unwrap_or(library);
    TorchError::new(format!(
        "{name} is missing: install torch again, or run ./setup.sh again, on this machine"
    ))
}

fn load_libraries() -> Result<Cuda, TorchError> {
    let library = libtorch::folder()?.join("libtorch_cuda.so");
    // Loaded globally, so that the shim finds libtorch's symbols. libtorch's own run path finds the
    // NVIDIA libraries.
    Library::open(&library.to_string_lossy(), true).map_err(of_library)?;
    Ok(Cuda(Box::leak(Box::new(Functions::bind(load_shim()?)?))))
}

/// Loads the CUDA shim for the libtorch of this process.
///
/// The program contains the shim for the libtorch that it was built with. A package may have others
/// beside the program, because libtorch's classes differ between its versions.
fn load_shim() -> Result<Library, TorchError> {
    let other = libtorch::minor().filter(|found| found.to_string() != SHIM_TORCH);
    let Some(found) = other else {
        return Library::open_image(SHIM).map_err(of_library);
    };
    let program = std::env::current_exe().unwrap_or_default();
    let name = format!("lib/librrun_cuda_{}_{}.so", found.0, found.1);
    let shim = program.with_file_name(name);
    if !shim.is_file() {
        return Err(TorchError::new(format!(
            "torch is {found}, but this program can use CUDA only with {SHIM_TORCH}"
        )));
    }
    Library::open(&shim.to_string_lossy(), false).map_err(of_library)
}

impl Cuda {
    pub(crate) fn functions(self) -> &'static Functions {
        self.0
    }

    pub(crate) fn check(self, status: c_int) -> Result<(), TorchError> {
        checked(status, self.0.rr_cuda_last_words)
    }

    fn on(self, function: OnDevice, index: usize) -> Result<(), TorchError> {
        let index = number(index)?;
        // SAFETY: the function is one of our shim; an invalid index throws an exception.
        self.check(unsafe { function(index) })
    }

    pub(crate) fn of<T>(self, function: OfDevice<T>, index: usize) -> Result<T, TorchError> {
        let (index, mut out) = (number(index)?, MaybeUninit::uninit());
        // SAFETY: the function is one of our shim, where the type of `out` has the same layout;
        // `out` outlives the call, and an invalid index throws an exception.
        self.check(unsafe { function(index, out.as_mut_ptr()) })?;
        // SAFETY: the shim writes all of it before it returns success.
        Ok(unsafe { out.assume_init() })
    }

    /// Restricts attention to its flash, memory-efficient and plain kernels, in the whole process.
    ///
    /// libtorch 2.11 prefers cuDNN's kernel for bfloat16 on Hopper and Blackwell. That kernel
    /// builds a plan for every new shape, and its result for a query without visible keys is
    /// undocumented. The other kernels return zeros: the memory-efficient kernel divides by one if
    /// the sum of weights is zero (`mem_eff_attention/epilogue/epilogue_rescale_output.h`), the
    /// plain one uses `_safe_softmax`, and flash attention takes no mask, so that every query sees
    /// a key.
    fn choose_attention(self) -> Result<(), TorchError> {
        // SAFETY: this sets a flag of libtorch's global context, which is read when an attention
        // kernel is chosen.
        self.check(unsafe { (self.0.rr_cuda_choose_attention)() })
    }

    /// Returns the number of devices that this process may use (`CUDA_VISIBLE_DEVICES`), at least
    /// one.
    pub fn device_count(&self) -> Result<usize, TorchError> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        self.check(unsafe { (self.0.rr_cuda_device_count)(&mut count) })?;
        Ok(count.try_into().unwrap_or(0))
    }

    /// Returns the driver's description of device `index` without allocating memory on it.
    pub fn device(&self, index: usize) -> Result<DeviceFacts, TorchError> {
        Ok(facts(&self.of(self.0.rr_cuda_describe, index)?))
    }

    /// Makes `index` this thread's device. It must be called before the first tensor is created;
    /// otherwise a context of some 200 MB remains on device 0.
    pub fn select(&self, index: usize) -> Result<(), TorchError> {
        self.on(self.0.rr_cuda_select, index)
    }

    /// Returns the memory usage of device `index`.
    pub fn memory(&self, index: usize) -> Result<DeviceMemory, TorchError> {
        self.of(self.0.rr_cuda_memory, index)
    }

    /// Resets the peaks in [`memory`](Self::memory).
    pub fn reset_peak(&self, index: usize) -> Result<(), TorchError> {
        self.on(self.0.rr_cuda_reset_peak, index)
    }

    /// Returns unused cached memory to the device, for example after an out-of-memory error.
    pub fn empty_cache(&self) -> Result<(), TorchError> {
        // SAFETY: libtorch's allocator takes its own lock.
        self.check(unsafe { (self.0.rr_cuda_empty_cache)() })
    }

    /// Limits libtorch to `bytes` of memory on device `index`; allocations beyond that fail as out
    /// of memory. CUDA's own context, about half a gibibyte, and the memory of other libraries are
    /// not counted.
    pub fn limit(&self, index: usize, bytes: u64) -> Result<(), TorchError> {
        let index = number(index)?;
        // SAFETY: an invalid index or an invalid fraction of the memory throws an exception.
        self.check(unsafe { (self.0.rr_cuda_limit)(index, bytes) })
    }

    /// Returns how much memory of device `index` libtorch has taken, in tensors or in its cache,
    /// without calling CUDA.
    pub fn reserved(&self, index: usize) -> Result<u64, TorchError> {
        self.of(self.0.rr_cuda_reserved, index)
    }

    /// Returns how often libtorch's allocator had too little memory on device `index` since the
    /// start.
    pub fn ooms(&self, index: usize) -> Result<u64, TorchError> {
        self.of(self.0.rr_cuda_ooms, index)
    }

    /// Gives this thread a stream of its own on device `index`, which starts after all work that
    /// was launched before; later calls have no effect.
    pub fn own_stream(&self, index: usize) -> Result<(), TorchError> {
        self.on(self.0.rr_cuda_own_stream, index)
    }

    /// Copies each host tensor of `from` into the corresponding device tensor of `to`, through
    /// pinned memory, ordered after this thread's earlier work and before its later work. Does not
    /// wait.
    ///
    /// # Panics
    /// Panics if the two slices differ in length.
    pub fn feed(&self, index: usize, to: &[&Tensor], from: &[&Tensor]) -> Result<(), TorchError> {
        assert_eq!(to.len(), from.len(), "each tensor is copied into one");
        let index = number(index)?;
        let raws = |all: &[&Tensor]| all.iter().map(|one| raw(one)).collect::<Vec<_>>();
        let (to, from) = (raws(to), raws(from));
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, and all of them outlive the call; both
        // lists have the same length. Shapes that do not match throw an exception.
        self.check(unsafe { (self.0.rr_cuda_feed)(index, to.as_ptr(), from.as_ptr(), to.len()) })
    }

    /// Returns a copy of a device tensor in pinned host memory. Waits for this thread's earlier
    /// work on the device.
    pub fn fetch(&self, from: &Tensor) -> Result<Tensor, TorchError> {
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, which outlives the call.
        let fetch = |out: &mut RawTensor| unsafe { (self.0.rr_cuda_fetch)(raw(from), out) };
        // SAFETY: the shim writes a new `at::Tensor*` for this caller alone.
        unsafe { made(fetch, |status| self.check(status)) }
    }

    /// Computes out = sum + x·weightᵀ + bias in one launch; `out` may be `sum`. See
    /// [`add_linear`](crate::operators::add_linear).
    pub(crate) fn add_linear(
        &self,
        [out, sum, x, weight]: [&Tensor; 4],
        bias: Option<&Tensor>,
    ) -> Result<(), TorchError> {
        let bias = bias.map_or(ptr::null_mut(), raw);
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, and all of them outlive the call. The
        // call launches work in stream order, and libtorch's allocator does not give their memory
        // to other work on this stream before that work is done. Shapes, types and devices that do
        // not match throw an exception.
        self.check(unsafe {
            (self.0.rr_cuda_add_linear)(raw(out), raw(sum), raw(x), raw(weight), bias)
        })
    }

    /// Returns the versions of the loaded libraries.
    pub fn versions(&self) -> Result<CudaVersions, TorchError> {
        let mut out = CudaVersions::default();
        // SAFETY: `out` has the layout of `RrVersions` and outlives the call.
        self.check(unsafe { (self.0.rr_cuda_versions)(&mut out) })?;
        Ok(out)
    }
}

pub(crate) fn number<T: TryFrom<usize>>(value: usize) -> Result<T, TorchError> {
    let what = "is beyond every number of devices, slots and bytes";
    T::try_from(value).map_err(|_| TorchError::new(format!("{value} {what}")))
}

fn facts(raw: &RawDevice) -> DeviceFacts {
    let name = raw.name.split(|byte| *byte == 0).next();
    let hex: String = raw.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    DeviceFacts {
        name: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
        uuid: format!("GPU-{}", parts.join("-")),
        pci: format!(
            "{:04x}:{:02x}:{:02x}",
            raw.pci_domain, raw.pci_bus, raw.pci_device
        ),
        compute_capability: (raw.major * 10 + raw.minor).try_into().unwrap_or(0),
        total_bytes: raw.total_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_libtorch() {
        assert!(tch::Tensor::from(1.0).double_value(&[]) == 1.0);
        let folder = libtorch::folder().unwrap();
        assert!(folder.join("libc10.so").exists());
        assert!(libtorch::minor().is_none_or(|found| found.to_string() == SHIM_TORCH));
    }

    #[test]
    fn missing_library_says_what_to_do() {
        let explained = |reason: &str| of_library(TorchError::new(reason)).to_string();
        assert_eq!(
            explained("libcusparse.so.12: cannot open shared object file: No such file"),
            "libcusparse.so.12 is missing: install torch again, or run ./setup.sh again, on this \
             machine"
        );
        assert_eq!(
            explained("x.so: undefined symbol: f"),
            "x.so: undefined symbol: f"
        );
    }

    #[test]
    fn uuid_reads_as_nvidia_smi_prints_it() {
        let raw = RawDevice {
            name: std::array::from_fn(|i| *b"NVIDIA H200\0".get(i).unwrap_or(&7)),
            uuid: std::array::from_fn(|i| i as u8 * 16 + 1),
            pci_domain: 0,
            pci_bus: 0x9a,
            pci_device: 2,
            major: 9,
            minor: 0,
            total_bytes: 7,
        };
        let facts = facts(&raw);
        assert_eq!(facts.uuid, "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
        assert_eq!(
            (facts.name.as_str(), facts.pci.as_str()),
            ("NVIDIA H200", "0000:9a:02")
        );
        assert_eq!(facts.compute_capability, 90);
    }

    #[test]
    fn machine_without_a_driver_gets_a_reason() {
        if SIGNS_OF_A_DRIVER
            .iter()
            .any(|sign| Path::new(sign).exists())
        {
            return;
        }
        let Err(none) = load() else { panic!("loaded") };
        assert_eq!(
            none.to_string(),
            "no NVIDIA driver: /proc/driver/nvidia is missing"
        );
    }

    #[test]
    #[ignore = "maps more than 1 GB of libraries into this process; needs the full install, but no GPU"]
    fn embedded_shim_loads_and_binds() {
        let cuda = load_libraries().unwrap();
        match cuda.device_count() {
            Ok(count) => assert!(count > 0),
            Err(err) => assert!(err.to_string().contains("NVIDIA driver"), "{err}"),
        }
    }
}
