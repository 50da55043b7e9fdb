//! What a network takes of a card for so many rows of an inference.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::load::load;
use super::pass::Pass;
use super::{Weights, Widths};
use crate::memory::allocator::Allocator;

/// More than the model says: tensors of some hundred bytes a row are left out, and which of two equal gaps a tensor gets
/// depends on addresses. Of a hundred peaks in `measured.json` none was more than 14 MiB above the model.
const SLACK: u64 = 16 << 20;

/// Inferences without a graph until nothing new is taken from the card: the next one finds other gaps than the first.
const INFERENCES: usize = 3;

/// What CUDA itself takes for a captured graph of some 1 500 kernels. An assumption: it was not measured.
const GRAPH: u64 = 16 << 20;

/// A checkpoint that was looked at.
#[derive(Clone, Debug)]
pub(in crate::memory) struct Network {
    widths: Widths,
    weights: Weights,
    /// Bytes of a number.
    float: u64,
    /// The allocator when everything is loaded.
    loaded: Allocator,
    /// Peaks by rows: a planner asks for the same ones again and again.
    known: Arc<Mutex<BTreeMap<u64, Peak>>>,
}

/// Bytes beside the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) struct Peak {
    /// What loading leaves unused, and what an inference takes.
    pub(in crate::memory) activations: u64,
    /// A captured graph of this size.
    pub(in crate::memory) graph: u64,
}

impl Network {
    /// With these tensors, and numbers of `float` bytes.
    pub(in crate::memory) fn new(widths: Widths, weights: Weights, float: u64) -> Self {
        let mut loaded = Allocator::default();
        load(&widths, &mut loaded, weights, float);
        Self { widths, weights, float, loaded, known: Arc::default() }
    }

    /// Bytes of the weights in the form for inference. It has more of them than the file: the projections of the vision
    /// tower's queries and keys come with half of each head repeated, and norms of the language model's heads have become
    /// matrices.
    pub(in crate::memory) fn weights(&self) -> u64 {
        let Widths { vision_blocks, vision, layers, heads, kv_heads, head, .. } = self.widths;
        let halves = vision_blocks * vision * vision;
        let norms = layers * (heads + kv_heads) * head * 2 * head;
        self.weights.sum() + (halves + norms) * self.float
    }

    /// For inferences of `rows` rows.
    pub(in crate::memory) fn peak(&self, rows: u64) -> Peak {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(rows).or_insert_with(|| self.find_peak(rows))
    }

    fn find_peak(&self, rows: u64) -> Peak {
        let mut pool = self.loaded.clone();
        let mut pass = Pass::new(&self.widths, &mut pool, rows, self.float);
        pass.prepare();
        (0..INFERENCES).for_each(|_| pass.run());
        let reserved = pool.reserved() + SLACK;
        // A graph has a pool of its own.
        let mut pool = Allocator::default();
        Pass::new(&self.widths, &mut pool, rows, self.float).run();
        Peak { activations: reserved.saturating_sub(self.weights()), graph: pool.reserved() + GRAPH }
    }

    /// Graphs of an evaluation with inferences of `rows` rows: fewer and fewer are left of a job's last episodes, and each
    /// of the sizes that batches are filled up to may be captured.
    pub(in crate::memory) fn graphs(&self, rows: u64) -> u64 {
        graph_sizes(rows).into_iter().map(|rows| self.peak(rows).graph).sum()
    }
}

impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        (&self.widths, self.weights, self.float) == (&other.widths, other.weights, other.float)
    }
}

/// Sizes that batches of up to `rows` rows are filled up to: powers of two and those between, and `rows`.
pub fn graph_sizes(rows: u64) -> Vec<u64> {
    let powers = (0..64).map(|exponent| 1_u64 << exponent);
    let sizes = powers.flat_map(|power| [power, power / 2 * 3]).filter(|size| *size > 0);
    let mut sizes: Vec<_> = sizes.take_while(|size| *size < rows.max(1)).collect();
    sizes.dedup();
    sizes.push(rows.max(1));
    sizes
}
