//! Memory of the GPUs, by NVIDIA's management library, which comes with the driver and is loaded only when asked.
//!
//! All `unsafe` of the node's facts is here. Signatures are those of nvml.h, CUDA 12: `nvmlInit_v2`,
//! `nvmlDeviceGetCount_v2`, `nvmlDeviceGetHandleByIndex_v2`, `nvmlDeviceGetMemoryInfo`, `nvmlShutdown`.

use std::ffi::{CStr, c_int, c_uint, c_void};

/// `NVML_SUCCESS`.
const SUCCESS: c_int = 0;

const LIBRARY: &CStr = c"libnvidia-ml.so.1";

/// Bytes of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// There in all.
    pub total: u64,
    /// In use already, by whomever.
    pub used: u64,
}

/// `nvmlMemory_t`: bytes in all, free, used.
#[repr(C)]
#[derive(Default)]
struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlDevice_t`, opaque.
type Device = *mut c_void;

/// Memory of every GPU in the order of bus addresses, which is that of [`super::Node::gpus`]; empty where the library is
/// not there or answers nothing.
pub fn memory() -> Vec<Memory> {
    Library::open().and_then(|library| library.memory()).unwrap_or_default()
}

/// The loaded library; it stays loaded.
struct Library(*mut c_void);

impl Library {
    fn open() -> Option<Self> {
        // SAFETY: the name is a C string, and the library's constructors are the driver's own, made for any process.
        let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Self(handle))
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle came from dlopen and is never closed, the name is a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }

    fn memory(&self) -> Option<Vec<Memory>> {
        let init = self.symbol(c"nvmlInit_v2")?;
        let count = self.symbol(c"nvmlDeviceGetCount_v2")?;
        let by_index = self.symbol(c"nvmlDeviceGetHandleByIndex_v2")?;
        let info = self.symbol(c"nvmlDeviceGetMemoryInfo")?;
        let shutdown = self.symbol(c"nvmlShutdown")?;
        // SAFETY: the symbols have the signatures of nvml.h, which are kept for a versioned name. `init` succeeds before
        // any other call, pointers are to locals of the right type that outlive their call, a device handle is used only
        // where its call succeeded, and `shutdown` is the last call.
        unsafe {
            let init: extern "C" fn() -> c_int = std::mem::transmute(init);
            let count: extern "C" fn(*mut c_uint) -> c_int = std::mem::transmute(count);
            let by_index: extern "C" fn(c_uint, *mut Device) -> c_int = std::mem::transmute(by_index);
            let info: extern "C" fn(Device, *mut MemoryInfo) -> c_int = std::mem::transmute(info);
            let shutdown: extern "C" fn() -> c_int = std::mem::transmute(shutdown);
            if init() != SUCCESS {
                return None;
            }
            let mut devices: c_uint = 0;
            let counted = count(&raw mut devices) == SUCCESS;
            let one = |index: c_uint| {
                let (mut device, mut memory) = (std::ptr::null_mut(), MemoryInfo::default());
                let found = by_index(index, &raw mut device) == SUCCESS && info(device, &raw mut memory) == SUCCESS;
                found.then_some(Memory { total: memory.total, used: memory.used })
            };
            let all = counted.then(|| (0..devices).map(one).collect::<Option<Vec<_>>>()).flatten();
            shutdown();
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_has_some_memory_and_uses_no_more_than_that() {
        // No GPU, no library: nothing is known, and nothing breaks.
        assert!(memory().iter().all(|gpu| gpu.total > 0 && gpu.used <= gpu.total));
    }
}
