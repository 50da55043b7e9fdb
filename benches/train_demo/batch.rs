//! Holds the samples of a task in memory, and makes batches of them for the network.

use std::path::Path;
use std::sync::Arc;

use models::gr00t::inputs::BatchInputs;
use tch::{Kind, Tensor};

use crate::Outcome;
use crate::network::{self, CAMERAS, CHUNK, EDGE, GRID};
use crate::sample::{HORIZON, ROW, STATE};
use crate::scale;

/// One in this number of episodes is held out for validation.
const HELD_OUT: u64 = 20;

const PICTURES: usize = CAMERAS * EDGE * EDGE * 3;

/// The samples of one task.
pub struct Samples {
    pictures: Vec<u8>,
    rows: Vec<f32>,
    prompt: Arc<[i64]>,
    /// Whether the task has an object.
    pub has_object: bool,
    /// Indices of the samples to train on.
    pub training: Vec<usize>,
    /// Indices of the samples of held-out episodes.
    pub held_out: Vec<usize>,
}

/// The targets of a batch.
pub struct Wanted {
    /// Normalised plans, `[B, CHUNK, 7]`.
    pub actions: Tensor,
    /// Positions of the hand in the base frame in metres, `[B, 3]`; the same for the following
    /// fields.
    pub hand: Tensor,
    /// Positions of the goal.
    pub goal: Tensor,
    /// Positions of the object.
    pub object: Tensor,
}

impl Samples {
    /// Reads the samples from the folder of a task.
    pub fn read(folder: &Path, prompt: Arc<[i64]>) -> Outcome<Self> {
        let pictures = std::fs::read(folder.join("pictures.u8"))?;
        let bytes = std::fs::read(folder.join("rows.f32"))?;
        let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let rows: Vec<f32> = bytes.chunks_exact(4).map(value).collect();
        let count = rows.len() / ROW;
        if count == 0 || pictures.len() != count * PICTURES {
            return Err(format!(
                "{}: {} bytes of pictures for {count} samples",
                folder.display(),
                pictures.len()
            )
            .into());
        }
        let is_held_out = |&sample: &usize| (rows[sample * ROW] as u64).is_multiple_of(HELD_OUT);
        let (held_out, training) = (0..count).partition(is_held_out);
        let has_object = part(&rows[..ROW], "object_position")[2] != 0.0;
        Ok(Self {
            pictures,
            rows,
            prompt,
            has_object,
            training,
            held_out,
        })
    }

    /// Returns the network's inputs for these samples.
    pub fn inputs(&self, chosen: &[usize]) -> BatchInputs {
        let pictures: Vec<u8> = chosen
            .iter()
            .flat_map(|&at| &self.pictures[at * PICTURES..][..PICTURES])
            .copied()
            .collect();
        let states: Vec<f32> = chosen
            .iter()
            .flat_map(|&at| scale::state(|name| part(self.row(at), name), network::STATE as usize))
            .collect();
        let rows = chosen.len() as i64;
        let ids = Tensor::from_slice(&self.prompt)
            .unsqueeze(0)
            .repeat([rows, 1]);
        BatchInputs {
            attention_mask: ids.ones_like(),
            input_ids: ids,
            pixel_values: patches(&Tensor::from_slice(&pictures)),
            image_grid_thw: vec![[1, GRID, GRID]; chosen.len() * CAMERAS],
            state: Tensor::from_slice(&states).view([rows, 1, network::STATE]),
            embodiment_id: 0,
        }
    }

    /// Returns the targets for these samples.
    pub fn wanted(&self, chosen: &[usize]) -> Wanted {
        let plan = |at: usize| {
            let plan = &self.row(at)[ROW - HORIZON * 7..][..CHUNK as usize * 7];
            let normal = |(at, &x): (usize, &f32)| {
                let (_, low, high) = scale::ACTION[at % 7];
                scale::normalise(x, low[0], high[0])
            };
            plan.iter().enumerate().map(normal).collect::<Vec<_>>()
        };
        let actions: Vec<f32> = chosen.iter().flat_map(|&at| plan(at)).collect();
        let place = |name: &str| {
            let values: Vec<f32> = chosen
                .iter()
                .flat_map(|&at| part(self.row(at), name))
                .copied()
                .collect();
            Tensor::from_slice(&values).view([-1, 3])
        };
        Wanted {
            actions: Tensor::from_slice(&actions).view([-1, CHUNK, 7]),
            hand: place("eef_position"),
            goal: place("goal_position"),
            object: place("object_position"),
        }
    }

    /// Returns normalised patches of `count` samples, `[n, 1536]`.
    pub fn patches(&self, count: usize) -> Tensor {
        let stride = (self.training.len() / count).max(1);
        let chosen: Vec<_> = self.training.iter().step_by(stride).copied().collect();
        self.inputs(&chosen).pixel_values
    }

    fn row(&self, sample: usize) -> &[f32] {
        &self.rows[sample * ROW..][..ROW]
    }
}

/// Converts images `[n, EDGE, EDGE, 3]` of `u8` to rows of 1536 values in -1..1, in blocks of 2 x 2
/// patches.
fn patches(pictures: &Tensor) -> Tensor {
    let (half, patch) = (GRID / 2, network::PATCH);
    let split = pictures
        .view([-1, half, 2, patch, half, 2, patch, 3].as_slice())
        .permute([0, 1, 4, 2, 5, 7, 3, 6]);
    let values = (split.to_kind(Kind::Float) - 127.5) / 127.5;
    let rows = values.reshape([-1, 3, 1, patch, patch]);
    rows.expand([-1, 3, 2, patch, patch], false)
        .reshape([-1, 6 * patch * patch])
}

fn part<'a>(row: &'a [f32], wanted: &str) -> &'a [f32] {
    let mut from = 2;
    for (name, length) in STATE {
        if name == wanted {
            return &row[from..from + length];
        }
        from += length;
    }
    &[]
}
