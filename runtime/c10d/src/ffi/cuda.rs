//! Bindings of `shim/cuda.cc`: devices and their memory.

use crate::error::TorchError;
use crate::ffi::graph::GraphShim;
use crate::ffi::library::Library;
use crate::ffi::product::ProductShim;
use crate::ffi::upload::UploadShim;
use crate::ffi::{LastWords, OnDevice, checked};
use libc::{c_int, c_void};

/// The driver's description of a device: `RrDevice` in `shim/cuda.cc`.
#[repr(C)]
pub struct RawDevice {
    pub name: [u8; 256],
    pub uuid: [u8; 16],
    pub pci_domain: i32,
    pub pci_bus: i32,
    pub pci_device: i32,
    pub major: i32,
    pub minor: i32,
    pub total_bytes: u64,
}

/// The memory usage of a device: `RrMemory` in `shim/cuda.cc`.
#[repr(C)]
#[derive(Default)]
pub struct RawMemory {
    pub free_bytes: u64,
    pub total_bytes: u64,
    pub allocated_bytes: u64,
    pub allocated_peak_bytes: u64,
    pub reserved_peak_bytes: u64,
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

type DeviceCount = unsafe extern "C" fn(*mut c_int) -> c_int;
type Describe = unsafe extern "C" fn(c_int, *mut RawDevice) -> c_int;
type QueryMemory = unsafe extern "C" fn(c_int, *mut RawMemory) -> c_int;
type WithoutDevice = unsafe extern "C" fn() -> c_int;
type Limit = unsafe extern "C" fn(c_int, u64) -> c_int;
type Reserved = unsafe extern "C" fn(c_int, *mut u64) -> c_int;
type Versions = unsafe extern "C" fn(*mut CudaVersions) -> c_int;

/// The functions of `shim/cuda.cc`.
#[derive(Clone, Copy)]
pub struct CudaShim {
    last_words: LastWords,
    device_count: DeviceCount,
    describe: Describe,
    select: OnDevice,
    memory: QueryMemory,
    reset_peak: OnDevice,
    empty_cache: WithoutDevice,
    choose_attention: WithoutDevice,
    limit: Limit,
    reserved: Reserved,
    ooms: Reserved,
    versions: Versions,
    graphs: GraphShim,
    upload: UploadShim,
    products: ProductShim,
}

impl CudaShim {
    /// Looks up every function of the loaded shim.
    pub fn bind(shim: Library) -> Result<Self, TorchError> {
        let last_words = function!(shim, c"rr_cuda_last_words" as LastWords);
        Ok(Self {
            last_words,
            device_count: function!(shim, c"rr_cuda_device_count" as DeviceCount),
            describe: function!(shim, c"rr_cuda_describe" as Describe),
            select: function!(shim, c"rr_cuda_select" as OnDevice),
            memory: function!(shim, c"rr_cuda_memory" as QueryMemory),
            reset_peak: function!(shim, c"rr_cuda_reset_peak" as OnDevice),
            empty_cache: function!(shim, c"rr_cuda_empty_cache" as WithoutDevice),
            choose_attention: function!(shim, c"rr_cuda_choose_attention" as WithoutDevice),
            limit: function!(shim, c"rr_cuda_limit" as Limit),
            reserved: function!(shim, c"rr_cuda_reserved" as Reserved),
            ooms: function!(shim, c"rr_cuda_ooms" as Reserved),
            versions: function!(shim, c"rr_cuda_versions" as Versions),
            graphs: GraphShim::bind(shim, last_words)?,
            upload: UploadShim::bind(shim, last_words)?,
            products: ProductShim::bind(shim, last_words)?,
        })
    }

    fn check(&self, status: c_int) -> Result<(), TorchError> {
        checked(status, self.last_words)
    }

    pub fn graphs(&self) -> GraphShim {
        self.graphs
    }

    pub fn upload(&self) -> UploadShim {
        self.upload
    }

    pub fn products(&self) -> ProductShim {
        self.products
    }

    pub fn device_count(&self) -> Result<i32, TorchError> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        self.check(unsafe { (self.device_count)(&mut count) })?;
        Ok(count)
    }

    pub fn describe(&self, device: i32) -> Result<RawDevice, TorchError> {
        let mut out = RawDevice {
            name: [0; 256],
            uuid: [0; 16],
            pci_domain: 0,
            pci_bus: 0,
            pci_device: 0,
            major: 0,
            minor: 0,
            total_bytes: 0,
        };
        // SAFETY: `out` has the layout of `RrDevice` and outlives the call; an invalid index throws
        // an exception.
        self.check(unsafe { (self.describe)(device, &mut out) })?;
        Ok(out)
    }

    pub fn select(&self, device: i32) -> Result<(), TorchError> {
        // SAFETY: an invalid index throws an exception.
        self.check(unsafe { (self.select)(device) })
    }

    pub fn memory(&self, device: i32) -> Result<RawMemory, TorchError> {
        let mut out = RawMemory::default();
        // SAFETY: `out` has the layout of `RrMemory` and outlives the call; an invalid index throws
        // an exception.
        self.check(unsafe { (self.memory)(device, &mut out) })?;
        Ok(out)
    }

    pub fn reset_peak(&self, device: i32) -> Result<(), TorchError> {
        // SAFETY: an invalid index throws an exception.
        self.check(unsafe { (self.reset_peak)(device) })
    }

    pub fn empty_cache(&self) -> Result<(), TorchError> {
        // SAFETY: libtorch's allocator takes its own lock.
        self.check(unsafe { (self.empty_cache)() })
    }

    pub fn choose_attention(&self) -> Result<(), TorchError> {
        // SAFETY: this sets a flag of libtorch's global context, which is read when an attention
        // kernel is chosen.
        self.check(unsafe { (self.choose_attention)() })
    }

    pub fn limit(&self, device: i32, bytes: u64) -> Result<(), TorchError> {
        // SAFETY: an invalid index or an invalid fraction of the memory throws an exception.
        self.check(unsafe { (self.limit)(device, bytes) })
    }

    pub fn reserved(&self, device: i32) -> Result<u64, TorchError> {
        let mut bytes = 0;
        // SAFETY: `bytes` outlives the call; an invalid index throws an exception.
        self.check(unsafe { (self.reserved)(device, &mut bytes) })?;
        Ok(bytes)
    }

    pub fn ooms(&self, device: i32) -> Result<u64, TorchError> {
        let mut count = 0;
        // SAFETY: `count` outlives the call; an invalid index throws an exception.
        self.check(unsafe { (self.ooms)(device, &mut count) })?;
        Ok(count)
    }

    pub fn versions(&self) -> Result<CudaVersions, TorchError> {
        let mut out = CudaVersions::default();
        // SAFETY: `out` has the layout of `RrVersions` and outlives the call.
        self.check(unsafe { (self.versions)(&mut out) })?;
        Ok(out)
    }
}
