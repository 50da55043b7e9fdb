//! The tensors of a checkpoint, by name, on the device.
//!
//! ```text
//! model directory ─► index ─► shards, mapped ─► take(name, shape) ─► view of the map     CPU, same type
//!                             headers checked                    └─► copy on the device  else; pages given back
//! seed ───────────────────────────────────────► take(name, shape) ─► random tensor
//!                                                  finish() ─► all taken tensors, or one error with all problems
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use tch::{Device, Kind, Tensor};

use super::LoadError;
use super::layout;
use checkpoint::Checkpoint;
use problems::Problems;
pub use random::random_tensor;

mod checkpoint;
mod header;
mod index;
mod pairs;
mod problems;
mod random;
mod shard;

/// Tensors with their names, in the order in which they were taken.
pub type Named = Vec<(String, Tensor)>;

/// A checkpoint from which a network takes what it needs.
#[derive(Debug)]
pub struct Weights {
    source: Source,
    device: Device,
    kind: Kind,
    taken: Named,
    problems: Problems,
}

#[derive(Debug)]
enum Source {
    Checkpoint(Checkpoint),
    Random { seed: i64 },
}

impl Weights {
    /// Maps the checkpoint in `dir` and checks its headers; no tensor is read yet.
    ///
    /// # Errors
    /// [`LoadError`] naming the file that is missing or broken.
    pub fn open(dir: &Path, device: Device, kind: Kind) -> Result<Self, LoadError> {
        Ok(Self::new(Source::Checkpoint(Checkpoint::open(dir)?), device, kind))
    }

    /// Makes up every tensor that is asked for: norms are 1, biases 0, the rest is normal with deviation 0.02.
    pub fn random(seed: i64, device: Device, kind: Kind) -> Self {
        Self::new(Source::Random { seed }, device, kind)
    }

    /// Where tensors are put.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Element type of the tensors.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The tensor `name`. If it is missing or not of this shape, that is remembered for [`Weights::finish`], and the
    /// result is zeros that take no memory.
    pub fn take(&mut self, name: &str, shape: &[i64]) -> Tensor {
        let found = match &self.source {
            Source::Random { seed } => Some(random_tensor(*seed, name, shape, self.kind, self.device)),
            Source::Checkpoint(checkpoint) => read(checkpoint, &mut self.problems, name, shape, self.kind, self.device),
        };
        let Some(tensor) = found else {
            return Tensor::zeros([1], (self.kind, self.device)).expand(shape, false);
        };
        self.taken.push((name.to_owned(), tensor.shallow_clone()));
        tensor
    }

    /// All tensors that were taken.
    ///
    /// # Errors
    /// [`LoadError::Tensors`] listing what was missing or wrong, and what is there but was not taken.
    pub fn finish(mut self) -> Result<Named, LoadError> {
        let Source::Checkpoint(checkpoint) = &self.source else { return Ok(self.taken) };
        let taken: BTreeSet<_> = self.taken.iter().map(|(name, _)| name.as_str()).collect();
        for name in checkpoint.names().filter(|name| !taken.contains(name) && !layout::is_redundant(name)) {
            self.problems.unexpected(name);
        }
        match self.problems.text() {
            None => Ok(self.taken),
            Some(problems) => Err(LoadError::Tensors { dir: checkpoint.dir().to_owned(), problems }),
        }
    }

    fn new(source: Source, device: Device, kind: Kind) -> Self {
        Self { source, device, kind, taken: Vec::new(), problems: Problems::default() }
    }
}

/// A tensor of the checkpoint, or a problem.
fn read(
    checkpoint: &Checkpoint,
    problems: &mut Problems,
    name: &str,
    shape: &[i64],
    kind: Kind,
    device: Device,
) -> Option<Tensor> {
    let tied = || (name == layout::EMBED_TOKENS).then(|| checkpoint.find(layout::LM_HEAD)).flatten();
    let Some((shard, entry)) = checkpoint.find(name).or_else(tied) else {
        problems.missing(name, shape);
        return None;
    };
    if entry.shape != shape {
        problems.shape(name, &entry.shape, shape);
        return None;
    }
    let tensor = shard.tensor(entry, kind, device);
    if tensor.is_none() {
        problems.dtype(name, &entry.dtype.to_string());
    }
    tensor
}
