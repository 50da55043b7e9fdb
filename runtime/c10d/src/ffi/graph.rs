//! Bindings of the streams and captured graphs in `shim/cuda.cc`.

use crate::error::TorchError;
use crate::ffi::library::Library;
use crate::ffi::{LastWords, OnDevice, RawTensor, boxed, checked, raw};
use libc::{c_int, c_void};
use std::ptr;
use std::ptr::NonNull;
use tch::Tensor;

/// An opaque `RrGraph`.
#[repr(C)]
struct RawGraph([u8; 0]);

type Feed = unsafe extern "C" fn(c_int, *const RawTensor, *const RawTensor, usize) -> c_int;
type Fetch = unsafe extern "C" fn(RawTensor, *mut RawTensor) -> c_int;
type BeginCapture = unsafe extern "C" fn(c_int, *mut *mut RawGraph) -> c_int;
type EndCapture = unsafe extern "C" fn(*mut RawGraph, *mut u64) -> c_int;
type OnGraph = unsafe extern "C" fn(*mut RawGraph) -> c_int;
type DropGraph = unsafe extern "C" fn(*mut RawGraph);

/// The functions for streams and graphs.
#[derive(Clone, Copy)]
pub struct GraphShim {
    last_words: LastWords,
    own_stream: OnDevice,
    synchronize: OnDevice,
    feed: Feed,
    fetch: Fetch,
    begin: BeginCapture,
    end: EndCapture,
    replay: OnGraph,
    abort: DropGraph,
    free: DropGraph,
}

impl GraphShim {
    /// Looks up every function of the loaded shim.
    pub fn bind(shim: Library, last_words: LastWords) -> Result<Self, TorchError> {
        Ok(Self {
            last_words,
            own_stream: function!(shim, c"rr_cuda_own_stream" as OnDevice),
            synchronize: function!(shim, c"rr_cuda_synchronize" as OnDevice),
            feed: function!(shim, c"rr_cuda_feed" as Feed),
            fetch: function!(shim, c"rr_cuda_fetch" as Fetch),
            begin: function!(shim, c"rr_graph_begin" as BeginCapture),
            end: function!(shim, c"rr_graph_end" as EndCapture),
            replay: function!(shim, c"rr_graph_replay" as OnGraph),
            abort: function!(shim, c"rr_graph_abort" as DropGraph),
            free: function!(shim, c"rr_graph_free" as DropGraph),
        })
    }

    fn check(&self, status: c_int) -> Result<(), TorchError> {
        checked(status, self.last_words)
    }

    pub fn own_stream(&self, device: i32) -> Result<(), TorchError> {
        // SAFETY: an invalid index throws an exception.
        self.check(unsafe { (self.own_stream)(device) })
    }

    pub fn synchronize(&self, device: i32) -> Result<(), TorchError> {
        // SAFETY: an invalid index throws an exception.
        self.check(unsafe { (self.synchronize)(device) })
    }

    pub fn feed(&self, device: i32, to: &[&Tensor], from: &[&Tensor]) -> Result<(), TorchError> {
        assert_eq!(to.len(), from.len(), "each tensor is copied into one");
        let (to, from): (Vec<_>, Vec<_>) = to
            .iter()
            .zip(from)
            .map(|(to, from)| (raw(to), raw(from)))
            .unzip();
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, and all of them outlive the call; both
        // lists have the same length. Shapes that do not match throw an exception.
        self.check(unsafe { (self.feed)(device, to.as_ptr(), from.as_ptr(), to.len()) })
    }

    pub fn fetch(&self, from: &Tensor) -> Result<Tensor, TorchError> {
        let mut out = ptr::null_mut();
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, which outlives the call; `out` is
        // written before success is returned.
        self.check(unsafe { (self.fetch)(raw(from), &mut out) })?;
        // SAFETY: the shim returns a new `at::Tensor*`, which the new `Tensor` owns from here on.
        Ok(unsafe { Tensor::from_ptr(out.cast()) })
    }

    /// Captures the work that `work` launches on this thread's stream.
    pub fn capture<T>(
        self,
        device: i32,
        work: impl FnOnce() -> T,
    ) -> Result<(GraphHandle, T), TorchError> {
        let mut out = ptr::null_mut();
        // SAFETY: an invalid index throws an exception; `out` is written before success is
        // returned.
        self.check(unsafe { (self.begin)(device, &mut out) })?;
        let capture = Capture {
            shim: self,
            graph: boxed(out),
        };
        // If `work` panics, dropping `capture` ends the capture.
        let done = work();
        let mut bytes = 0;
        // SAFETY: the box lives as long as `capture`; `bytes` outlives the call.
        self.check(unsafe { (self.end)(capture.graph.as_ptr(), &mut bytes) })?;
        let graph = capture.graph;
        std::mem::forget(capture);
        Ok((
            GraphHandle {
                shim: self,
                graph,
                bytes,
            },
            done,
        ))
    }
}

/// A capture in progress on this thread.
struct Capture {
    shim: GraphShim,
    graph: NonNull<RawGraph>,
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: this value owns the box and is dropped once, on the thread that began the
        // capture.
        unsafe { (self.shim.abort)(self.graph.as_ptr()) }
    }
}

/// An owned captured graph, which belongs to one thread: replays are launched on that thread's
/// stream.
pub struct GraphHandle {
    shim: GraphShim,
    graph: NonNull<RawGraph>,
    bytes: u64,
}

impl GraphHandle {
    pub fn replay(&self) -> Result<(), TorchError> {
        // SAFETY: the box lives as long as `self`. The caller must keep the tensors alive that the
        // graph reads and writes. All of them are on the device, where access to freed memory gives
        // wrong numbers or an error, but does not affect the host.
        self.shim
            .check(unsafe { (self.shim.replay)(self.graph.as_ptr()) })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for GraphHandle {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once.
        unsafe { (self.shim.free)(self.graph.as_ptr()) }
    }
}
