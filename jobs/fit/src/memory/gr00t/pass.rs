//! Models one inference as the sequence of its tensor allocations.
//!
//! It follows `runtime/gr00t/src/model` on a GPU, in its form for inference. A change there
//! needs a change here; the measured peaks of `measured.json` fail the test if one was forgotten.
//! Blocks of a kind are alike, so two of them stand for all. Tensors of a few hundred bytes per row
//! are left out.

use crate::memory::allocator::{Allocation, Allocator};
use crate::memory::gr00t::NetworkWidths;

/// Bytes of a float32, in which norms and attention keep their statistics.
const WIDE: u64 = 4;

/// Bytes of an index.
const INDEX: u64 = 8;

/// Values of an image patch: 3 channels of 16 × 16 pixels.
const PATCH: u64 = 768;

/// The network treats an image as two frames.
const FRAMES: u64 = 2;

/// Number of blocks that stand for all of their kind.
const BLOCKS: u64 = 2;

/// Bytes of the workspaces of cuBLAS on Hopper, the largest (aten/src/ATen/cuda/CUDABlas.cpp:
/// `chooseCuBLASWorkspaceSize`), and of cuBLASLt.
const WORKSPACES: [u64; 2] = [32 << 20, 1 << 20];

/// The allocations of a batch of `rows`.
pub(super) struct PassEstimate<'a> {
    widths: &'a NetworkWidths,
    pool: &'a mut Allocator,
    rows: u64,
    /// Bytes of an element.
    float: u64,
}

/// The vision and language tensors that are kept until the end.
struct KeptFeatures {
    images: Vec<Allocation>,
    features: Allocation,
}

impl<'a> PassEstimate<'a> {
    pub(super) fn new(
        widths: &'a NetworkWidths,
        pool: &'a mut Allocator,
        rows: u64,
        float: u64,
    ) -> Self {
        Self {
            widths,
            pool,
            rows,
            float,
        }
    }

    /// Allocates what the first inference keeps: tables of the batch's shape, workspaces, the
    /// sampler's constants, and the batch itself.
    pub(super) fn prepare(&mut self) {
        let (patches, tokens) = (self.patches(), self.tokens());
        // For each token: positions on three axes, cosines, and sines before and after their sign
        // change.
        self.hold([tokens * 3 * INDEX]);
        self.hold([tokens * self.widths.head * self.float; 3]);
        self.hold(WORKSPACES);
        self.plan();
        self.vision_tables();
        self.hold([
            tokens * INDEX,
            patches * PATCH,
            self.rows * self.widths.horizon * self.widths.action * WIDE,
        ]);
    }

    /// Runs all operators from pixels to actions.
    pub(super) fn run(&mut self) {
        let pixels = self.pixels();
        let images = self.vision();
        let KeptFeatures { images, features } = self.language(images);
        let keys = self.condition();
        self.denoise();
        self.pool
            .give(images.into_iter().chain(keys).chain([pixels, features]));
    }

    fn patches(&self) -> u64 {
        self.rows * self.widths.images * self.widths.patches
    }

    fn tokens(&self) -> u64 {
        self.rows * self.widths.tokens()
    }

    /// Allocates `count` elements of the network's dtype.
    fn take(&mut self, count: u64) -> Allocation {
        self.pool.take(count * self.float)
    }

    fn touch(&mut self, count: u64) {
        self.pool.touch(count * self.float);
    }

    /// Allocates tensors that are never freed.
    fn hold<const N: usize>(&mut self, bytes: [u64; N]) {
        for bytes in bytes {
            let _held = self.pool.take(bytes);
        }
    }

    /// Allocates the position tables of the vision tower. For each patch: neighbours in the
    /// position table and their weights, angles, cosines and sines; and the interpolated positions
    /// of four terms.
    fn vision_tables(&mut self) {
        let (patches, width, head) = (
            self.patches(),
            self.widths.vision,
            self.widths.vision / self.widths.vision_heads,
        );
        let all = patches * width;
        self.hold([
            patches * 4 * INDEX,
            patches * 4 * WIDE,
            patches * head / 2 * self.float,
        ]);
        self.hold([patches * head * WIDE; 2]);
        let first = self.take(all);
        let mut sum = first;
        for _ in 1..4 {
            let picked = self.take(all);
            let term = self.take(all);
            self.pool.give([picked]);
            let next = self.take(all);
            self.pool.give([sum, term]);
            sum = next;
        }
        let _held = sum;
    }

    /// Allocates the sampler's constants of an embodiment, which are computed in float32.
    fn plan(&mut self) {
        let NetworkWidths {
            embedding, hidden, ..
        } = *self.widths;
        let halves = [embedding * embedding * WIDE; 2].map(|bytes| self.pool.take(bytes));
        let [projection, decoder, product] =
            [embedding * hidden, hidden * hidden, embedding * hidden]
                .map(|count| self.pool.take(count * WIDE));
        self.hold([embedding * hidden * self.float]);
        self.pool
            .give(halves.into_iter().chain([projection, decoder, product]));
    }

    fn pixels(&mut self) -> Allocation {
        let centred = self.pool.take(self.patches() * PATCH * WIDE);
        let pixels = self.take(self.patches() * PATCH * FRAMES);
        self.pool.give([centred]);
        pixels
    }

    /// Returns the image tokens, and the features for the first decoder layers.
    fn vision(&mut self) -> Vec<Allocation> {
        let x = self.take(self.patches() * self.widths.vision);
        let mut images = Vec::new();
        for _ in 0..=self.widths.deepstack {
            (0..BLOCKS).for_each(|_| self.vision_block());
            images.push(self.merger());
        }
        self.pool.give([x]);
        images
    }

    fn vision_block(&mut self) {
        let (patches, width) = (self.patches(), self.widths.vision);
        let normed = self.normed(patches, width);
        // Half of each head of queries and keys is repeated; the rotation is computed in float32.
        let qkv = self.take(patches * 4 * width);
        let turned = self.take(patches * 2 * width);
        self.pool.touch(patches * 2 * width * WIDE);
        let attended = self.attended(patches, width, self.widths.vision_heads);
        self.pool.give([qkv, turned, normed]);
        let normed = self.normed(patches, width);
        self.touch(patches * self.widths.vision_inner);
        self.pool.give([normed, attended]);
    }

    /// Runs a norm, a layer, its activation and a second layer.
    fn merger(&mut self) -> Allocation {
        let (patches, width) = (self.patches(), self.widths.vision);
        let normed = self.normed(patches / self.widths.merge, width * self.widths.merge);
        let inner = [(); 2].map(|()| self.take(patches * width));
        let out = self.take(patches / self.widths.merge * self.widths.language);
        self.pool.give(inner.into_iter().chain([normed]));
        out
    }

    fn language(&mut self, images: Vec<Allocation>) -> KeptFeatures {
        let features = self.take(self.tokens() * self.widths.language);
        (0..BLOCKS).for_each(|_| self.language_layer());
        KeptFeatures { images, features }
    }

    fn language_layer(&mut self) {
        let NetworkWidths {
            language,
            language_inner,
            heads,
            kv_heads,
            head,
            ..
        } = *self.widths;
        let tokens = self.tokens();
        let (all, turned) = ((heads + 2 * kv_heads) * head, (heads + kv_heads) * head);
        let normed = self.normed(tokens, language);
        let qkv = self.take(tokens * all);
        let heads_normed = self.normed(tokens * (heads + 2 * kv_heads), head);
        let both = self.take(tokens * 2 * turned);
        let qk = self.take(tokens * turned);
        self.touch(tokens * turned);
        self.pool.give([both, heads_normed]);
        let attended = self.attended(tokens, heads * head, heads);
        self.pool.give([attended, qk, qkv]);
        let second = self.normed(tokens, language);
        let gate_up = self.take(tokens * 2 * language_inner);
        self.pool.give([second]);
        let silu = self.take(tokens * language_inner);
        let product = self.take(tokens * language_inner);
        self.pool.give([silu, product, gate_up, normed]);
    }

    /// Runs the blocks over the features, then computes the keys and values of all cross-attention
    /// blocks, which are kept.
    fn condition(&mut self) -> Vec<Allocation> {
        let tokens = self.tokens();
        let NetworkWidths {
            language,
            embedding,
            cross_blocks,
            ..
        } = *self.widths;
        let vl = self.normed(tokens, language);
        if self.widths.vl_blocks > 0 {
            (0..BLOCKS).for_each(|_| self.self_attention(tokens, language, self.widths.vl_heads));
        }
        let seen = [
            self.rows * self.widths.text_tokens(),
            self.rows * self.widths.image_tokens(),
        ];
        let mut keys = Vec::new();
        for (tokens, blocks) in seen
            .into_iter()
            .zip([cross_blocks.div_ceil(2), cross_blocks / 2])
        {
            let picked = self.take(tokens * language);
            keys.push(self.take(tokens * 2 * blocks * embedding));
            self.pool.give([picked]);
        }
        self.pool.give([vl]);
        keys
    }

    fn denoise(&mut self) {
        let (width, horizon) = (self.widths.embedding, self.widths.horizon);
        let bias = self.take(self.rows * horizon * width);
        for _ in 0..BLOCKS {
            let hidden = self.take(self.rows * horizon * width);
            let active = self.take(self.rows * horizon * width);
            self.pool.give([hidden]);
            let encoded = self.take(self.rows * horizon * width);
            let x = self.take(self.rows * (1 + horizon) * width);
            (0..BLOCKS).for_each(|_| {
                self.self_attention(self.rows * (1 + horizon), width, self.widths.dit_heads)
            });
            self.pool.give([active, encoded, x]);
        }
        self.pool.give([bias]);
    }

    /// Runs self-attention and a feed-forward network four times as wide.
    fn self_attention(&mut self, tokens: u64, width: u64, heads: u64) {
        let first = self.normed(tokens, width);
        let qkv = self.take(tokens * 3 * width);
        let attended = self.attended(tokens, width, heads);
        self.pool.give([attended, qkv]);
        let second = self.normed(tokens, width);
        self.touch(tokens * 4 * width);
        self.pool.give([second, first]);
    }

    /// Returns the result of a norm; its statistics are freed at once.
    fn normed(&mut self, rows: u64, width: u64) -> Allocation {
        let normed = self.take(rows * width);
        let statistics = [(); 2].map(|()| self.pool.take(rows * WIDE));
        self.pool.give(statistics);
        normed
    }

    /// Returns the result of attention; the log-sum-exp is freed at once.
    fn attended(&mut self, rows: u64, width: u64, heads: u64) -> Allocation {
        let attended = self.take(rows * width);
        self.pool.touch(rows * heads * WIDE);
        attended
    }
}
