//! Checkpoints in memory: jobs of a rank that use the same one share it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tch::{Device, Kind};

use crate::policy::Lifeline;
use crate::policy::batches::{Batches, Ladders};
use crate::policy::gr00t::graphs::{CudaEngine, Graphs};
use crate::policy::gr00t::model::Gr00t;
use crate::policy::gr00t::{LoadError, ModelConfig, ModelDir, Weights, layout};
use c10d::cuda;
use c10d::operators::InferenceMode;
use c10d::torch_error::{caught, shortage};

/// A network on its device, with the folder it came from.
#[derive(Debug)]
pub struct Loaded {
    /// Its captured passes, where the device can capture. Before the network, whose memory they read.
    pub graphs: RefCell<Option<Graphs>>,
    /// The network, arranged for inference.
    pub network: Rc<Gr00t>,
    /// Sizes and switches.
    pub config: ModelConfig,
    /// Its files.
    pub dir: ModelDir,
    of: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    root: PathBuf,
    vlm: Option<PathBuf>,
    kind: Kind,
}

/// The checkpoint that was used last, for the next job, and what is known of all of them.
#[derive(Debug)]
pub struct Models {
    device: Device,
    last: Option<Rc<Loaded>>,
    ladders: Ladders,
}

impl Models {
    /// None yet; they are to be loaded to `device`.
    pub fn new(device: Device) -> Self {
        Self::heard_by(device, Lifeline::alone())
    }

    /// [`Models::new`] for somebody who hears when memory is short.
    pub fn heard_by(device: Device, lifeline: Lifeline) -> Self {
        Self { device, last: None, ladders: Ladders::new(device, lifeline) }
    }

    /// How many rows of a policy of this file or folder fit into one inference.
    pub(crate) fn batches(&mut self, path: &Path) -> Batches {
        self.ladders.batches(path)
    }

    /// Where they are loaded to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The network of a model directory; loaded unless it was the last. Another one is dropped first, so that two do not
    /// have to fit.
    ///
    /// # Errors
    /// [`LoadError`] naming file, field or tensors.
    pub fn get(&mut self, root: &Path, vlm: Option<&Path>, kind: Option<Kind>) -> Result<Rc<Loaded>, LoadError> {
        let kind = kind.unwrap_or(self.usual_kind());
        let of = Origin { root: root.to_owned(), vlm: vlm.map(Path::to_owned), kind };
        if let Some(last) = self.last.as_ref().filter(|last| last.of == of) {
            return Ok(Rc::clone(last));
        }
        self.last = None;
        let loaded = Rc::new(Loaded::new(of, self.device)?);
        self.last = Some(Rc::clone(&loaded));
        Ok(loaded)
    }

    /// bfloat16 as the reference, except where a CPU would be slower with it.
    fn usual_kind(&self) -> Kind {
        if self.device.is_cuda() { Kind::BFloat16 } else { Kind::Float }
    }
}

impl Loaded {
    fn new(of: Origin, device: Device) -> Result<Self, LoadError> {
        let _mode = InferenceMode::begin();
        // First of all: it gives this thread a stream of its own, and the allocator lets a stream use again only what was
        // free on the same one.
        let graphs = RefCell::new(graphs(device));
        let dir = ModelDir::open(&of.root, of.vlm.as_deref())?;
        let (config, vlm) = dir.configs()?;
        let mut weights = Weights::open(dir.root(), device, of.kind)?;
        let specs = layout::tensors(&config, &vlm);
        weights.check(&specs)?;
        weights.ahead(&specs)?;
        let lean = || {
            let network = Gr00t::new(&mut weights, &config, &vlm);
            weights.finish()?;
            Ok(network.lean())
        };
        let network = Rc::new(caught(lean).unwrap_or_else(|reason| {
            let bytes = specs.iter().map(|(_, shape)| bytes(shape, of.kind)).sum();
            Err(LoadError::Device { dir: dir.root().to_owned(), bytes, device, reason: shortage(&reason).to_owned() })
        })?);
        release(device);
        Ok(Self { graphs, network, config, dir, of })
    }
}

/// Bytes of a tensor.
fn bytes(shape: &[i64], kind: Kind) -> u64 {
    shape.iter().product::<i64>().unsigned_abs() * kind.elt_size_in_bytes() as u64
}

/// Gives the device what libtorch's allocator keeps of the layers that were joined.
fn release(device: Device) {
    let (Device::Cuda(_), Ok(cuda)) = (device, cuda::load()) else { return };
    if let Err(err) = cuda.empty_cache() {
        tracing::warn!("libtorch's cache is not released: {err}");
    }
}

/// Room for captured passes, with a stream of this thread's own; none on a CPU, and none with a reason where CUDA does
/// not have it.
fn graphs(device: Device) -> Option<Graphs> {
    let Device::Cuda(index) = device else { return None };
    let cuda = cuda::load().map_err(|none| none.reason).ok()?;
    let total = cuda.memory(index).map_or(0, |memory| memory.total_bytes);
    match CudaEngine::new(cuda, index) {
        Ok(engine) => Some(Graphs::new(Box::new(engine), jobs::memory::graph_cap(total))),
        Err(reason) => {
            tracing::warn!("no CUDA graphs on cuda:{index}, operators are started one by one: {reason}");
            None
        }
    }
}
