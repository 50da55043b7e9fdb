//! Captures passes as CUDA graphs.

use std::rc::Rc;

use tch::{Device, Tensor};

use crate::graphs::{CapturedPass, Engine, Graph};
use torchlib::TorchError;
use torchlib::cuda::Cuda;
use torchlib::graph::CudaGraph;

/// Captures passes on a CUDA device. Creating it gives the calling thread its own stream on the
/// device for all its later work, because the default stream cannot be captured.
pub struct CudaEngine {
    cuda: Cuda,
    index: usize,
}

impl CudaEngine {
    /// Creates an engine for this thread's work on device `index`.
    ///
    /// # Errors
    /// Returns libtorch's error if there is no such device.
    pub fn new(cuda: Cuda, index: usize) -> Result<Self, TorchError> {
        cuda.own_stream(index)?;
        Ok(Self { cuda, index })
    }
}

impl Engine for CudaEngine {
    fn device(&self) -> Device {
        Device::Cuda(self.index)
    }

    fn capture(&self, pass: Rc<dyn Fn() -> Tensor>) -> Result<CapturedPass, String> {
        let (graph, out) = said(self.cuda.capture(self.index, || pass()))?;
        Ok(CapturedPass {
            graph: Box::new(graph),
            out,
        })
    }

    fn feed(&self, to: &[Tensor], from: &[Tensor]) -> Result<(), String> {
        let [to, from] = [to, from].map(|batch| batch.iter().collect::<Vec<_>>());
        said(self.cuda.feed(self.index, &to, &from))
    }

    fn trim(&self) {
        // If this fails, the memory is returned later.
        self.cuda.empty_cache().ok();
    }
}

impl Graph for CudaGraph {
    fn replay(&self) -> Result<(), String> {
        said(CudaGraph::replay(self))
    }

    fn bytes(&self) -> u64 {
        CudaGraph::bytes(self)
    }
}

fn said<T>(result: Result<T, TorchError>) -> Result<T, String> {
    result.map_err(|err| err.to_string())
}
