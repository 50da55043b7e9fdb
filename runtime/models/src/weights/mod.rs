//! Loads the tensors of a checkpoint to the device, by name.
//!
//! ```text
//! model directory ─► index ─► shards, mapped ─► joint(specs) ─► view: CPU, same type, one tensor
//!                             headers checked │              ├─► else copy, pages released
//!                                             └► ahead ──────┘   all at once, to a GPU
//! nothing ────────────────────────────────────► joint(specs) ─► no memory; record() has the specs
//!                                               finish() ─► what is kept, or all problems
//! ```
//!
//! A network names each tensor where it takes it, and nowhere else: the list of its tensors is what
//! it takes from a source that only records. `ahead` loads in the background. After a copy, the
//! pages of the map are returned to the kernel.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::error::refuse;
use ahead::Ahead;
use checkpoint::Checkpoint;
use shard::kind_of;
use upload::{UploadSizes, to_card};

mod ahead;
mod checkpoint;
mod shard;
mod upload;

/// Name and shape of a tensor in a checkpoint.
pub type Spec = (String, Vec<i64>);

/// Tensors of a checkpoint that lie one after the other in one tensor of the network: mostly a
/// single one.
pub type JointSpec = Vec<Spec>;

/// The token embedding table, which a checkpoint may store as [`LM_HEAD`] instead.
pub const EMBED_TOKENS: &str = "backbone.model.model.language_model.embed_tokens.weight";
/// Output layer of the language model: tied to the token embedding table and not used.
const LM_HEAD: &str = "backbone.model.lm_head.weight";
/// Tensors that a checkpoint may have although the network does not use them: the output layer, the
/// last norm of the language model (GR00T takes the features before it), and training state found
/// in a derivative of N1.7.
const REDUNDANT: [&str; 3] = [
    LM_HEAD,
    "backbone.model.model.language_model.norm.weight",
    "action_head.dropout_prob_by_embodiment",
];

/// A checkpoint from which a network takes the tensors that it needs.
pub struct Weights {
    /// `None` only records what is taken.
    checkpoint: Option<Checkpoint>,
    device: Device,
    kind: Kind,
    ahead: Option<Ahead>,
    taken: Vec<JointSpec>,
    /// The first error that occurred while reading tensors.
    failure: Option<Refusal>,
}

impl Weights {
    /// Maps the checkpoint in `dir` and checks its headers; no tensor is read yet.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the missing or broken file.
    pub fn open(dir: &Path, device: Device, kind: Kind) -> Result<Self, Refusal> {
        Ok(Self::new(Some(Checkpoint::open(dir)?), device, kind))
    }

    /// Returns what `network` takes, in that order; its tensors are zeros without memory.
    pub fn record(network: impl FnOnce(&mut Self)) -> Vec<JointSpec> {
        let mut weights = Self::new(None, Device::Cpu, Kind::Float);
        network(&mut weights);
        weights.taken
    }

    /// Returns the device of the tensors.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Compares the headers with what a network will take, before the network is built.
    ///
    /// # Errors
    /// Returns the same [`Refusal`] as [`Weights::finish`] would.
    pub fn check(&self, specs: &[JointSpec]) -> Result<(), Refusal> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(());
        };
        let specs = specs.iter().flatten();
        let problem = |(name, shape): &Spec| locate(checkpoint, name, shape).err();
        let mut problems: Vec<_> = specs.clone().filter_map(problem).collect();
        let taken = specs.map(|(name, _)| name.as_str());
        let known: BTreeSet<_> = taken.chain(REDUNDANT).collect();
        let unknown = checkpoint.names().filter(|name| !known.contains(name));
        problems.extend(unknown.map(|name| Problem {
            kind: "unexpected",
            text: format!("`{name}`"),
        }));
        match problems[..] {
            [] => Ok(()),
            _ => Err(refuse(&checkpoint.dir, told(&problems))),
        }
    }

    /// Starts to load these tensors to a GPU, all at once and in the background; [`Weights::joint`]
    /// waits for its own tensor. On a CPU, where tensors are views of files, it does nothing.
    ///
    /// # Errors
    /// Returns [`Refusal`] if the tensors do not fit into the GPU's memory.
    pub fn ahead(&mut self, specs: &[JointSpec]) -> Result<(), Refusal> {
        if let Some(checkpoint) = self.checkpoint.as_ref().filter(|_| self.device.is_cuda()) {
            let (sizes, target) = (UploadSizes::usual(), (self.kind, self.device));
            let carrier = || to_card(self.device, sizes.slots());
            self.ahead = Ahead::begin(checkpoint, specs, target, sizes, carrier)?;
        }
        Ok(())
    }

    /// Returns the tensor `name`, as [`Weights::joint`] does.
    pub fn take(&mut self, name: &str, shape: &[i64]) -> Tensor {
        self.joint(&[(name.to_owned(), shape.to_vec())])
    }

    /// Returns tensors one after the other along the first axis. What is missing or has another
    /// shape is recorded for [`Weights::finish`], and the result is zeros that take no memory.
    pub fn joint(&mut self, specs: &[Spec]) -> Tensor {
        self.taken.push(specs.to_vec());
        self.found(specs).unwrap_or_else(|| {
            Tensor::zeros([0; 0], (self.kind, self.device)).expand(joint_shape(specs), false)
        })
    }

    fn found(&mut self, specs: &[Spec]) -> Option<Tensor> {
        let checkpoint = self.checkpoint.as_ref()?;
        match self.ahead.as_mut().and_then(|ahead| ahead.take(specs)) {
            Some(Ok(tensor)) => return Some(tensor),
            Some(Err(err)) => {
                self.failure.get_or_insert(err);
                return None;
            }
            None => {}
        }
        let tensor = |(name, shape): &Spec| {
            let place = locate(checkpoint, name, shape).ok()?;
            Some(checkpoint.shards[place.shard].tensor(&place, self.kind, self.device))
        };
        let mut tensors = specs.iter().map(tensor).collect::<Option<Vec<_>>>()?;
        Some(match tensors.len() {
            1 => tensors.remove(0),
            _ => Tensor::cat(&tensors, 0),
        })
    }

    /// Ends the reading, when the network has taken its tensors.
    ///
    /// # Errors
    /// Returns [`Refusal`] with a list of the tensors that are missing, wrong, or
    /// present but not taken, and [`Refusal`] if a file could not be read to its end.
    pub fn finish(self) -> Result<(), Refusal> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.check(&self.taken)
    }

    fn new(checkpoint: Option<Checkpoint>, device: Device, kind: Kind) -> Self {
        Self {
            checkpoint,
            device,
            kind,
            ahead: None,
            taken: Vec::new(),
            failure: None,
        }
    }
}

/// Returns the shape of the tensors, at least one, together.
fn joint_shape(specs: &[Spec]) -> Vec<i64> {
    let rows = specs.iter().filter_map(|(_, shape)| shape.first()).sum();
    let mut shape = specs[0].1.clone();
    if let Some(first) = shape.first_mut() {
        *first = rows;
    }
    shape
}

/// The location of a tensor in the checkpoint, and its type there.
struct TensorPlace<'a> {
    /// Index of the shard.
    shard: usize,
    /// Byte range in its file.
    bytes: Range<i64>,
    shape: &'a [i64],
    stored: Kind,
}

/// What is wrong with one tensor.
#[derive(Clone, Debug)]
struct Problem {
    /// One of [`PROBLEMS`].
    kind: &'static str,
    text: String,
}

/// The kinds of problems, in the order in which they are told.
const PROBLEMS: [&str; 3] = ["missing", "wrong", "unexpected"];

/// Maximum number of tensors listed per kind of problem; the rest is only counted.
const MOST_LISTED: usize = 20;

/// Finds a tensor with this name and shape; the token embedding table may be stored as the output
/// layer.
fn locate<'a>(
    checkpoint: &Checkpoint,
    name: &str,
    shape: &'a [i64],
) -> Result<TensorPlace<'a>, Problem> {
    let tied = || checkpoint.find(LM_HEAD).filter(|_| name == EMBED_TOKENS);
    let problem = |kind, text| Err(Problem { kind, text });
    let Some((shard, info)) = checkpoint.find(name).or_else(tied) else {
        return problem("missing", format!("`{name}` {shape:?}"));
    };
    let (found, dtype, (first, end)) = (&info.shape, info.dtype, info.data_offsets);
    let sides = found.iter().map(|&side| i64::try_from(side));
    if !sides.eq(shape.iter().map(|&side| Ok(side))) {
        return problem(
            "wrong",
            format!("`{name}` is {found:?}, expected {shape:?}"),
        );
    }
    let Some(stored) = kind_of(dtype) else {
        let wanted = "expected F32, BF16, F16 or F64";
        return problem("wrong", format!("`{name}` is {dtype}, {wanted}"));
    };
    let begin = checkpoint.shards[shard].begin;
    Ok(TensorPlace {
        shard,
        bytes: begin + first as i64..begin + end as i64,
        shape,
        stored,
    })
}

/// Formats all problems as one text: the number of each kind, and the affected tensors.
fn told(problems: &[Problem]) -> String {
    let mut parts = Vec::new();
    for kind in PROBLEMS {
        let texts = problems.iter().filter(|problem| problem.kind == kind);
        let texts: Vec<_> = texts.map(|problem| problem.text.as_str()).collect();
        let (count, listed) = (texts.len(), texts.len().min(MOST_LISTED));
        if count > 0 {
            let tensors = if count == 1 { "tensor" } else { "tensors" };
            let rest = match count - listed {
                0 => String::new(),
                rest => format!(" and {rest} more"),
            };
            let texts = texts[..listed].join(", ");
            parts.push(format!("{count} {kind} {tensors}: {texts}{rest}"));
        }
    }
    parts.join("; ")
}

#[cfg(test)]
pub(crate) mod tests;
