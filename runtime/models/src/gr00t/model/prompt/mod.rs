//! Computes everything that depends only on the positions of the tokens and images of a batch, not
//! on its words: positions, rotary tables and masks.

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::gr00t::inputs::{BatchInputs, integers};
use crate::nn::rope::{RopeTable, TextRope};

mod positions;

/// A batch of prompts on the host.
pub(super) struct Text<'a> {
    /// Token ids, `[rows, S]`, row-major.
    pub ids: Vec<i64>,
    /// Nonzero at positions with a token, in the same layout.
    pub mask: Vec<i64>,
    /// Patches of each image, (time, height, width).
    pub grids: &'a [[i64; 3]],
    /// Number of samples.
    pub rows: i64,
    /// Id of the placeholder of an image token.
    pub image_token_id: i64,
}

/// The constants of a batch of prompts that the network needs, on its device.
pub(super) struct PromptConstants {
    /// Number of samples.
    pub rows: i64,
    /// Which positions are tokens, `[rows, S]`, `bool`.
    pub attention_mask: Tensor,
    /// Which positions are image tokens, `[rows, S]`, `bool`.
    pub image_mask: Tensor,
    /// Image positions as row indices into `[rows·S, H]`, in order.
    pub image_rows: Tensor,
    /// Position of every token as (time, height, width), `[3, rows, S]`.
    pub positions: Tensor,
    /// Rotary tables as in the golden files, `[rows, S, head_dim]`.
    pub tables: (Tensor, Tensor),
    /// The rotation, broadcast over heads.
    pub turn: RopeTable,
    /// The keys visible to each query, `[rows, 1, S, S]`, `bool`; `None` without padding.
    pub causal: Option<Tensor>,
    /// Unpadded tokens that are text.
    pub text: PositionSubset,
    /// Unpadded tokens that are images.
    pub image: PositionSubset,
    /// Number of patches of all images.
    pub patches: i64,
}

/// A subset of the positions of every sample.
pub(super) struct PositionSubset {
    /// Mask of the positions, `[rows, 1, 1, S]`, `bool`.
    pub mask: Tensor,
    /// The positions as row indices into `[rows·S, H]`; `None` if samples have different numbers of
    /// them, or none.
    pub picked: Option<Tensor>,
}

impl<'a> Text<'a> {
    /// Reads the prompts of a batch.
    pub fn of(inputs: &'a BatchInputs, image_token_id: i64) -> Self {
        Self {
            ids: integers(&inputs.input_ids),
            mask: integers(&inputs.attention_mask),
            grids: &inputs.image_grid_thw,
            rows: inputs.input_ids.size()[0],
            image_token_id,
        }
    }

    /// Returns for every position, in the layout of the ids, whether it holds a token and whether
    /// it has the id of an image. Prompts that agree in this and in their images share a
    /// [`PromptConstants`].
    pub fn stands(&self) -> Vec<[bool; 2]> {
        self.ids
            .iter()
            .zip(&self.mask)
            .map(|(&id, &mask)| [mask != 0, id == self.image_token_id])
            .collect()
    }
}

impl PromptConstants {
    /// Computes the constants of a batch; `merge` patches along each edge become one token.
    pub fn new(
        text: &Text<'_>,
        merge: i64,
        rope: &TextRope,
        device: Device,
    ) -> Result<Self, Refusal> {
        let positions = positions::positions(text, merge)?;
        let length = text.ids.len() as i64 / text.rows;
        let shape = [text.rows, length];
        let on_device = |values: &[i64], shape: &[i64]| {
            Tensor::from_slice(values).view(shape).to_device(device)
        };
        let stands = text.stands();
        let stands = stands.into_iter().map(<(bool, bool)>::from);
        let (is_token, is_image): (Vec<bool>, Vec<bool>) = stands.unzip();
        let masked = |mask: &[bool]| Tensor::from_slice(mask).view(shape).to_device(device);
        let attention_mask = masked(&is_token);
        let positions = on_device(&positions, &[3, text.rows, length]);
        let tables = rope.tables(&positions);
        let part = |image: bool| {
            let pairs = is_token.iter().zip(&is_image);
            let chosen: Vec<_> = pairs.map(|(token, is)| *token && *is == image).collect();
            PositionSubset {
                mask: masked(&chosen).view([text.rows, 1, 1, length]),
                picked: pick(&chosen, text.rows, device),
            }
        };
        Ok(Self {
            rows: text.rows,
            image_mask: masked(&is_image),
            image_rows: Tensor::from_slice(&indices(&is_image)).to_device(device),
            turn: RopeTable::new(tables.0.unsqueeze(2), &tables.1.unsqueeze(2)),
            causal: is_token
                .contains(&false)
                .then(|| causal(&attention_mask, length)),
            text: part(false),
            image: part(true),
            patches: text.grids.iter().map(|[t, h, w]| t * h * w).sum(),
            attention_mask,
            positions,
            tables,
        })
    }

    /// Returns the approximate size of the tensors in bytes: the tables, the rotation, which is as
    /// large, and the mask. The others are small.
    pub fn bytes(&self) -> usize {
        let of = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        4 * of(&self.tables.0) + self.causal.as_ref().map_or(0, of)
    }
}

/// Returns the causal mask: key j is visible to query i if j ≤ i and j is a token.
fn causal(attention_mask: &Tensor, length: i64) -> Tensor {
    let before = Tensor::ones([length, length], (Kind::Bool, attention_mask.device())).tril(0);
    before.logical_and(&attention_mask.unsqueeze(1).unsqueeze(1))
}

/// Returns the indices of the chosen positions if every row has the same number of them and at
/// least one.
fn pick(chosen: &[bool], rows: i64, device: Device) -> Option<Tensor> {
    let mut counts = chosen
        .chunks(chosen.len() / rows as usize)
        .map(|row| row.iter().filter(|&&is| is).count());
    let first = counts.next().filter(|&count| count > 0)?;
    counts
        .all(|count| count == first)
        .then(|| Tensor::from_slice(&indices(chosen)).to_device(device))
}

fn indices(chosen: &[bool]) -> Vec<i64> {
    (0..)
        .zip(chosen)
        .filter_map(|(index, &is)| is.then_some(index))
        .collect()
}
