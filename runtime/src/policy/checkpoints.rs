//! What a rank knows about checkpoints beyond a job: the network that was loaded last, and how many
//! rows of each checkpoint fit into memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jobs::policies::{Dtype, Gr00t};
use jobs::refusal::Refusal;
use models::graphs::Graphs;
use tch::{Device, Kind};

use crate::policy::Lifeline;
use crate::policy::gr00t::LoadedModel;
use crate::policy::runner::{Ladder, Runner};

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
