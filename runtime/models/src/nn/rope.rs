//! Rotary position embedding: the tables of angles and the rotation itself.

use tch::{Device, Kind, Tensor};

/// The cosine, and the sine with the sign of the rotation, for every position: `[…, d]`, with both
/// halves filled.
pub(crate) struct RopeTable {
    cos: Tensor,
    sin: Tensor,
    half: i64,
}

impl RopeTable {
    /// Builds the rotation from cosines and sines that repeat after d/2.
    pub fn new(cos: Tensor, sin: &Tensor) -> Self {
        let halves = sin.chunk(2, -1);
        let sin = Tensor::cat(&[&halves[0].neg(), &halves[1]], -1);
        let half = halves[0].size().last().copied().unwrap_or_default();
        Self { cos, sin, half }
    }

    /// Returns x·cos + rot(x)·sin with rot(x) = (−second half, first half), in the wider of both
    /// dtypes. In a narrow dtype every product is rounded, as in the reference.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let swapped = x.roll([self.half], [-1]);
        let straight = x * &self.cos;
        if self.cos.kind() == Kind::Float {
            return { straight }.addcmul_(&swapped, &self.sin);
        }
        straight + swapped * &self.sin
    }

    /// Computes the same from `x` and from `x` with its halves swapped, in two operators and in the
    /// dtype of `x`: both products and their sum are rounded once. The result is contiguous,
    /// whatever `x` is a view of.
    pub fn apply_swapped(&self, x: &Tensor, swapped: &Tensor) -> Tensor {
        let out = Tensor::empty(x.size(), (x.kind(), x.device()));
        (x * &self.cos).addcmul_out(&out, swapped, &self.sin)
    }
}

/// Returns 1 / base^(2i/width) for i < width/2, computed in float32 and rounded to `buffer`.
pub(crate) fn frequencies(base: f64, width: i64, buffer: Kind, device: Device) -> Tensor {
    let exponent = Tensor::arange_start_step(0, width, 2, (Kind::Float, device)) / width as f64;
    Tensor::pow_scalar(base, &exponent)
        .reciprocal()
        .to_kind(buffer)
}

/// Rotary tables of the language model, with interleaved axes.
pub(crate) struct TextRope {
    /// Rotary frequencies, `[head_dim / 2]`, float32.
    inverse: Tensor,
    /// Axis (0 time, 1 height, 2 width) of each frequency.
    axes: Vec<i64>,
    kind: Kind,
}

impl TextRope {
    /// Creates tables in `kind` from frequencies rounded to `buffer`.
    pub fn new(
        theta: f64,
        head_dim: i64,
        section: [i64; 3],
        (buffer, kind): (Kind, Kind),
        device: Device,
    ) -> Self {
        let inverse = frequencies(theta, head_dim, buffer, device).to_kind(Kind::Float);
        Self {
            inverse,
            axes: axes(head_dim / 2, section),
            kind,
        }
    }

    /// Returns cos and sin of positions `[3, B, S]`: each `[B, S, head_dim]`.
    pub fn tables(&self, positions: &Tensor) -> (Tensor, Tensor) {
        let angles = positions.to_kind(Kind::Float).unsqueeze(-1) * &self.inverse;
        let columns: Vec<_> = (0..)
            .zip(&self.axes)
            .map(|(i, &axis)| angles.get(axis).select(-1, i))
            .collect();
        let half = Tensor::stack(&columns, -1);
        let angles = Tensor::cat(&[&half, &half], -1);
        (
            angles.cos().to_kind(self.kind),
            angles.sin().to_kind(self.kind),
        )
    }
}

/// Returns the axis of each of `count` frequencies: time, height and width in turn while each has
/// frequencies left, then time.
fn axes(count: i64, section: [i64; 3]) -> Vec<i64> {
    (0..count)
        .map(|i| match i % 3 {
            1 if i < 3 * section[1] => 1,
            2 if i < 3 * section[2] => 2,
            _ => 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_axes_are_interleaved_until_they_are_used_up() {
        let axes = axes(64, [24, 20, 20]);
        assert_eq!(
            (&axes[..4], &axes[57..]),
            (&[0, 1, 2, 0][..], &[0, 1, 2, 0, 0, 0, 0][..])
        );
        assert_eq!(
            [0, 1, 2].map(|axis| axes.iter().filter(|&&a| a == axis).count()),
            [24, 20, 20]
        );
    }

    #[test]
    fn a_vector_and_its_swapped_halves_turn_as_the_vector_does() {
        tch::manual_seed(1);
        let angles = Tensor::rand([5, 3], (Kind::Float, Device::Cpu));
        let angles = Tensor::cat(&[&angles, &angles], -1);
        let turn = RopeTable::new(angles.cos(), &angles.sin());
        let x = Tensor::randn([5, 6], (Kind::Float, Device::Cpu));
        let swapped = x.roll([3], [-1]);
        assert!(
            (turn.apply_swapped(&x, &swapped) - turn.apply(&x))
                .abs()
                .max()
                .double_value(&[])
                < 1e-6
        );
        let narrow = x.to_kind(Kind::BFloat16);
        let found = turn.apply_swapped(&narrow, &narrow.roll([3], [-1]));
        assert_eq!(found, turn.apply(&narrow).to_kind(Kind::BFloat16));
    }
}
