//! AdamW (Loshchilov, Hutter 2019) with clipped gradients, and a running average of the weights.

use tch::{Kind, Tensor};

/// Decay rates of the averages of gradients and of their squares.
const BETAS: (f64, f64) = (0.9, 0.98);

/// Constant added to the root of the second average.
const EPS: f64 = 1e-8;

/// Weight decay, multiplied by the learning rate.
const WEIGHT_DECAY: f64 = 0.01;

/// Norm to which gradients are clipped.
const LONGEST: f64 = 1.0;

/// Decay rate of the running average of the weights after warm-up.
const AVERAGE_DECAY: f64 = 0.998;

/// The trained weights, with the optimiser's state of each.
pub struct Optimiser {
    slots: Vec<Slot>,
    steps: i64,
}

struct Slot {
    name: String,
    weight: Tensor,
    first: Tensor,
    second: Tensor,
    average: Tensor,
}

impl Optimiser {
    /// Creates an optimiser for these weights.
    pub fn new(named: Vec<(String, Tensor)>) -> Self {
        let slot = |(name, weight): (String, Tensor)| {
            let first = weight.zeros_like();
            let (second, average) = (first.zeros_like(), weight.copy());
            Slot {
                name,
                weight: weight.set_requires_grad(true),
                first,
                second,
                average,
            }
        };
        Self {
            slots: named.into_iter().map(slot).collect(),
            steps: 0,
        }
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> i64 {
        self.steps
    }

    /// Makes one step along the negative gradient of `loss`. Weights on which the loss does not
    /// depend stay the same.
    pub fn step(&mut self, loss: &Tensor, learning_rate: f64) {
        for slot in &mut self.slots {
            slot.weight.zero_grad();
        }
        loss.backward();
        let _no_grad = tch::no_grad_guard();
        self.steps += 1;
        let scale = self.clip();
        let correct = |beta: f64| 1.0 - beta.powf(self.steps as f64);
        let (first, second) = (correct(BETAS.0), correct(BETAS.1));
        let decay = AVERAGE_DECAY.min((1.0 + self.steps as f64) / (10.0 + self.steps as f64));
        for slot in self
            .slots
            .iter_mut()
            .filter(|slot| slot.weight.grad().defined())
        {
            let gradient = slot.weight.grad() * scale;
            let _ = slot.first.lerp_(&gradient, 1.0 - BETAS.0);
            let _ = slot
                .second
                .g_mul_scalar_(BETAS.1)
                .addcmul_(&gradient, &(&gradient * (1.0 - BETAS.1)));
            let change =
                &slot.first / ((&slot.second / second).sqrt() + EPS) * (learning_rate / first);
            let _ = slot
                .weight
                .g_mul_scalar_(1.0 - learning_rate * WEIGHT_DECAY)
                .subtract_(&change);
            let _ = slot.average.lerp_(&slot.weight, 1.0 - decay);
        }
    }

    /// Returns the factor that clips the gradient.
    fn clip(&self) -> f64 {
        let squares: Vec<_> = self
            .slots
            .iter()
            .map(|slot| slot.weight.grad())
            .filter(Tensor::defined)
            .map(|g| g.square().sum(Kind::Float))
            .collect();
        let length = Tensor::stack(&squares, 0)
            .sum(Kind::Float)
            .sqrt()
            .double_value(&[]);
        (LONGEST / length.max(1e-12)).min(1.0)
    }

    /// Returns the averaged weights by name.
    pub fn averages(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.slots
            .iter()
            .map(|slot| (slot.name.as_str(), &slot.average))
    }

    /// Returns the complete state, for [`Self::restore`].
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let steps = ("steps".to_owned(), Tensor::from_slice(&[self.steps]));
        self.slots
            .iter()
            .flat_map(Slot::parts)
            .chain([steps])
            .collect()
    }

    /// Restores a state that [`Self::state`] returned.
    pub fn restore(&mut self, state: &[(String, Tensor)]) {
        let _no_grad = tch::no_grad_guard();
        let find = |name: &str| {
            let found = state.iter().find(|(found, _)| found == name);
            found.map(|(_, tensor)| tensor)
        };
        for (name, mut tensor) in self.slots.iter().flat_map(Slot::parts) {
            if let Some(from) = find(&name) {
                tensor.copy_(from);
            }
        }
        if let Some(steps) = find("steps") {
            self.steps = steps.int64_value(&[0]);
        }
    }
}

impl Slot {
    /// Returns the parts of the state with their names; they share its memory.
    fn parts(&self) -> [(String, Tensor); 4] {
        let parts = [
            ("weight", &self.weight),
            ("first", &self.first),
            ("second", &self.second),
            ("average", &self.average),
        ];
        parts.map(|(kind, tensor)| (format!("{kind}/{}", self.name), tensor.detach()))
    }
}
