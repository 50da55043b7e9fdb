//! What a rank knows about checkpoints beyond a job: GR00T's network that was loaded last, and how
//! many rows of each checkpoint fit into memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jobs::policies::{Dtype, Gr00t};
use jobs::refusal::Refusal;
use models::gr00t::model::Gr00t as Network;
use models::gr00t::{ModelConfig, ModelDir};
use models::graphs::Graphs;
use models::weights::Spec;
use models::{Weights, no_room};
use tch::{Device, Kind};
use torchlib::operators::InferenceMode;
use torchlib::torch_error::{caught, shortage};

use crate::policy::runner::{Ladder, Runner};
use crate::policy::{Lifeline, release};

/// The most recently used network, kept for the next job, and the known batch sizes of all
/// checkpoints.
pub struct Checkpoints {
    /// The device to which checkpoints are loaded.
    pub(in crate::policy) device: Device,
    lifeline: Lifeline,
    last: Option<Rc<LoadedModel>>,
    ladders: BTreeMap<PathBuf, Rc<RefCell<Ladder>>>,
}

impl Checkpoints {
    /// Creates an empty cache whose checkpoints are loaded to `device`; `lifeline` is told when
    /// memory runs out.
    pub fn new(device: Device, lifeline: Lifeline) -> Self {
        Self {
            device,
            lifeline,
            last: None,
            ladders: BTreeMap::new(),
        }
    }

    /// Returns what runs the network of a policy of this file or folder, with its captured passes.
    pub(in crate::policy) fn runner(&mut self, path: &Path, graphs: Rc<RefCell<Graphs>>) -> Runner {
        let ladder = Rc::clone(self.ladders.entry(path.to_owned()).or_default());
        Runner::new(self.device, ladder, graphs, self.lifeline.clone())
    }

    /// Returns the network of a GR00T model directory and loads it unless it was the last one used.
    /// Another network is dropped first, so that the memory never has to hold two.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the file, field or tensors.
    pub fn gr00t(&mut self, settings: &Gr00t) -> Result<Rc<LoadedModel>, Refusal> {
        let kind = match settings.dtype {
            Some(Dtype::Bfloat16) => Kind::BFloat16,
            Some(Dtype::Float32) => Kind::Float,
            // As in the reference, but on a CPU bfloat16 would be slower.
            None if self.device.is_cuda() => Kind::BFloat16,
            None => Kind::Float,
        };
        let (root, vlm) = (&settings.model_path, &settings.vlm_path);
        let of = (root.clone(), vlm.clone(), kind);
        if let Some(last) = &self.last
            && last.of == of
        {
            return Ok(Rc::clone(last));
        }
        self.last = None;
        let loaded = Rc::new(LoadedModel::load(of, self.device)?);
        self.last = Some(Rc::clone(&loaded));
        Ok(loaded)
    }
}

/// Directory of a checkpoint, that of its backbone's files, and the kind of its elements.
type CheckpointOrigin = (PathBuf, Option<PathBuf>, Kind);

/// A network on its device, with the directory from which it was loaded.
pub struct LoadedModel {
    /// The captured passes. Declared before the network, whose memory they read, so that they are
    /// dropped first.
    pub graphs: Rc<RefCell<Graphs>>,
    /// The network.
    pub network: Rc<Network>,
    /// Sizes and switches of the network.
    pub config: ModelConfig,
    /// What was loaded.
    of: CheckpointOrigin,
}

impl LoadedModel {
    /// Loads the network of a model directory to `device`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the file, field or tensors.
    fn load(of: CheckpointOrigin, device: Device) -> Result<Self, Refusal> {
        let (root, vlm, kind) = &of;
        let _mode = InferenceMode::begin();
        // This comes first because it gives this thread a stream of its own, and libtorch's
        // allocator reuses memory only on the stream on which it was freed.
        let graphs = Rc::new(RefCell::new(Graphs::on(device, true)));
        let dir = ModelDir::open(root, vlm.as_deref())?;
        let (config, vlm) = dir.configs()?;
        let mut weights = Weights::open(&dir.root, device, *kind)?;
        let mut bytes = 0;
        let build = || {
            let specs = Network::tensors(&config, &vlm);
            bytes = specs.iter().flatten().map(|spec| size(spec, *kind)).sum();
            weights.check(&specs)?;
            weights.ahead(&specs)?;
            let network = Network::new(&mut weights, &config, &vlm);
            weights.finish().map(|_| network)
        };
        let network =
            Rc::new(caught(build).unwrap_or_else(|reason| {
                Err(no_room(&dir.root, bytes, device, shortage(&reason)))
            })?);
        release(device);
        Ok(Self {
            graphs,
            network,
            config,
            of,
        })
    }
}

/// Returns the size of a tensor in bytes.
fn size((_, shape): &Spec, kind: Kind) -> u64 {
    shape.iter().product::<i64>().unsigned_abs() * kind.elt_size_in_bytes() as u64
}
