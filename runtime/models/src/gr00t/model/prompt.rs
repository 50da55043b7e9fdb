//! Computes everything that depends only on the positions of the tokens and images of a batch, not
//! on its words: positions, rotary tables and masks.

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::gr00t::{BatchInputs, integers};
use crate::nn::rope::{RopeTable, TextRope};

/// The position that padding gets.
const PADDED: i64 = 1;

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
        let positions = positions(text, merge)?;
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

/// Returns the positions, `[3, rows, S]`, row-major. A text token advances all axes by one. An
/// image counts its rows and columns from its start, and the text continues after its longest side
/// (transformers: `get_rope_index` of Qwen3-VL).
fn positions(text: &Text<'_>, merge: i64) -> Result<Vec<i64>, Refusal> {
    let mut axes = [(); 3].map(|()| vec![PADDED; text.ids.len()]);
    let length = text.ids.len() / text.rows.max(1) as usize;
    let mut grids = text.grids.iter();
    for (sample, start) in (0..text.ids.len()).step_by(length.max(1)).enumerate() {
        let tokens: Vec<_> = (start..start + length)
            .filter(|&at| text.mask[at] != 0)
            .collect();
        let mut rest = &tokens[..];
        let mut next = 0;
        while let Some((&at, after)) = rest.split_first() {
            if text.ids[at] != text.image_token_id {
                axes.iter_mut().for_each(|axis| axis[at] = next);
                next += 1;
                rest = after;
                continue;
            }
            let found = rest
                .iter()
                .take_while(|&&at| text.ids[at] == text.image_token_id)
                .count();
            let Some([_, height, width]) = grids.next() else {
                return Err(image_tokens(sample, found, 0));
            };
            let (height, width) = (height / merge, width / merge);
            let wanted = height * width;
            if wanted == 0 || wanted > found as i64 {
                return Err(image_tokens(sample, found, wanted));
            }
            let (image, after) = rest.split_at(wanted as usize);
            for (token, &at) in (0..).zip(image) {
                [0, token / width, token % width]
                    .into_iter()
                    .zip(&mut axes)
                    .for_each(|(p, axis)| axis[at] = next + p);
            }
            next += height.max(width);
            rest = after;
        }
    }
    let left = grids.count();
    if left > 0 {
        let (found, wanted) = (text.grids.len() - left, text.grids.len());
        return Err(Refusal::new(format_args!(
            "the prompts have placeholders for {found} images, the batch has {wanted}"
        )));
    }
    Ok(axes.concat())
}

fn image_tokens(sample: usize, found: usize, wanted: i64) -> Refusal {
    Refusal::new(format_args!(
        "sample {sample}: {found} image tokens in its prompt, its images have {wanted}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: i64 = 9;

    fn of(ids: &[i64], mask: &[i64], grids: &[[i64; 3]], rows: i64) -> Result<Vec<i64>, Refusal> {
        positions(
            &Text {
                ids: ids.to_vec(),
                mask: mask.to_vec(),
                grids,
                rows,
                image_token_id: IMAGE,
            },
            2,
        )
    }

    #[test]
    fn text_goes_on_behind_the_longest_side_of_an_image() {
        let ids = [5, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, 6];
        let found = of(&ids, &[1; 8], &[[1, 4, 6]], 1).unwrap();
        assert_eq!(found[..8], [0, 1, 1, 1, 1, 1, 1, 4]);
        assert_eq!(found[8..16], [0, 1, 1, 1, 2, 2, 2, 4]);
        assert_eq!(found[16..], [0, 1, 2, 3, 1, 2, 3, 4]);
    }

    #[test]
    fn padding_stays_at_one_and_does_not_count() {
        assert_eq!(
            of(&[0, 0, 5, 6], &[0, 0, 1, 1], &[], 1).unwrap()[..4],
            [1, 1, 0, 1]
        );
    }

    #[test]
    fn a_second_sample_starts_anew() {
        assert_eq!(
            of(&[5, 6, 7, 8], &[1; 4], &[], 2).unwrap()[..4],
            [0, 1, 0, 1]
        );
    }

    #[test]
    fn too_few_placeholders_are_refused() {
        let text = of(&[5, IMAGE], &[1; 2], &[[1, 4, 4]], 1)
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "sample 0: 1 image tokens in its prompt, its images have 4"
        );
    }

    #[test]
    fn an_image_without_a_placeholder_is_refused() {
        let text = of(&[5, 6], &[1; 2], &[[1, 4, 4]], 1)
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "the prompts have placeholders for 0 images, the batch has 1"
        );
    }
}
