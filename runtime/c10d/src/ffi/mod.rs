//! Bindings of the two shims; all unsafe code of `dist` is in this file and its submodules.
//!
//! Handles own their C++ box. A call returns a status, and the error message of a failure is kept
//! in a thread-local variable. Soundness is decided here; the meaning of the calls is in `store`,
//! `group` and `cuda`.

use crate::cuda::CudaVersions;
use crate::torch_error::is_out_of_memory;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::ptr::NonNull;
use std::time::Duration;
use tch::Tensor;

/// Converts a symbol of the CUDA shim to a function pointer of the given type.
macro_rules! function {
    ($shim:ident, $name:literal as $type:ty) => {{
        let symbol = $shim.symbol($name)?;
        // SAFETY: build.rs made the library from `shim/cuda.cc`, `shim/products.cc` and
        // `shim/upload.cc`, where the function of this name has this type; function pointers and
        // data pointers have the same size on Linux.
        unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
    }};
}

mod graph;
mod product;
mod upload;

pub use graph::{GraphHandle, GraphShim};
pub use product::ProductShim;
pub use upload::{Staging, UploadHandle, UploadShim};

/// A C++ exception caught by the shim.
#[derive(Debug)]
pub struct Fault {
    pub kind: Kind,
    pub text: String,
}

impl Fault {
    /// Classifies an exception from tch, which keeps only its text and not its type.
    pub fn from_tch(text: &str) -> Self {
        let kind = if is_out_of_memory(text) {
            Kind::OutOfMemory
        } else {
            Kind::Other
        };
        Self {
            kind,
            text: text.to_owned(),
        }
    }
}

/// The type of the exception: `Status` in `shim/fault.h`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Other,
    Store,
    Network,
    OutOfMemory,
}

/// An opaque `c10::intrusive_ptr<c10d::Store>*`.
#[repr(C)]
struct RawStore([u8; 0]);

/// An opaque `c10::intrusive_ptr<c10d::Backend>*`.
#[repr(C)]
struct RawGroup([u8; 0]);

/// An opaque `at::Tensor*`.
pub(crate) type RawTensor = *mut c_void;

type Take = extern "C" fn(*mut c_void, *const u8, usize);

unsafe extern "C" {
    fn rr_last_words() -> *const c_char;
    fn rr_seed_cpu(seed: u64);
    fn rr_store_connect(
        host: *const c_char,
        port: u16,
        world: usize,
        serve: bool,
        limit_ms: i64,
        out: *mut *mut RawStore,
    ) -> c_int;
    fn rr_store_port(store: *mut RawStore) -> u16;
    fn rr_store_prefix(
        inner: *mut RawStore,
        prefix: *const u8,
        len: usize,
        out: *mut *mut RawStore,
    ) -> c_int;
    fn rr_store_share(store: *mut RawStore) -> *mut RawStore;
    fn rr_store_free(store: *mut RawStore);
    fn rr_store_set(
        store: *mut RawStore,
        key: *const u8,
        len: usize,
        value: *const u8,
        size: usize,
    ) -> c_int;
    fn rr_store_get(
        s: *mut RawStore,
        key: *const u8,
        len: usize,
        ms: i64,
        to: *mut c_void,
        take: Take,
    ) -> c_int;
    fn rr_store_compare_set(
        store: *mut RawStore,
        key: *const u8,
        len: usize,
        expected: *const u8,
        expected_size: usize,
        desired: *const u8,
        desired_size: usize,
        to: *mut c_void,
        take: Take,
    ) -> c_int;
    fn rr_store_add(
        store: *mut RawStore,
        key: *const u8,
        len: usize,
        delta: i64,
        sum: *mut i64,
    ) -> c_int;
    fn rr_store_check(store: *mut RawStore, key: *const u8, len: usize, exists: *mut bool)
    -> c_int;
    fn rr_store_wait(store: *mut RawStore, key: *const u8, len: usize, limit_ms: i64) -> c_int;
    fn rr_store_delete(
        store: *mut RawStore,
        key: *const u8,
        len: usize,
        existed: *mut bool,
    ) -> c_int;
    fn rr_gloo_new(
        store: *mut RawStore,
        rank: c_int,
        world: c_int,
        limit_ms: i64,
        out: *mut *mut RawGroup,
    ) -> c_int;
    fn rr_group_share(group: *mut RawGroup) -> *mut RawGroup;
    fn rr_group_free(group: *mut RawGroup);
    fn rr_group_all_reduce(
        group: *mut RawGroup,
        tensor: RawTensor,
        operation: c_int,
        limit_ms: i64,
    ) -> c_int;
    fn rr_group_broadcast(
        group: *mut RawGroup,
        tensor: RawTensor,
        root: c_int,
        limit_ms: i64,
    ) -> c_int;
    fn rr_group_all_gather(
        group: *mut RawGroup,
        all: RawTensor,
        mine: RawTensor,
        limit_ms: i64,
    ) -> c_int;
    fn rr_group_barrier(group: *mut RawGroup, limit_ms: i64) -> c_int;
    fn rr_group_abort(group: *mut RawGroup) -> c_int;
    fn rr_group_shutdown(group: *mut RawGroup) -> c_int;
}

pub(crate) fn check(status: c_int) -> Result<(), Fault> {
    checked(status, rr_last_words)
}

fn checked(status: c_int, last_words: LastWords) -> Result<(), Fault> {
    let kind = match status {
        0 => return Ok(()),
        2 => Kind::Store,
        3 => Kind::Network,
        4 => Kind::OutOfMemory,
        _ => Kind::Other,
    };
    // SAFETY: the shim returns `std::string::c_str` of a thread-local variable, which does not
    // change until the next failure on this thread; the text is copied before that.
    let text = unsafe { CStr::from_ptr(last_words()) }
        .to_string_lossy()
        .into_owned();
    Err(Fault { kind, text })
}

/// Converts a wait to milliseconds, at least one, because c10d takes zero for an infinite wait.
fn millis(limit: Duration) -> i64 {
    i64::try_from(limit.as_millis())
        .unwrap_or(i64::MAX)
        .clamp(1, MILLIS_PER_YEAR)
}

/// Upper limit of waits: c10d adds them to the clock in nanoseconds of 64 bits, and a year is far
/// below their overflow.
const MILLIS_PER_YEAR: i64 = 365 * 24 * 3600 * 1000;

fn c_string(text: &str) -> Result<CString, Fault> {
    CString::new(text).map_err(|_| Fault {
        kind: Kind::Other,
        text: format!("`{text:?}` holds a zero byte"),
    })
}

/// An owned `c10d::Store`; clones share it.
pub struct StoreHandle(NonNull<RawStore>);

// SAFETY: c10d counts references atomically, and TCPStore and PrefixStore guard each operation with
// a mutex (`TCPStore::activeOpLock_`, torch 2.11).
unsafe impl Send for StoreHandle {}
// SAFETY: as above.
unsafe impl Sync for StoreHandle {}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once.
        unsafe { rr_store_free(self.0.as_ptr()) }
    }
}

impl Clone for StoreHandle {
    fn clone(&self) -> Self {
        // SAFETY: the box lives as long as `self`; the copy is a new box and never null (`new`
        // throws instead).
        Self(unsafe { NonNull::new_unchecked(rr_store_share(self.0.as_ptr())) })
    }
}

impl StoreHandle {
    pub fn connect(
        host: &str,
        port: u16,
        world: usize,
        serve: bool,
        limit: Duration,
    ) -> Result<Self, Fault> {
        let host = c_string(host)?;
        let mut out = ptr::null_mut();
        // SAFETY: `host` is terminated by a zero byte and outlives the call; `out` is written
        // before success is returned.
        check(unsafe {
            rr_store_connect(host.as_ptr(), port, world, serve, millis(limit), &mut out)
        })?;
        Ok(Self(boxed(out)))
    }

    pub fn port(&self) -> u16 {
        // SAFETY: the box lives as long as `self`.
        unsafe { rr_store_port(self.0.as_ptr()) }
    }

    pub fn prefix(&self, prefix: &str) -> Result<Self, Fault> {
        let mut out = ptr::null_mut();
        // SAFETY: pointer and length belong to one `&str`; the new store holds its own reference to
        // this one.
        check(unsafe {
            rr_store_prefix(self.0.as_ptr(), prefix.as_ptr(), prefix.len(), &mut out)
        })?;
        Ok(Self(boxed(out)))
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Fault> {
        // SAFETY: pointers and lengths belong to two slices, which are copied during the call.
        check(unsafe {
            rr_store_set(
                self.0.as_ptr(),
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
            )
        })
    }

    pub fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>, Fault> {
        let mut value = Vec::<u8>::new();
        let taker = (&raw mut value).cast();
        // SAFETY: `append` is called at most once, during this call, with `taker` pointing to the
        // live `value`.
        check(unsafe {
            rr_store_get(
                self.0.as_ptr(),
                key.as_ptr(),
                key.len(),
                millis(limit),
                taker,
                append,
            )
        })?;
        Ok(value)
    }

    pub fn compare_set(
        &self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let mut value = Vec::<u8>::new();
        let taker = (&raw mut value).cast();
        // SAFETY: pointers and lengths belong to three slices, which are copied during the call;
        // `append` as in `get`.
        check(unsafe {
            rr_store_compare_set(
                self.0.as_ptr(),
                key.as_ptr(),
                key.len(),
                expected.as_ptr(),
                expected.len(),
                desired.as_ptr(),
                desired.len(),
                taker,
                append,
            )
        })?;
        Ok(value)
    }

    pub fn add(&self, key: &str, delta: i64) -> Result<i64, Fault> {
        let mut sum = 0;
        // SAFETY: the key is a slice, and `sum` outlives the call.
        check(unsafe { rr_store_add(self.0.as_ptr(), key.as_ptr(), key.len(), delta, &mut sum) })?;
        Ok(sum)
    }

    pub fn check(&self, key: &str) -> Result<bool, Fault> {
        let mut exists = false;
        // SAFETY: the key is a slice, and `exists` outlives the call and receives a C++ bool.
        check(unsafe { rr_store_check(self.0.as_ptr(), key.as_ptr(), key.len(), &mut exists) })?;
        Ok(exists)
    }

    pub fn wait(&self, key: &str, limit: Duration) -> Result<(), Fault> {
        // SAFETY: the key is a slice.
        check(unsafe { rr_store_wait(self.0.as_ptr(), key.as_ptr(), key.len(), millis(limit)) })
    }

    pub fn delete(&self, key: &str) -> Result<bool, Fault> {
        let mut existed = false;
        // SAFETY: the key is a slice, and `existed` outlives the call and receives a C++ bool.
        check(unsafe { rr_store_delete(self.0.as_ptr(), key.as_ptr(), key.len(), &mut existed) })?;
        Ok(existed)
    }
}

/// The callback that receives a value from the store.
extern "C" fn append(taker: *mut c_void, value: *const u8, size: usize) {
    if size == 0 {
        return; // the data pointer of an empty vector may be null
    }
    // SAFETY: `taker` is the vector of `StoreHandle::get` or `compare_set`, which nothing else
    // borrows during that call; `value` points to `size` bytes of a `std::vector` that lives until
    // this returns.
    unsafe { (*taker.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(value, size)) }
}

fn boxed<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).expect("the shim writes a box before it returns success")
}

/// An owned `c10d::Backend`; clones share it.
pub struct GroupHandle(NonNull<RawGroup>);

// SAFETY: c10d counts references atomically, and Python also calls backends from any thread. The
// caller must issue the collectives in the same order on every rank, but memory safety does not
// depend on it.
unsafe impl Send for GroupHandle {}
// SAFETY: as above.
unsafe impl Sync for GroupHandle {}

impl Drop for GroupHandle {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once.
        unsafe { rr_group_free(self.0.as_ptr()) }
    }
}

impl Clone for GroupHandle {
    fn clone(&self) -> Self {
        // SAFETY: the box lives as long as `self`; the copy is a new box and never null (`new`
        // throws instead).
        Self(unsafe { NonNull::new_unchecked(rr_group_share(self.0.as_ptr())) })
    }
}

impl GroupHandle {
    pub fn gloo(
        store: &StoreHandle,
        rank: i32,
        world: i32,
        limit: Duration,
    ) -> Result<Self, Fault> {
        let mut out = ptr::null_mut();
        // SAFETY: the store's box outlives the call, and the group holds its own reference to the
        // store.
        check(unsafe { rr_gloo_new(store.0.as_ptr(), rank, world, millis(limit), &mut out) })?;
        Ok(Self(boxed(out)))
    }

    pub fn all_reduce(
        &self,
        tensor: &Tensor,
        operation: i32,
        limit: Duration,
    ) -> Result<(), Fault> {
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`; the shim copies the reference that it
        // needs.
        check(unsafe {
            rr_group_all_reduce(self.0.as_ptr(), raw(tensor), operation, millis(limit))
        })
    }

    pub fn broadcast(&self, tensor: &Tensor, root: i32, limit: Duration) -> Result<(), Fault> {
        // SAFETY: as in `all_reduce`.
        check(unsafe { rr_group_broadcast(self.0.as_ptr(), raw(tensor), root, millis(limit)) })
    }

    pub fn all_gather(&self, all: &Tensor, mine: &Tensor, limit: Duration) -> Result<(), Fault> {
        // SAFETY: as in `all_reduce`; c10d itself checks that the sizes match.
        check(unsafe { rr_group_all_gather(self.0.as_ptr(), raw(all), raw(mine), millis(limit)) })
    }

    pub fn barrier(&self, limit: Duration) -> Result<(), Fault> {
        // SAFETY: the box lives as long as `self`.
        check(unsafe { rr_group_barrier(self.0.as_ptr(), millis(limit)) })
    }

    pub fn abort(&self) -> Result<(), Fault> {
        // SAFETY: the box lives as long as `self`; c10d allows this call during a running
        // collective.
        check(unsafe { rr_group_abort(self.0.as_ptr()) })
    }

    pub fn shutdown(&self) -> Result<(), Fault> {
        // SAFETY: the box lives as long as `self`.
        check(unsafe { rr_group_shutdown(self.0.as_ptr()) })
    }
}

/// Lets random numbers on the CPU begin anew, as `torch.manual_seed` does, and leaves CUDA's alone.
pub fn seed_cpu(seed: u64) {
    // SAFETY: has no condition; libtorch's generator has its own lock.
    unsafe { rr_seed_cpu(seed) }
}

pub(crate) fn raw(tensor: &Tensor) -> RawTensor {
    tensor.as_ptr().cast_mut().cast()
}

/// The driver's description of a device: `RrDevice` in `shim/cuda.cc`.
#[repr(C)]
pub struct RawDevice {
    pub name: [u8; 256],
    pub uuid: [u8; 16],
    pub pci_domain: i32,
    pub pci_bus: i32,
    pub pci_device: i32,
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

/// A library that stays loaded until the process ends.
#[derive(Clone, Copy)]
pub struct Library(NonNull<c_void>);

// SAFETY: a handle from dlopen is valid on every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads `path`; with `global`, libraries that are loaded later can use its symbols.
    pub fn open(path: &str, global: bool) -> Result<Self, String> {
        let path = c_string(path).map_err(|fault| fault.text)?;
        let scope = if global {
            libc::RTLD_GLOBAL
        } else {
            libc::RTLD_LOCAL
        };
        // SAFETY: the path is terminated by a zero byte. The libraries named by `cuda.rs` (the
        // driver, libtorch's own, our shim) run only their usual initializers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: after a failed dlopen, dlerror returns a string of this thread that lives
            // until the next call to dlerror.
            unsafe { CStr::from_ptr(libc::dlerror()) }
                .to_string_lossy()
                .into_owned()
        })
    }

    /// Loads a library from memory, given its bytes `image`, because there may be no writable
    /// folder.
    pub fn open_image(image: &[u8]) -> Result<Self, String> {
        let file = memory_file(image)
            .map_err(|err| format!("cannot keep the CUDA shim in memory: {err}"))?;
        Self::open(&format!("/proc/self/fd/{}", file.as_raw_fd()), false)
    }

    fn symbol(self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the library is never closed, and the name is terminated by a zero byte.
        let symbol = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        if symbol.is_null() {
            Err(format!(
                "{} is missing in the CUDA shim",
                name.to_string_lossy()
            ))
        } else {
            Ok(symbol)
        }
    }
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is terminated by a zero byte.
    let fd = unsafe { libc::memfd_create(c"librrun_cuda.so".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has just been opened, and nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}

type LastWords = unsafe extern "C" fn() -> *const c_char;
type DeviceCount = unsafe extern "C" fn(*mut c_int) -> c_int;
type Describe = unsafe extern "C" fn(c_int, *mut RawDevice) -> c_int;
type Memory = unsafe extern "C" fn(c_int, *mut RawMemory) -> c_int;
type OnDevice = unsafe extern "C" fn(c_int) -> c_int;
type WithoutDevice = unsafe extern "C" fn() -> c_int;
type Limit = unsafe extern "C" fn(c_int, u64) -> c_int;
type Reserved = unsafe extern "C" fn(c_int, *mut u64) -> c_int;
type Versions = unsafe extern "C" fn(*mut CudaVersions) -> c_int;
type NewNccl =
    unsafe extern "C" fn(*mut RawStore, c_int, c_int, c_int, i64, *mut *mut RawGroup) -> c_int;

/// The functions of `shim/cuda.cc`.
#[derive(Clone, Copy)]
pub struct CudaShim {
    last_words: LastWords,
    device_count: DeviceCount,
    describe: Describe,
    select: OnDevice,
    memory: Memory,
    reset_peak: OnDevice,
    empty_cache: WithoutDevice,
    choose_attention: WithoutDevice,
    limit: Limit,
    reserved: Reserved,
    versions: Versions,
    new_nccl: NewNccl,
    graphs: GraphShim,
    upload: UploadShim,
    products: ProductShim,
}

impl CudaShim {
    /// Looks up every function of the loaded shim.
    pub fn bind(shim: Library) -> Result<Self, String> {
        let last_words = function!(shim, c"rr_cuda_last_words" as LastWords);
        Ok(Self {
            last_words,
            device_count: function!(shim, c"rr_cuda_device_count" as DeviceCount),
            describe: function!(shim, c"rr_cuda_describe" as Describe),
            select: function!(shim, c"rr_cuda_select" as OnDevice),
            memory: function!(shim, c"rr_cuda_memory" as Memory),
            reset_peak: function!(shim, c"rr_cuda_reset_peak" as OnDevice),
            empty_cache: function!(shim, c"rr_cuda_empty_cache" as WithoutDevice),
            choose_attention: function!(shim, c"rr_cuda_choose_attention" as WithoutDevice),
            limit: function!(shim, c"rr_cuda_limit" as Limit),
            reserved: function!(shim, c"rr_cuda_reserved" as Reserved),
            versions: function!(shim, c"rr_cuda_versions" as Versions),
            new_nccl: function!(shim, c"rr_nccl_new" as NewNccl),
            graphs: GraphShim::bind(shim, last_words)?,
            upload: UploadShim::bind(shim, last_words)?,
            products: ProductShim::bind(shim, last_words)?,
        })
    }

    fn check(&self, status: c_int) -> Result<(), Fault> {
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

    pub fn device_count(&self) -> Result<i32, Fault> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        self.check(unsafe { (self.device_count)(&mut count) })?;
        Ok(count)
    }

    pub fn describe(&self, device: i32) -> Result<RawDevice, Fault> {
        let mut out = RawDevice {
            name: [0; 256],
            uuid: [0; 16],
            pci_domain: 0,
            pci_bus: 0,
            pci_device: 0,
            total_bytes: 0,
        };
        // SAFETY: `out` has the layout of `RrDevice` and outlives the call; an invalid index throws
        // an exception.
        self.check(unsafe { (self.describe)(device, &mut out) })?;
        Ok(out)
    }

    pub fn select(&self, device: i32) -> Result<(), Fault> {
        // SAFETY: an invalid index throws an exception.
        self.check(unsafe { (self.select)(device) })
    }

    pub fn memory(&self, device: i32) -> Result<RawMemory, Fault> {
        let mut out = RawMemory::default();
        // SAFETY: `out` has the layout of `RrMemory` and outlives the call; an invalid index throws
        // an exception.
        self.check(unsafe { (self.memory)(device, &mut out) })?;
        Ok(out)
    }

    pub fn reset_peak(&self, device: i32) -> Result<(), Fault> {
        // SAFETY: an invalid index throws an exception.
        self.check(unsafe { (self.reset_peak)(device) })
    }

    pub fn empty_cache(&self) -> Result<(), Fault> {
        // SAFETY: libtorch's allocator takes its own lock.
        self.check(unsafe { (self.empty_cache)() })
    }

    pub fn choose_attention(&self) -> Result<(), Fault> {
        // SAFETY: this sets a flag of libtorch's global context, which is read when an attention
        // kernel is chosen.
        self.check(unsafe { (self.choose_attention)() })
    }

    pub fn limit(&self, device: i32, bytes: u64) -> Result<(), Fault> {
        // SAFETY: an invalid index or an invalid fraction of the memory throws an exception.
        self.check(unsafe { (self.limit)(device, bytes) })
    }

    pub fn reserved(&self, device: i32) -> Result<u64, Fault> {
        let mut bytes = 0;
        // SAFETY: `bytes` outlives the call; an invalid index throws an exception.
        self.check(unsafe { (self.reserved)(device, &mut bytes) })?;
        Ok(bytes)
    }

    pub fn versions(&self) -> Result<CudaVersions, Fault> {
        let mut out = CudaVersions::default();
        // SAFETY: `out` has the layout of `RrVersions` and outlives the call.
        self.check(unsafe { (self.versions)(&mut out) })?;
        Ok(out)
    }

    pub fn nccl(
        &self,
        store: &StoreHandle,
        seat: [i32; 3],
        watchdog: Duration,
    ) -> Result<GroupHandle, Fault> {
        let [rank, world, device] = seat;
        let mut out = ptr::null_mut();
        // SAFETY: the store's box outlives the call, and the group holds its own reference to the
        // store.
        let status = unsafe {
            (self.new_nccl)(
                store.0.as_ptr(),
                rank,
                world,
                device,
                millis(watchdog),
                &mut out,
            )
        };
        self.check(status)?;
        Ok(GroupHandle(boxed(out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    #[test]
    fn a_seed_gives_the_numbers_that_it_gives_in_python() {
        let noise = |seed: fn()| {
            seed();
            Tensor::randn([7], (Kind::Float, Device::Cpu))
        };
        assert_eq!(noise(|| seed_cpu(11)), noise(|| tch::manual_seed(11)));
        assert_ne!(noise(|| seed_cpu(11)), noise(|| seed_cpu(12)));
    }
}
