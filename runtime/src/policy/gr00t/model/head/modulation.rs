//! Norms whose scale and shift come from the time.

use tch::Tensor;

use crate::policy::gr00t::model::layers::plain_norm;

/// LN(x)·(1 + scale) + shift over the last axis.
#[derive(Debug)]
pub(super) enum Modulation {
    /// A scale and a shift per sample, `[B, 1, width]`.
    Rows {
        /// Added to one.
        scale: Tensor,
        /// Added.
        shift: Tensor,
    },
    /// The same for all samples: weight (1 + scale) and bias of a layer norm, `[width]`.
    Shared {
        /// 1 + scale.
        weight: Tensor,
        /// Shift.
        bias: Tensor,
    },
}

/// All modulations at one time of the flow.
#[derive(Debug)]
pub(super) struct Times {
    /// One per block.
    pub blocks: Vec<Modulation>,
    /// In front of the output.
    pub out: Modulation,
}

impl Modulation {
    /// From `[B, width]` each.
    pub fn of(scale: &Tensor, shift: &Tensor) -> Self {
        Self::Rows { scale: scale.unsqueeze(1), shift: shift.unsqueeze(1) }
    }

    /// From a batch of one to any batch.
    pub fn shared(self) -> Self {
        match self {
            Self::Rows { scale, shift } => {
                Self::Shared { weight: (scale + 1.0).view(-1), bias: shift.contiguous().view(-1) }
            }
            shared @ Self::Shared { .. } => shared,
        }
    }

    /// Rows `[B·n, width]`, same shape.
    pub fn apply(&self, x: &Tensor, rows: i64, eps: f64) -> Tensor {
        match self {
            Self::Rows { scale, shift } => {
                let width = x.size()[1];
                let normed = plain_norm(&x.view([rows, -1, width]), width, eps);
                (normed * (scale + 1.0) + shift).view([-1, width])
            }
            Self::Shared { weight, bias } => x.layer_norm(weight.size(), Some(weight), Some(bias), eps, false),
        }
    }
}

impl Times {
    /// From a batch of one to any batch.
    pub fn shared(self) -> Self {
        Self { blocks: self.blocks.into_iter().map(Modulation::shared).collect(), out: self.out.shared() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    #[test]
    fn a_shared_modulation_equals_one_per_row() {
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu));
        let modulation = Modulation::of(&random(&[1, 8]), &random(&[1, 8]));
        let x = random(&[6, 8]);
        let rows = modulation.apply(&x, 1, 1e-5);
        assert!((modulation.shared().apply(&x, 1, 1e-5) - rows).abs().max().double_value(&[]) < 1e-5);
    }
}
