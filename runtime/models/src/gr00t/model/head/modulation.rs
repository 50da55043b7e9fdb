//! Layer norms whose scale and shift depend on the flow time.

use tch::Tensor;

use crate::nn::layers::plain_norm;

/// The parameters of LN(x)·(1 + scale) + shift over the last axis.
#[derive(Debug)]
pub(super) enum Modulation {
    /// One scale and shift per sample, each `[B, 1, width]`.
    Rows {
        /// The scale; the factor is 1 + scale.
        scale: Tensor,
        /// The shift.
        shift: Tensor,
    },
    /// The same values for all samples, as weight and bias of a layer norm, `[width]`.
    Shared {
        /// The factor 1 + scale.
        weight: Tensor,
        /// The shift.
        bias: Tensor,
    },
}

/// All modulations at one flow time.
#[derive(Debug)]
pub(super) struct TimeModulation {
    /// One modulation per block.
    pub blocks: Vec<Modulation>,
    /// The modulation before the output layer.
    pub out: Modulation,
}

impl Modulation {
    /// Builds a modulation from scale and shift, each `[B, width]`.
    pub fn of(scale: &Tensor, shift: &Tensor) -> Self {
        Self::Rows {
            scale: scale.unsqueeze(1),
            shift: shift.unsqueeze(1),
        }
    }

    /// Turns the modulation of a batch of one into one for any batch.
    pub fn shared(self) -> Self {
        match self {
            Self::Rows { scale, shift } => Self::Shared {
                weight: (scale + 1.0).view(-1),
                bias: shift.contiguous().view(-1),
            },
            shared @ Self::Shared { .. } => shared,
        }
    }

    /// Normalises and modulates rows `[B·n, width]`; the shape stays the same.
    pub fn apply(&self, x: &Tensor, rows: i64, eps: f64) -> Tensor {
        match self {
            Self::Rows { scale, shift } => {
                let width = x.size()[1];
                let normed = plain_norm(&x.view([rows, -1, width]), width, eps);
                (normed * (scale + 1.0) + shift).view([-1, width])
            }
            Self::Shared { weight, bias } => {
                x.layer_norm(weight.size(), Some(weight), Some(bias), eps, false)
            }
        }
    }
}

impl TimeModulation {
    /// Turns the modulations of a batch of one into ones for any batch.
    pub fn shared(self) -> Self {
        Self {
            blocks: self.blocks.into_iter().map(Modulation::shared).collect(),
            out: self.out.shared(),
        }
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
        assert!(
            (modulation.shared().apply(&x, 1, 1e-5) - rows)
                .abs()
                .max()
                .double_value(&[])
                < 1e-5
        );
    }
}
