//! The state that the scripted expert reads, and its prediction of the effect of an action.

use std::f64::consts::FRAC_PI_2;

use crate::env::Observation;
use crate::env::mujoco::arm::{METRES_PER_ACTION, RADIANS_PER_ACTION};
use crate::env::mujoco::rotation::{flat_distance, from_vector, minus, multiply, norm, rotate};
use crate::policy::RowError;

/// Number of components of an action.
pub(super) const ACTION_DIM: usize = 7;

/// Finger opening below which the hand counts as holding something, in metres (of at most 0.04).
pub(super) const HOLDING: f64 = 0.0215;

/// The state that the expert uses, observed or predicted; lengths in metres.
#[derive(Clone, Copy, Debug)]
pub(super) struct SceneState {
    pub(super) hand: [f64; 3],
    pub(super) quaternion: [f64; 4],
    /// Mean opening of the two fingers.
    pub(super) finger: f64,
    pub(super) object: [f64; 3],
    pub(super) object_quaternion: [f64; 4],
    pub(super) goal: [f64; 3],
}

impl SceneState {
    pub(super) fn new(observation: &Observation) -> Result<Self, RowError> {
        let finger: [f64; 2] = read(observation, "gripper_position")?;
        let mut seen = Self {
            hand: read(observation, "eef_position")?,
            quaternion: read(observation, "eef_quaternion")?,
            finger: (finger[0] + finger[1]) / 2.0,
            object: [0.0; 3],
            object_quaternion: [1.0, 0.0, 0.0, 0.0],
            goal: read(observation, "goal_position")?,
        };
        if observation.state.contains_key("object_position") {
            seen.object = read(observation, "object_position")?;
            seen.object_quaternion = read(observation, "object_quaternion")?;
        }
        Ok(seen)
    }

    /// Returns the horizontal distance between object and goal.
    pub(super) fn distance_to_goal(&self) -> f64 {
        flat_distance(self.object, self.goal)
    }

    /// Returns the horizontal direction from object to goal.
    pub(super) fn heading(&self) -> [f64; 2] {
        let distance = self.distance_to_goal().max(1e-9);
        [0, 1].map(|axis| (self.goal[axis] - self.object[axis]) / distance)
    }

    /// Returns the yaw at which the fingers meet two faces of a block, within an eighth of a turn.
    pub(super) fn grasp_yaw(&self) -> f64 {
        let [x, y, _] = rotate(self.object_quaternion, [1.0, 0.0, 0.0]);
        nearest_to_zero(y.atan2(x), FRAC_PI_2)
    }

    /// Predicts the state after an action.
    pub(super) fn after(&self, action: &[f64; ACTION_DIM]) -> Self {
        let moved = [0, 1, 2].map(|axis| action[axis] * METRES_PER_ACTION);
        let turned = from_vector([3, 4, 5].map(|axis| action[axis] * RADIANS_PER_ACTION));
        let close = norm(minus(self.object, self.hand)) < 0.03;
        let held = close && self.finger < HOLDING;
        let finger = match (action[6] > 0.0, close) {
            (true, true) => (self.finger - 0.01).max(0.02),
            (true, false) => (self.finger - 0.01).max(0.0),
            (false, _) => (self.finger + 0.01).min(0.04),
        };
        let add = |point: [f64; 3]| [0, 1, 2].map(|axis| point[axis] + moved[axis]);
        Self {
            hand: add(self.hand),
            quaternion: multiply(turned, self.quaternion),
            finger,
            object: if held { add(self.object) } else { self.object },
            ..*self
        }
    }
}

/// Returns the equivalent angle nearest to 0, where angles are equivalent if they differ by whole
/// periods.
pub(super) fn nearest_to_zero(angle: f64, period: f64) -> f64 {
    angle - period * (angle / period).round()
}

fn read<const N: usize>(observation: &Observation, key: &str) -> Result<[f64; N], RowError> {
    let values = observation.state.get(key).map_or(&[][..], Vec::as_slice);
    let found = values.len();
    let values = <[f32; N]>::try_from(values).map_err(|_| {
        RowError(format!(
            "policy `scripted`: state `{key}` has {found} values, expected {N}"
        ))
    })?;
    Ok(values.map(f64::from))
}

#[cfg(test)]
mod tests {
    use crate::policy::scripted::view::nearest_to_zero;

    #[test]
    fn angle_is_taken_to_the_period_around_zero() {
        assert!((nearest_to_zero(2.0, 1.5) - 0.5).abs() < 1e-12);
        assert!((nearest_to_zero(-1.0, 1.5) - 0.5).abs() < 1e-12);
    }
}
