//! The vision tower of Qwen3-VL: maps patches to image tokens and deepstack features.

use std::cell::RefCell;
use std::rc::Rc;

use tch::{Kind, Tensor};

use crate::cache::Cache;
use crate::gr00t::config::VisionConfig;
use crate::nn::layers::{LayerNorm, Linear};
use crate::nn::rope::frequencies;
use crate::nn::{is_heard, note};
use crate::weights::Weights;
use block::VisionBlock;
use grid::PatchGrid;
pub(in crate::gr00t::model) use grid::PatchTables;

mod block;
mod grid;

const PREFIX: &str = "backbone.model.model.visual";

/// Epsilon of all layer norms in the tower.
const EPS: f64 = 1e-6;

/// Base of the rotary frequencies.
const ROPE_THETA: f64 = 10_000.0;

/// Number of sets of image sizes whose tables are kept.
const REMEMBERED: u64 = 32;

/// The tower: patch projection, blocks and mergers.
pub(super) struct Vision {
    patch_embed: Linear,
    pos_embed: Tensor,
    /// Rotary frequencies, `[head_dim / 4]`.
    inverse: Tensor,
    blocks: Vec<VisionBlock>,
    merger: Merger,
    /// For each of `deepstack_visual_indexes`, the block and the merger that follows it.
    deepstack: Vec<(i64, Merger)>,
    /// Number of values in a patch.
    pub(super) patch_width: i64,
    /// Number of patches along each edge of a token.
    pub(super) merge: i64,
    layouts: RefCell<Cache<Vec<[i64; 3]>, Rc<PatchTables>>>,
}

/// The tower's output for the images of a batch, in their order.
pub(super) struct Images {
    /// Image tokens, `[P/4, H]`.
    pub tokens: Tensor,
    /// Features that are added to the image tokens after decoder layer 0, 1, …: `[P/4, H]` each.
    pub deepstack: Vec<Tensor>,
}

impl Vision {
    pub(super) fn new(weights: &mut Weights, config: &VisionConfig, buffers: Option<Kind>) -> Self {
        let width = config.hidden_size;
        let patch = [
            config.in_channels,
            config.temporal_patch_size,
            config.patch_size,
            config.patch_size,
        ];
        let patch_width = patch.iter().product();
        let filter = [&[width][..], &patch].concat();
        let kernel = weights.take(&format!("{PREFIX}.patch_embed.proj.weight"), &filter);
        let bias = weights.take(&format!("{PREFIX}.patch_embed.proj.bias"), &[width]);
        let pos_embed = weights.take(
            &format!("{PREFIX}.pos_embed.weight"),
            &[config.num_position_embeddings, width],
        );
        let (kind, device) = (pos_embed.kind(), pos_embed.device());
        let head = width / config.num_heads;
        let inverse =
            frequencies(ROPE_THETA, head / 2, buffers.unwrap_or(kind), device).to_kind(kind);
        let deepstack = (0..).zip(&config.deepstack_visual_indexes);
        Self {
            patch_embed: Linear::of(kernel.reshape([width, patch_width]), bias),
            pos_embed,
            inverse,
            blocks: (0..config.depth)
                .map(|i| VisionBlock::take(weights, &format!("{PREFIX}.blocks.{i}"), config))
                .collect(),
            merger: Merger::take(weights, "merger", config, false),
            deepstack: deepstack
                .map(|(j, &after): (i64, _)| {
                    let part = format!("deepstack_merger_list.{j}");
                    (after, Merger::take(weights, &part, config, true))
                })
                .collect(),
            patch_width,
            merge: config.spatial_merge_size,
            layouts: RefCell::new(Cache::new(REMEMBERED)),
        }
    }

    /// Runs the tower; `pixels` is `[P, patch width]` in the dtype of the weights, images one after
    /// the other, merge block by merge block.
    pub(super) fn forward(&self, pixels: &Tensor, layout: Option<&PatchTables>) -> Images {
        let Some(layout) = layout else {
            return Images {
                tokens: Tensor::empty([0], (pixels.kind(), pixels.device())),
                deepstack: Vec::new(),
            };
        };
        let mut x = self.embed(pixels, layout);
        let mut deepstack = Vec::with_capacity(self.deepstack.len());
        for (i, block) in (0i64..).zip(&self.blocks) {
            x = block.forward(x, layout);
            note(format_args!("vision.block.{i:02}"), &x, None);
            let mut mergers = self.deepstack.iter().enumerate();
            if let Some((j, (_, merger))) = mergers.find(|(_, (after, _))| *after == i) {
                let features = merger.forward(&x);
                note(format_args!("vision.deepstack.{j}"), &features, None);
                deepstack.push(features);
            }
        }
        let tokens = self.merger.forward(&x);
        note(format_args!("vision.merger"), &tokens, None);
        Images { tokens, deepstack }
    }

    /// Returns the patches as input of the first block, `[P, D]`.
    fn embed(&self, pixels: &Tensor, layout: &PatchTables) -> Tensor {
        if !is_heard() {
            return self.patch_embed.plus(&layout.position, pixels);
        }
        let mut x = self.patch_embed.forward(pixels);
        note(format_args!("vision.patch_embed"), &x, None);
        note(format_args!("vision.rotary_freqs"), &layout.freqs, None);
        note(format_args!("vision.pos_embed"), &layout.position, None);
        x += &layout.position;
        x
    }

    /// Returns the tables for images of these sizes; `None` if there are none.
    pub(super) fn layout(&self, grids: &[[i64; 3]]) -> Option<Rc<PatchTables>> {
        let make = || {
            let grid = PatchGrid {
                side: (self.pos_embed.size()[0] as f64).sqrt() as i64,
                merge: self.merge,
            };
            Rc::new(PatchTables::new(
                grids,
                grid,
                &self.inverse,
                &self.pos_embed,
            ))
        };
        let mut layouts = self.layouts.borrow_mut();
        (!grids.is_empty()).then(|| layouts.get_or(grids.to_vec(), make))
    }
}

/// Merges 2×2 patches into one token of the language model: a norm and a two-layer network.
struct Merger {
    norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    /// Width of all patches of a token together.
    grouped: i64,
    /// Whether the norm covers all patches of a token together rather than each patch alone.
    norms_grouped: bool,
}

impl Merger {
    /// Takes the merger that follows the last block, or a deepstack merger, which follows a block
    /// in the middle.
    fn take(weights: &mut Weights, part: &str, config: &VisionConfig, is_deep: bool) -> Self {
        let name = |layer: &str| format!("{PREFIX}.{part}.{layer}");
        let grouped = config.merged_size();
        let normed = if is_deep { grouped } else { config.hidden_size };
        let out = config.out_hidden_size;
        Self {
            norm: LayerNorm::take(weights, &name("norm"), normed, EPS),
            fc1: Linear::take(weights, &name("linear_fc1"), grouped, grouped),
            fc2: Linear::take(weights, &name("linear_fc2"), grouped, out),
            grouped,
            norms_grouped: is_deep,
        }
    }

    /// Maps `[P, D]` to `[P/4, H]`.
    fn forward(&self, x: &Tensor) -> Tensor {
        let grouped = if self.norms_grouped {
            self.norm.forward(&x.view([-1, self.grouped]))
        } else {
            self.norm.forward(x).view([-1, self.grouped])
        };
        self.fc2.forward(&self.fc1.forward(&grouped).gelu("none"))
    }
}
