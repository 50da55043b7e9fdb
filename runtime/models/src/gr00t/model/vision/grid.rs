//! Tables that depend only on the sizes of images: position embeddings, rotary tables, and image
//! boundaries.

use tch::{Device, Kind, Tensor};

use crate::nn::rope::RopeTable;

/// The shape of the learned position table and of the groups of patches.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatchGrid {
    /// The position table has side × side entries.
    pub side: i64,
    /// Patches are ordered in blocks of merge × merge.
    pub merge: i64,
}

/// The tables for the patches of several images, in the order of the images.
pub(in crate::gr00t::model) struct PatchTables {
    /// Number of patches of each image.
    pub lengths: Vec<i64>,
    /// Rotation angles of row and column, `[P, head_dim / 2]`.
    pub freqs: Tensor,
    /// Rotation of queries and keys in float32, `[P, 1, 1, head_dim]`.
    pub turn: RopeTable,
    /// The interpolated position embedding, `[P, D]`.
    pub position: Tensor,
}

/// The part of the tables that belongs to one image.
struct ImageTables {
    /// Indices of each patch's four neighbours in the position table, `[4, P]`.
    neighbours: Tensor,
    /// Weights of the neighbours, `[4, P, 1]`, float32.
    shares: Tensor,
    freqs: Tensor,
}

impl PatchTables {
    /// Builds the tables; `inverse` holds the rotary frequencies in the dtype of the model, and
    /// `positions` is its position table, `[side², D]`.
    pub(super) fn new(
        grids: &[[i64; 3]],
        grid: PatchGrid,
        inverse: &Tensor,
        positions: &Tensor,
    ) -> Self {
        let parts: Vec<_> = grids
            .iter()
            .map(|&size| ImageTables::new(size, grid, inverse))
            .collect();
        let cat = |of: fn(&ImageTables) -> &Tensor, dim: i64| {
            Tensor::cat(&parts.iter().map(of).collect::<Vec<_>>(), dim)
        };
        let freqs = cat(|part| &part.freqs, 0);
        let angles = Tensor::cat(&[&freqs, &freqs], -1).unsqueeze(1).unsqueeze(1);
        Self {
            lengths: grids.iter().map(|[t, h, w]| t * h * w).collect(),
            turn: RopeTable::new(
                angles.cos().to_kind(Kind::Float),
                &angles.sin().to_kind(Kind::Float),
            ),
            freqs,
            position: interpolate(
                positions,
                &cat(|part| &part.neighbours, 1),
                &cat(|part| &part.shares, 1),
            ),
        }
    }
}

/// Interpolates the position table at every patch, with weights rounded to the table's dtype and
/// neighbours added in a fixed order.
fn interpolate(table: &Tensor, neighbours: &Tensor, shares: &Tensor) -> Tensor {
    let term =
        |i: i64| table.index_select(0, &neighbours.get(i)) * shares.get(i).to_kind(table.kind());
    term(0) + term(1) + term(2) + term(3)
}

impl ImageTables {
    fn new([frames, height, width]: [i64; 3], grid: PatchGrid, inverse: &Tensor) -> Self {
        let device = inverse.device();
        // Reorders [height, width, …] to the order of patches.
        let order = |x: Tensor| {
            let merge = grid.merge;
            let blocks = x
                .view([height / merge, merge, width / merge, merge, -1])
                .permute([0, 2, 1, 3, 4]);
            blocks.reshape([height * width, -1]).repeat([frames, 1])
        };
        let (y, x) = (
            TableAxis::new(height, grid.side, device),
            TableAxis::new(width, grid.side, device),
        );
        let corner = |row: &Tensor, column: &Tensor| {
            order(row.unsqueeze(1) * grid.side + column.unsqueeze(0)).view(-1)
        };
        let share = |row: &Tensor, column: &Tensor| order(row.unsqueeze(1) * column.unsqueeze(0));
        let (far_y, far_x) = (1.0 - &y.share, 1.0 - &x.share);
        let neighbours = [
            (&y.low, &x.low),
            (&y.low, &x.high),
            (&y.high, &x.low),
            (&y.high, &x.high),
        ];
        let shares = [
            (&far_y, &far_x),
            (&far_y, &x.share),
            (&y.share, &far_x),
            (&y.share, &x.share),
        ];
        let angles = |count: i64| Tensor::arange(count, (inverse.kind(), device)).outer(inverse);
        let spread =
            |angles: Tensor, dim: i64| angles.unsqueeze(dim).expand([height, width, -1], false);
        let freqs = Tensor::cat(&[spread(angles(height), 1), spread(angles(width), 0)], -1);
        Self {
            neighbours: Tensor::stack(&neighbours.map(|(row, column)| corner(row, column)), 0),
            shares: Tensor::stack(&shares.map(|(row, column)| share(row, column)), 0),
            freqs: order(freqs.contiguous()),
        }
    }
}

/// Interpolation along one axis of the position table.
struct TableAxis {
    low: Tensor,
    high: Tensor,
    share: Tensor,
}

impl TableAxis {
    /// Spreads `count` points evenly from the first to the last of `side` entries.
    fn new(count: i64, side: i64, device: Device) -> Self {
        let at = Tensor::linspace(0.0, (side - 1) as f64, count, (Kind::Float, device));
        let low = at.to_kind(Kind::Int64);
        let high = (&low + 1).clamp_max(side - 1);
        Self {
            share: at - &low,
            low,
            high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_row_then_column() {
        let layout = PatchTables::new(
            &[[1, 2, 4]],
            PatchGrid { side: 4, merge: 2 },
            &Tensor::from_slice(&[1.0f32]),
            &Tensor::zeros([16, 1], (Kind::Float, Device::Cpu)),
        );
        let found = Vec::<f32>::try_from(layout.freqs.view(-1)).unwrap();
        assert_eq!(found[..8], [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
        assert_eq!(found[8..], [0.0, 2.0, 0.0, 3.0, 1.0, 2.0, 1.0, 3.0]);
    }
}
