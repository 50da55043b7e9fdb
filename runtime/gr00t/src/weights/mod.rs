//! Loads the tensors of a checkpoint to the device, by name.
//!
//! ```text
//! model directory ─► index ─► shards, mapped ─► take(name, shape) ─► view: CPU, same type
//!                             headers checked │                  ├─► else copy, pages released
//!                                             └► ahead(specs) ───┘   all at once, to a GPU
//! seed ───────────────────────────────────────► take(name, shape) ─► random tensor
//!                                               finish() ─► all taken tensors, or all problems
//! ```
//!
//! `ahead` loads in the background. After a copy, the pages of the map are returned to the kernel.

use std::collections::BTreeSet;
use std::path::Path;

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::layout::{self, Spec};
use ahead::Ahead;
use checkpoint::Checkpoint;
use header::TensorEntry;
use problems::{Problem, told};
pub use random::random_tensor;
use shard::{MappedShard, kind_of};

mod ahead;
mod checkpoint;
mod header;
mod index;
mod pairs;
mod problems;
mod random;
mod shard;
mod upload;

/// Tensors with their names, in the order in which they were taken.
pub type Named = Vec<(String, Tensor)>;

/// A checkpoint from which a network takes the tensors that it needs.
#[derive(Debug)]
pub struct Weights {
    source: WeightSource,
    device: Device,
    kind: Kind,
    ahead: Option<Ahead>,
    taken: Named,
    problems: Vec<Problem>,
    /// The first error that occurred while reading tensors.
    failure: Option<Refusal>,
}

#[derive(Debug)]
enum WeightSource {
    Checkpoint(Checkpoint),
    Random { seed: i64 },
}

impl Weights {
    /// Maps the checkpoint in `dir` and checks its headers; no tensor is read yet.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the missing or broken file.
    pub fn open(dir: &Path, device: Device, kind: Kind) -> Result<Self, Refusal> {
        Ok(Self::new(
            WeightSource::Checkpoint(Checkpoint::open(dir)?),
            device,
            kind,
        ))
    }

    /// Creates random weights: norms are 1, biases are 0, the rest is normally distributed with a
    /// standard deviation of 0.02.
    pub fn random(seed: i64, device: Device, kind: Kind) -> Self {
        Self::new(WeightSource::Random { seed }, device, kind)
    }

    /// Returns the device of the tensors.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the element type of the tensors.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Compares the headers with the tensors that a network will take, before the network is built.
    ///
    /// # Errors
    /// Returns the same [`Refusal`] as [`Weights::finish`] would.
    pub fn check(&self, specs: &[Spec]) -> Result<(), Refusal> {
        let WeightSource::Checkpoint(checkpoint) = &self.source else {
            return Ok(());
        };
        let problems = specs
            .iter()
            .filter_map(|(name, shape)| locate(checkpoint, name, shape).err())
            .collect();
        refuse(
            checkpoint,
            specs.iter().map(|(name, _)| name.as_str()),
            problems,
        )
    }

    /// Starts to load these tensors to a GPU, all at once and in the background; [`Weights::take`]
    /// waits for its own tensor. On a CPU, where tensors are views of files, it does nothing.
    ///
    /// # Errors
    /// Returns [`Refusal`] if the tensors do not fit into the GPU's memory.
    pub fn ahead(&mut self, specs: &[Spec]) -> Result<(), Refusal> {
        let WeightSource::Checkpoint(checkpoint) = &self.source else {
            return Ok(());
        };
        if self.device.is_cuda() {
            self.ahead = Ahead::to_card(checkpoint, specs, self.kind, self.device)?;
        }
        Ok(())
    }

    /// As [`Weights::ahead`], but to the CPU and with another carrier.
    #[cfg(test)]
    fn ahead_by<C: upload::Carrier>(
        &mut self,
        specs: &[Spec],
        sizes: upload::UploadSizes,
        carrier: C,
    ) {
        let WeightSource::Checkpoint(checkpoint) = &self.source else {
            panic!("random weights are not loaded")
        };
        let target = ahead::LoadTarget {
            kind: self.kind,
            device: self.device,
        };
        self.ahead = Ahead::begin(checkpoint, specs, target, sizes, || Ok(carrier)).unwrap();
    }

    /// Returns the tensor `name`. A tensor that is missing or has another shape is recorded for
    /// [`Weights::finish`], and the result is zeros that take no memory.
    pub fn take(&mut self, name: &str, shape: &[i64]) -> Tensor {
        let found = match &self.source {
            WeightSource::Random { seed } => {
                Ok(random_tensor(*seed, name, shape, self.kind, self.device))
            }
            WeightSource::Checkpoint(checkpoint) => locate(checkpoint, name, shape).map(|place| {
                let ahead = self.ahead.as_ref().and_then(|ahead| ahead.take(name));
                match ahead {
                    Some(Ok(tensor)) => tensor,
                    Some(Err(err)) => {
                        self.failure.get_or_insert(err);
                        zeros(shape, self.kind, self.device)
                    }
                    None => place.tensor(self.kind, self.device),
                }
            }),
        };
        match found {
            Ok(tensor) => {
                self.taken.push((name.to_owned(), tensor.shallow_clone()));
                tensor
            }
            Err(problem) => {
                self.problems.push(problem);
                zeros(shape, self.kind, self.device)
            }
        }
    }

    /// Returns all tensors that were taken.
    ///
    /// # Errors
    /// Returns [`Refusal`] with a list of the tensors that are missing, wrong, or
    /// present but not taken, and [`Refusal`] if a file could not be read to its end.
    pub fn finish(self) -> Result<Named, Refusal> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if let WeightSource::Checkpoint(checkpoint) = &self.source {
            refuse(
                checkpoint,
                self.taken.iter().map(|(name, _)| name.as_str()),
                self.problems,
            )?;
        }
        Ok(self.taken)
    }

    fn new(source: WeightSource, device: Device, kind: Kind) -> Self {
        Self {
            source,
            device,
            kind,
            ahead: None,
            taken: Vec::new(),
            problems: Vec::new(),
            failure: None,
        }
    }
}

/// Returns zeros that take no memory.
fn zeros(shape: &[i64], kind: Kind, device: Device) -> Tensor {
    Tensor::zeros([1], (kind, device)).expand(shape, false)
}

/// The location of a tensor in the checkpoint, and its type there.
struct TensorPlace<'a> {
    /// Index of the shard.
    number: usize,
    shard: &'a MappedShard,
    entry: &'a TensorEntry,
    stored: Kind,
}

impl TensorPlace<'_> {
    fn tensor(&self, kind: Kind, device: Device) -> Tensor {
        self.shard.tensor(self.entry, self.stored, kind, device)
    }
}

/// Finds a tensor with this name and shape; the token embedding table may be stored as the output
/// layer.
fn locate<'a>(
    checkpoint: &'a Checkpoint,
    name: &str,
    shape: &[i64],
) -> Result<TensorPlace<'a>, Problem> {
    let tied = || {
        (name == layout::EMBED_TOKENS)
            .then(|| checkpoint.find(layout::LM_HEAD))
            .flatten()
    };
    let Some((number, entry)) = checkpoint.find(name).or_else(tied) else {
        return Err(Problem::Missing {
            name: name.to_owned(),
            shape: shape.to_vec(),
        });
    };
    if entry.shape != shape {
        return Err(Problem::Shape {
            name: name.to_owned(),
            found: entry.shape.clone(),
            wanted: shape.to_vec(),
        });
    }
    match kind_of(entry.dtype) {
        Some(stored) => Ok(TensorPlace {
            number,
            shard: &checkpoint.shards()[number],
            entry,
            stored,
        }),
        None => Err(Problem::Type {
            name: name.to_owned(),
            found: entry.dtype,
        }),
    }
}

/// Adds the tensors that are neither used nor known to the problems, and returns an error if there
/// are any.
fn refuse<'a>(
    checkpoint: &Checkpoint,
    used: impl Iterator<Item = &'a str>,
    mut problems: Vec<Problem>,
) -> Result<(), Refusal> {
    let used: BTreeSet<_> = used.collect();
    let is_known =
        |name: &str| used.contains(name) || problems.iter().any(|problem| problem.name() == name);
    let unknown = checkpoint
        .names()
        .filter(|name| !is_known(name) && !layout::is_redundant(name));
    let unexpected: Vec<_> = unknown
        .map(|name| Problem::Unexpected {
            name: name.to_owned(),
        })
        .collect();
    problems.extend(unexpected);
    if problems.is_empty() {
        return Ok(());
    }
    Err(crate::error::refuse(checkpoint.dir(), told(&problems)))
}

#[cfg(test)]
mod tests;
