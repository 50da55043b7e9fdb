//! Keeps the loaded checkpoint in memory, so that successive jobs of a rank that use it share it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tch::{Device, Kind};

use crate::policy::Lifeline;
use crate::policy::batches::{Batches, Ladders};
use c10d::cuda;
use c10d::operators::InferenceMode;
use c10d::torch_error::{caught, shortage};
use gr00t::graphs::{CudaEngine, Graphs};
use gr00t::model::Gr00t;
use gr00t::{LoadError, ModelConfig, ModelDir, Weights, layout};

/// A network on its device, with the directory from which it was loaded.
#[derive(Debug)]
pub struct Loaded {
    /// The captured passes, if the device can capture. Declared before the network, whose memory
    /// they read, so that they are dropped first.
    pub graphs: RefCell<Option<Graphs>>,
    /// The network, rearranged for inference.
    pub network: Rc<Gr00t>,
    /// Sizes and switches of the network.
    pub config: ModelConfig,
    /// The directory with its files.
    pub dir: ModelDir,
    of: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    root: PathBuf,
    vlm: Option<PathBuf>,
    kind: Kind,
}

/// The most recently used checkpoint, kept for the next job, and the known batch sizes of all
/// checkpoints.
#[derive(Debug)]
pub struct Models {
    device: Device,
    last: Option<Rc<Loaded>>,
    ladders: Ladders,
}

impl Models {
    /// Creates an empty cache whose checkpoints are loaded to `device`.
    pub fn new(device: Device) -> Self {
        Self::heard_by(device, Lifeline::alone())
    }

    /// As [`Models::new`], with a `lifeline` that is told when memory runs out.
    pub fn heard_by(device: Device, lifeline: Lifeline) -> Self {
        Self {
            device,
            last: None,
            ladders: Ladders::new(device, lifeline),
        }
    }

    /// Returns how many rows of a policy of this file or folder fit into one inference.
    pub(crate) fn batches(&mut self, path: &Path) -> Batches {
        self.ladders.batches(path)
    }

    /// Returns the device to which checkpoints are loaded.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the network of a model directory and loads it unless it was the last one used.
    /// Another network is dropped first, so that the memory never has to hold two.
    ///
    /// # Errors
    /// Returns a [`LoadError`] that names the file, field or tensors.
    pub fn get(
        &mut self,
        root: &Path,
        vlm: Option<&Path>,
        kind: Option<Kind>,
    ) -> Result<Rc<Loaded>, LoadError> {
        let kind = kind.unwrap_or(self.usual_kind());
        let of = Origin {
            root: root.to_owned(),
            vlm: vlm.map(Path::to_owned),
            kind,
        };
        if let Some(last) = self.last.as_ref().filter(|last| last.of == of) {
            return Ok(Rc::clone(last));
        }
        self.last = None;
        let loaded = Rc::new(Loaded::new(of, self.device)?);
        self.last = Some(Rc::clone(&loaded));
        Ok(loaded)
    }

    /// Returns bfloat16 as in the reference, but float32 on a CPU, where bfloat16 would be slower.
    fn usual_kind(&self) -> Kind {
        if self.device.is_cuda() {
            Kind::BFloat16
        } else {
            Kind::Float
        }
    }
}

impl Loaded {
    fn new(of: Origin, device: Device) -> Result<Self, LoadError> {
        let _mode = InferenceMode::begin();
        // This comes first because it gives this thread a stream of its own, and libtorch's
        // allocator reuses memory only on the stream on which it was freed.
        let graphs = RefCell::new(graphs(device));
        let dir = ModelDir::open(&of.root, of.vlm.as_deref())?;
        let (config, vlm) = dir.configs()?;
        let mut weights = Weights::open(dir.root(), device, of.kind)?;
        let specs = layout::tensors(&config, &vlm);
        weights.check(&specs)?;
        weights.ahead(&specs)?;
        let fused = || {
            let network = Gr00t::new(&mut weights, &config, &vlm);
            weights.finish()?;
            Ok(network.fused())
        };
        let network = Rc::new(caught(fused).unwrap_or_else(|reason| {
            let bytes = specs.iter().map(|(_, shape)| bytes(shape, of.kind)).sum();
            Err(LoadError::Device {
                dir: dir.root().to_owned(),
                bytes,
                device,
                reason: shortage(&reason).to_owned(),
            })
        })?);
        release(device);
        Ok(Self {
            graphs,
            network,
            config,
            dir,
            of,
        })
    }
}

/// Returns the size of a tensor in bytes.
fn bytes(shape: &[i64], kind: Kind) -> u64 {
    shape.iter().product::<i64>().unsigned_abs() * kind.elt_size_in_bytes() as u64
}

/// Returns to the device the memory that libtorch's allocator still caches from the layers that
/// were joined.
fn release(device: Device) {
    let (Device::Cuda(_), Ok(cuda)) = (device, cuda::load()) else {
        return;
    };
    if let Err(err) = cuda.empty_cache() {
        tracing::warn!("libtorch's cache is not released: {err}");
    }
}

/// Creates the storage for captured passes, with a stream for this thread. Returns `None` on a CPU,
/// and where CUDA cannot capture, which is logged with the reason.
fn graphs(device: Device) -> Option<Graphs> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let cuda = cuda::load().ok()?;
    let total = cuda.memory(index).map_or(0, |memory| memory.total_bytes);
    match CudaEngine::new(cuda, index) {
        Ok(engine) => Some(Graphs::new(
            Box::new(engine),
            jobs::captured_graphs::max_bytes(total),
        )),
        Err(reason) => {
            tracing::warn!(
                "no CUDA graphs on cuda:{index}, operators are started one by one: {reason}"
            );
            None
        }
    }
}
