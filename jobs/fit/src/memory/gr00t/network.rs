//! Computes the GPU memory of a network for a batch size.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jobs::captured_graphs;

use crate::memory::allocator::Allocator;
use crate::memory::gr00t::load::load;
use crate::memory::gr00t::pass::PassEstimate;
use crate::memory::gr00t::{NetworkWidths, WeightBytes};

/// Margin added to the model's result: the model leaves out tensors of a few hundred bytes per row,
/// and which of two equal gaps a tensor gets depends on addresses. Of a hundred peaks in
/// `measured.json`, none was more than 14 MiB above the model.
const SLACK: u64 = 16 << 20;

/// Number of inferences without a graph until no new memory is reserved: the second one finds other
/// gaps than the first.
const INFERENCES: usize = 3;

/// Memory that CUDA itself takes for a captured graph of about 1 500 kernels. This is an
/// assumption; it was not measured.
const GRAPH: u64 = 16 << 20;

/// The network of a checkpoint.
#[derive(Clone, Debug)]
pub(in crate::memory) struct Network {
    widths: NetworkWidths,
    weights: WeightBytes,
    /// Bytes of an element.
    float: u64,
    /// The allocator's state after loading.
    loaded: Allocator,
    /// Peaks by number of rows, because a planner asks for the same ones repeatedly.
    known: Arc<Mutex<BTreeMap<u64, PassPeak>>>,
}

/// GPU memory in addition to the weights, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) struct PassPeak {
    /// Unused memory that loading leaves, and the memory of an inference.
    pub(in crate::memory) activations: u64,
    /// Memory of a captured graph of this batch size.
    pub(in crate::memory) graph: u64,
}

impl Network {
    /// Creates the network from its tensors, whose elements have `float` bytes.
    pub(in crate::memory) fn new(widths: NetworkWidths, weights: WeightBytes, float: u64) -> Self {
        let mut loaded = Allocator::default();
        load(&widths, &mut loaded, weights, float);
        Self {
            widths,
            weights,
            float,
            loaded,
            known: Arc::default(),
        }
    }

    /// Returns the bytes of the weights in their form for inference. It has more weights than the
    /// file: the projections of the vision tower's queries and keys have half of each head
    /// repeated, and the norms of the language model's heads became matrices.
    pub(in crate::memory) fn weights(&self) -> u64 {
        let NetworkWidths {
            vision_blocks,
            vision,
            layers,
            heads,
            kv_heads,
            head,
            ..
        } = self.widths;
        let halves = vision_blocks * vision * vision;
        let norms = layers * (heads + kv_heads) * head * 2 * head;
        self.weights.sum() + (halves + norms) * self.float
    }

    /// Returns the peak of inferences with `rows` rows.
    pub(in crate::memory) fn peak(&self, rows: u64) -> PassPeak {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(rows).or_insert_with(|| self.find_peak(rows))
    }

    fn find_peak(&self, rows: u64) -> PassPeak {
        let mut pool = self.loaded.clone();
        let mut pass = PassEstimate::new(&self.widths, &mut pool, rows, self.float);
        pass.prepare();
        (0..INFERENCES).for_each(|_| pass.run());
        let reserved = pool.reserved() + SLACK;
        // A graph has its own memory pool.
        let mut pool = Allocator::default();
        PassEstimate::new(&self.widths, &mut pool, rows, self.float).run();
        PassPeak {
            activations: reserved.saturating_sub(self.weights()),
            graph: pool.reserved() + GRAPH,
        }
    }

    /// Returns the bytes of all graphs of an evaluation with inferences of up to `rows` rows.
    /// Batches shrink with a job's last episodes, so each of the padded batch sizes may be
    /// captured.
    pub(in crate::memory) fn graphs(&self, rows: u64) -> u64 {
        captured_graphs::batch_sizes(rows)
            .into_iter()
            .map(|rows| self.peak(rows).graph)
            .sum()
    }
}

impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        (&self.widths, self.weights, self.float) == (&other.widths, other.weights, other.float)
    }
}
