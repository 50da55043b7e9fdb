//! Models how a checkpoint is loaded to the GPU: one block for all weights, then fused layers, each
//! allocated while its parts are still there, which leaves gaps.
//!
//! It follows `runtime/gr00t/src/weights/ahead.rs` and `Gr00t::fused`. Tensors that are not
//! changed are counted as one.

use crate::memory::allocator::{Allocation, Allocator, SMALL};
use crate::memory::gr00t::NetworkWidths;

/// Bytes of the weights in the dtype of the computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::memory) struct WeightBytes {
    /// Bytes of the tensors that are slices of the single block.
    pub(in crate::memory) large: u64,
    /// Bytes of small tensors, which the allocator keeps in other segments.
    pub(in crate::memory) small: u64,
}

impl WeightBytes {
    /// Sums tensors of these sizes.
    pub(in crate::memory) fn of(tensors: impl Iterator<Item = u64>) -> Self {
        let mut weights = Self::default();
        tensors.for_each(|bytes| *weights.share(bytes) += bytes);
        weights
    }

    /// Returns the bytes of all weights.
    pub(in crate::memory) fn sum(self) -> u64 {
        self.large + self.small
    }

    /// Returns the sum that a tensor of this size belongs to.
    fn share(&mut self, bytes: u64) -> &mut u64 {
        if bytes <= SMALL {
            &mut self.small
        } else {
            &mut self.large
        }
    }
}

/// Loads weights whose elements have `float` bytes.
pub(super) fn load(widths: &NetworkWidths, pool: &mut Allocator, weights: WeightBytes, float: u64) {
    pool.touch(weights.sum());
    let mut left = weights;
    let mut take = |count: u64| {
        let share = left.share(count * float);
        *share = share.saturating_sub(count * float);
        pool.take(count * float)
    };

    let NetworkWidths {
        vision,
        vision_inner,
        language,
        language_inner,
        embedding,
        ..
    } = *widths;
    let (q, kv) = (widths.heads * widths.head, widths.kv_heads * widths.head);
    let vision_qkv: Vec<_> = (0..widths.vision_blocks)
        .map(|_| {
            let qkv = take(3 * vision * vision);
            let _rest = [
                vision * vision,
                vision * vision_inner,
                vision * vision_inner,
            ]
            .map(&mut take);
            qkv
        })
        .collect();
    let layers: Vec<[Vec<Allocation>; 2]> = (0..widths.layers)
        .map(|_| {
            let qkv = [q, kv, kv].map(|width| take(width * language)).into();
            let _out = take(language * q);
            let gate_up = [language * language_inner; 2].map(&mut take).into();
            let _down = take(language * language_inner);
            [gate_up, qkv]
        })
        .collect();
    let vl_qkv: Vec<Vec<Allocation>> = (0..widths.vl_blocks)
        .map(|_| {
            let qkv = [language * language; 3].map(&mut take).into();
            let _rest = [
                language * language,
                4 * language * language,
                4 * language * language,
            ]
            .map(&mut take);
            qkv
        })
        .collect();
    let square = embedding * embedding;
    let (mut keys, mut own_qkv) = ([vec![], vec![]], Vec::new());
    for at in 0..widths.cross_blocks {
        let _modulation_and_query = [2 * square, square].map(&mut take);
        keys[at as usize % 2].extend([embedding * language; 2].map(&mut take));
        let _rest = [square, 4 * square, 4 * square].map(&mut take);
        if at < widths.own_blocks {
            let _modulation = take(2 * square);
            own_qkv.push(Vec::from([square; 3].map(&mut take)));
            let _rest = [square, 4 * square, 4 * square].map(&mut take);
        }
    }

    let _others = pool.take(left.large);
    for begin in (0..left.small).step_by(SMALL as usize) {
        let _others = pool.take((left.small - begin).min(SMALL));
    }

    for [gate_up, qkv] in layers {
        join(pool, gate_up, 2 * language_inner * language * float);
        join(pool, qkv, (q + 2 * kv) * language * float);
        let _norms =
            pool.take((widths.heads + widths.kv_heads) * widths.head * 2 * widths.head * float);
    }
    for qkv in vl_qkv {
        join(pool, qkv, 3 * language * language * float);
    }
    for keys in keys.into_iter().filter(|keys| !keys.is_empty()) {
        let bytes = keys.len() as u64 * embedding * language * float;
        join(pool, keys, bytes);
    }
    for qkv in own_qkv {
        join(pool, qkv, 3 * square * float);
    }
    for qkv in vision_qkv {
        join(pool, vec![qkv], 4 * vision * vision * float);
    }
    pool.release();
}

/// Fuses `parts` into one layer.
fn join(pool: &mut Allocator, parts: Vec<Allocation>, bytes: u64) {
    let _joined = pool.take(bytes);
    pool.give(parts);
}
