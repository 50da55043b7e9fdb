//! Work that is captured once and launched as a whole.

use crate::cuda::Cuda;
use crate::ffi::{RawGraph, boxed};
use crate::torch_error::TorchError;
use std::ptr::NonNull;

impl Cuda {
    /// Captures the work that `work` launches on this thread's own stream, instead of running it.
    /// `work` must neither wait for the device nor copy from the host. If it panics, the capture
    /// ends before the panic continues.
    pub fn capture<T>(
        &self,
        index: usize,
        work: impl FnOnce() -> T,
    ) -> Result<(CudaGraph, T), TorchError> {
        let graph = boxed(self.of(self.functions().rr_graph_begin, index)?);
        let capture = Capture { cuda: *self, graph };
        // If `work` panics, dropping `capture` ends the capture.
        let done = work();
        let mut bytes = 0;
        // SAFETY: the box lives as long as `capture`; `bytes` outlives the call.
        self.check(unsafe { (self.functions().rr_graph_end)(graph.as_ptr(), &mut bytes) })?;
        std::mem::forget(capture);
        let cuda = *self;
        Ok((CudaGraph { cuda, graph, bytes }, done))
    }
}

/// A capture in progress on this thread.
struct Capture {
    cuda: Cuda,
    graph: NonNull<RawGraph>,
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: this value owns the box and is dropped once, on the thread that began the
        // capture.
        unsafe { (self.cuda.functions().rr_graph_abort)(self.graph.as_ptr()) }
    }
}

/// Captured work on a device (`at::cuda::CUDAGraph`), which belongs to the thread that captured it.
/// The tensors that it reads and writes must live as long as it is replayed.
pub struct CudaGraph {
    cuda: Cuda,
    graph: NonNull<RawGraph>,
    bytes: u64,
}

impl CudaGraph {
    /// Launches the captured work on this thread's stream. Does not wait.
    pub fn replay(&self) -> Result<(), TorchError> {
        // SAFETY: the box lives as long as `self`. The caller must keep the tensors alive that the
        // graph reads and writes. All of them are on the device, where access to freed memory gives
        // wrong numbers or an error, but does not affect the host.
        self.cuda
            .check(unsafe { (self.cuda.functions().rr_graph_replay)(self.graph.as_ptr()) })
    }

    /// Returns the device memory that it holds, in bytes: its tensors and the graph itself.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once.
        unsafe { (self.cuda.functions().rr_graph_free)(self.graph.as_ptr()) }
    }
}
