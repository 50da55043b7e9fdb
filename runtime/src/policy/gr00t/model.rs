//! Loads the network of a checkpoint to its device.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::{Device, Kind};

use crate::policy::release;
use models::gr00t::model::Gr00t;
use models::gr00t::{ModelConfig, ModelDir};
use models::graphs::{CudaEngine, Graphs};
use models::weights::Spec;
use models::{Weights, no_room};
use torchlib::cuda;
use torchlib::operators::InferenceMode;
use torchlib::torch_error::{caught, shortage};

/// A network on its device, with the directory from which it was loaded.
#[derive(Debug)]
pub struct LoadedModel {
    /// The captured passes, if the device can capture. Declared before the network, whose memory
    /// they read, so that they are dropped first.
    pub graphs: RefCell<Option<Graphs>>,
    /// The network.
    pub network: Rc<Gr00t>,
    /// Sizes and switches of the network.
    pub config: ModelConfig,
    /// The directory with its files.
    pub dir: ModelDir,
    of: CheckpointOrigin,
}

#[derive(Clone, Debug)]
struct CheckpointOrigin {
    root: PathBuf,
    vlm: Option<PathBuf>,
    kind: Kind,
}

impl LoadedModel {
    /// Loads the network of a model directory to `device`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the file, field or tensors.
    pub fn load(
        root: &Path,
        vlm: Option<&Path>,
        kind: Kind,
        device: Device,
    ) -> Result<Self, Refusal> {
        let of = CheckpointOrigin {
            root: root.to_owned(),
            vlm: vlm.map(Path::to_owned),
            kind,
        };
        let _mode = InferenceMode::begin();
        // This comes first because it gives this thread a stream of its own, and libtorch's
        // allocator reuses memory only on the stream on which it was freed.
        let graphs = RefCell::new(graphs(device));
        let dir = ModelDir::open(&of.root, of.vlm.as_deref())?;
        let (config, vlm) = dir.configs()?;
        let mut weights = Weights::open(dir.root(), device, of.kind)?;
        let mut bytes = 0;
        let build = || {
            let specs = Gr00t::tensors(&config, &vlm);
            bytes = specs.iter().flatten().map(|spec| size(spec, of.kind)).sum();
            weights.check(&specs)?;
            weights.ahead(&specs)?;
            let network = Gr00t::new(&mut weights, &config, &vlm);
            weights.finish().map(|_| network)
        };
        let network =
            Rc::new(caught(build).unwrap_or_else(|reason| {
                Err(no_room(dir.root(), bytes, device, shortage(&reason)))
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

    /// Returns whether this is the network of that directory, in elements of that kind.
    pub fn is_of(&self, root: &Path, vlm: Option<&Path>, kind: Kind) -> bool {
        self.of.root == root && self.of.vlm.as_deref() == vlm && self.of.kind == kind
    }
}

/// Returns the size of a tensor in bytes.
fn size((_, shape): &Spec, kind: Kind) -> u64 {
    shape.iter().product::<i64>().unsigned_abs() * kind.elt_size_in_bytes() as u64
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
