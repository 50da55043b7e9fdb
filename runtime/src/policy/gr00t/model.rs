//! Loads the network of a checkpoint to its device.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::{Device, Kind};

use crate::policy::release;
use models::gr00t::model::Gr00t;
use models::gr00t::{ModelConfig, ModelDir};
use models::graphs::Graphs;
use models::weights::Spec;
use models::{Weights, no_room};
use torchlib::operators::InferenceMode;
use torchlib::torch_error::{caught, shortage};

/// Directory of a checkpoint, that of its backbone's files, and the kind of its elements.
pub(in crate::policy) type CheckpointOrigin = (PathBuf, Option<PathBuf>, Kind);

/// A network on its device, with the directory from which it was loaded.
pub struct LoadedModel {
    /// The captured passes. Declared before the network, whose memory they read, so that they are
    /// dropped first.
    pub graphs: Rc<RefCell<Graphs>>,
    /// The network.
    pub network: Rc<Gr00t>,
    /// Sizes and switches of the network.
    pub config: ModelConfig,
    /// What was loaded.
    pub(in crate::policy) of: CheckpointOrigin,
}

impl LoadedModel {
    /// Loads the network of a model directory to `device`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the file, field or tensors.
    pub(in crate::policy) fn load(of: CheckpointOrigin, device: Device) -> Result<Self, Refusal> {
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
            let specs = Gr00t::tensors(&config, &vlm);
            bytes = specs.iter().flatten().map(|spec| size(spec, *kind)).sum();
            weights.check(&specs)?;
            weights.ahead(&specs)?;
            let network = Gr00t::new(&mut weights, &config, &vlm);
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
