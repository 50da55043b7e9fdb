//! What a rank knows about checkpoints beyond a job: the network that was loaded last, and how many
//! rows of each checkpoint fit into memory.

use std::path::Path;
use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::{Device, Kind};

use crate::policy::Lifeline;
use crate::policy::batches::{Batches, Ladders};
use crate::policy::gr00t::LoadedModel;

/// The most recently used network, kept for the next job, and the known batch sizes of all
/// checkpoints.
#[derive(Debug)]
pub struct Checkpoints {
    device: Device,
    last: Option<Rc<LoadedModel>>,
    ladders: Ladders,
}

impl Checkpoints {
    /// Creates an empty cache whose checkpoints are loaded to `device`.
    pub fn new(device: Device) -> Self {
        Self::heard_by(device, Lifeline::alone())
    }

    /// As [`Checkpoints::new`], with a `lifeline` that is told when memory runs out.
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

    /// Returns the network of a GR00T model directory and loads it unless it was the last one used.
    /// Another network is dropped first, so that the memory never has to hold two.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the file, field or tensors.
    pub fn gr00t(
        &mut self,
        root: &Path,
        vlm: Option<&Path>,
        kind: Option<Kind>,
    ) -> Result<Rc<LoadedModel>, Refusal> {
        let kind = kind.unwrap_or(self.usual_kind());
        if let Some(last) = &self.last
            && last.is_of(root, vlm, kind)
        {
            return Ok(Rc::clone(last));
        }
        self.last = None;
        let loaded = Rc::new(LoadedModel::load(root, vlm, kind, self.device)?);
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
