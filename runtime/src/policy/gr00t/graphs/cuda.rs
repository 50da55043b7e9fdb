//! Graphs of CUDA.

use std::rc::Rc;

use tch::{Device, Tensor};

use super::{Engine, Graph};
use crate::policy::gr00t::model::Batch;
use c10d::cuda::{Cuda, CudaGraph};

/// Captures on a device. Whoever makes one gives the calling thread a stream of its own on it, where its work goes from
/// then on: the default stream cannot be captured.
pub struct CudaEngine {
    cuda: Cuda,
    index: usize,
}

impl std::fmt::Debug for CudaEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaEngine").field("index", &self.index).finish_non_exhaustive()
    }
}

impl CudaEngine {
    /// For work of this thread on device `index`.
    ///
    /// # Errors
    /// In words, if there is no such device.
    pub fn new(cuda: Cuda, index: usize) -> Result<Self, String> {
        cuda.own_stream(index).map_err(|err| err.to_string())?;
        Ok(Self { cuda, index })
    }
}

impl Engine for CudaEngine {
    fn device(&self) -> Device {
        Device::Cuda(self.index)
    }

    fn capture(&self, pass: Rc<dyn Fn() -> Tensor>) -> Result<(Box<dyn Graph>, Tensor), String> {
        let (graph, out) = self.cuda.capture(self.index, || pass()).map_err(|err| err.to_string())?;
        Ok((Box::new(graph), out))
    }

    fn feed(&self, to: &Batch, from: &Batch) -> Result<(), String> {
        self.cuda.feed(self.index, &to.tensors(), &from.tensors()).map_err(|err| err.to_string())
    }

    fn trim(&self) {
        // Without it the memory is only given back later.
        self.cuda.empty_cache().ok();
    }
}

impl Graph for CudaGraph {
    fn replay(&self) -> Result<(), String> {
        CudaGraph::replay(self).map_err(|err| err.to_string())
    }

    fn bytes(&self) -> u64 {
        CudaGraph::bytes(self)
    }
}
