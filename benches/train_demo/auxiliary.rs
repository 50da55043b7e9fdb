//! An auxiliary loss for training: where are the goal and the object?
//!
//! Image tokens vote. The tokens of the front camera predict the positions on the table, and those
//! of both cameras the positions relative to the hand; each token predicts a position and a weight.
//! The layers that vote are discarded after training. They teach the vision tower in minutes what
//! the actions alone would take hours to teach it.

use tch::{Device, Kind, Reduction, Tensor};

use crate::batch::Wanted;
use crate::network::WIDTH;

/// Unit of all positions, in metres.
const UNIT: f64 = 0.1;

/// Centre of the positions on the table, in metres.
const MIDDLE: [f32; 3] = [0.46, 0.0, 0.1];

/// Number of predicted positions: goal and object on the table, goal and object relative to the
/// hand.
const PLACES: i64 = 4;

/// The layers that vote.
pub struct Auxiliary {
    /// Projection to the weights of the votes, `[WIDTH, PLACES]`.
    weigh: Tensor,
    /// Projection to the predicted positions, `[WIDTH, PLACES * 3]`.
    say: Tensor,
    offset: Tensor,
}

impl Auxiliary {
    /// Creates untrained layers.
    pub fn new() -> Self {
        let on = (Kind::Float, Device::Cpu);
        Self {
            weigh: Tensor::zeros([WIDTH, PLACES], on),
            say: Tensor::randn([WIDTH, PLACES * 3], on) * 0.05,
            offset: Tensor::zeros([PLACES, 3], on),
        }
    }

    /// Returns the parameters with their names.
    pub fn named(&self) -> Vec<(String, Tensor)> {
        let parts = [
            ("weigh", &self.weigh),
            ("say", &self.say),
            ("offset", &self.offset),
        ];
        parts
            .map(|(name, tensor)| (format!("auxiliary.{name}"), tensor.shallow_clone()))
            .into()
    }

    /// Returns the loss, and the distances between predicted and true positions in centimetres:
    /// `[PLACES]`, without those that the task lacks.
    ///
    /// `images` are the features of the image tokens, `[B, n, WIDTH]`, the front camera's first.
    pub fn loss(&self, images: &Tensor, wanted: &Wanted, has_object: bool) -> (Tensor, Tensor) {
        let (rows, count, _) = images.size3().expect("image tokens are [B, n, WIDTH]");
        let weights = images.matmul(&self.weigh);
        let front = weights
            .narrow(1, 0, count / 2)
            .softmax(1, Kind::Float)
            .constant_pad_nd([0, 0, 0, count - count / 2]);
        let both = weights.softmax(1, Kind::Float);
        let weights = Tensor::cat(&[front.narrow(2, 0, 2), both.narrow(2, 2, 2)], 2);
        let places = images.matmul(&self.say).view([rows, count, PLACES, 3]);
        let said =
            (places * weights.unsqueeze(-1)).sum_dim_intlist(1, false, Kind::Float) + &self.offset;
        let places = targets(wanted);
        let kept = if has_object {
            vec![0i64, 1, 2, 3]
        } else {
            vec![0, 2]
        };
        let kept = Tensor::from_slice(&kept);
        let (said, places) = (said.index_select(1, &kept), places.index_select(1, &kept));
        let distance = (&said - &places)
            .square()
            .sum_dim_intlist(-1, false, Kind::Float)
            .sqrt();
        let centimetres = distance.mean_dim(0, false, Kind::Float).detach() * (UNIT * 100.0);
        (
            said.smooth_l1_loss(&places, Reduction::Mean, UNIT),
            centimetres,
        )
    }
}

/// Returns the true positions, `[B, PLACES, 3]`, in [`UNIT`].
fn targets(wanted: &Wanted) -> Tensor {
    let middle = Tensor::from_slice(&MIDDLE);
    let (goal, object, hand) = (&wanted.goal, &wanted.object, &wanted.hand);
    Tensor::stack(
        &[goal - &middle, object - &middle, goal - hand, object - hand],
        1,
    ) / UNIT
}
