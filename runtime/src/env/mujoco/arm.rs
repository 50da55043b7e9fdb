//! Converts actions to joint targets.
//!
//! An action moves a *commanded* pose of the hand, not the measured one, so that a zero action
//! holds still and servo errors do not add up. Joint targets follow the commanded pose by damped
//! least squares with the home posture in the null space. (robosuite's `OperationalSpaceController`
//! has the same seven numbers and scales, but controls torques; here they are position servos.)

use std::sync::Arc;

use mujoco_rs::prelude::{MjData, MjModel};

use crate::env::mujoco::model::{ARM_JOINTS, SceneModel};
use crate::env::mujoco::rotation::{
    difference, from_matrix, from_vector, minus, multiply, norm, normalize, shorten,
};

/// Metres that a component of 1 moves the hand in one step (robosuite, LIBERO: `output_max` 0.05).
pub(crate) const METRES_PER_ACTION: f64 = 0.05;

/// Radians that a component of 1 turns the hand in one step (robosuite, LIBERO: `output_max` 0.5).
pub(crate) const RADIANS_PER_ACTION: f64 = 0.5;

/// Joint angles at the start of an episode, before noise: hand over the table, pointing down.
pub(super) const HOME: [f64; ARM_JOINTS] = [0.0, 0.47, 0.0, 1.665, 0.0, 1.0066, 0.0];

/// Largest distance between commanded and measured pose, in metres and radians, so that a blocked
/// hand does not wind up.
const LEASH: (f64, f64) = (0.08, 0.7);

/// Bounds of the commanded position: lowest and highest x, y, z in metres.
const WORKSPACE: [[f64; 2]; 3] = [[0.20, 0.72], [-0.45, 0.45], [0.014, 0.60]];

/// Damping of the least squares, in metres per radian.
const DAMPING: f64 = 0.02;

/// Iterations of inverse kinematics in one step; each starts where the last one ended.
const ITERATIONS: usize = 5;

/// Largest change of a joint target in one step, in radians.
const JOINT_STEP: f64 = 0.5;

/// Position and orientation (`[w, x, y, z]`) of the hand in the base frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HandPose {
    pub(super) position: [f64; 3],
    pub(super) quaternion: [f64; 4],
}

impl HandPose {
    /// Returns the pose of the hand in `data`, whose kinematics must be up to date.
    ///
    /// Of the two quaternions of an orientation it returns the one with `y >= 0`. A hand that
    /// points down is near `[0, 0, 1, 0]`, so the sign does not jump there.
    pub(super) fn of_hand(model: &SceneModel, data: &MjData<Arc<MjModel>>) -> Self {
        let q = from_matrix(&data.site_xmat()[model.grip]);
        let quaternion = if q[2] < 0.0 { q.map(|v| -v) } else { q };
        Self {
            position: data.site_xpos()[model.grip],
            quaternion,
        }
    }

    /// Returns the translation in metres and the rotation vector from this pose to `to`.
    fn error(&self, to: &Self) -> [f64; 6] {
        let [x, y, z] = minus(to.position, self.position);
        let [a, b, c] = difference(self.quaternion, to.quaternion);
        [x, y, z, a, b, c]
    }
}

/// The commanded pose and joint angles of one copy.
pub(super) struct Commander {
    pose: HandPose,
    joints: [f64; ARM_JOINTS],
}

impl Commander {
    /// Creates a commander for the current pose of the arm.
    pub(super) fn new(pose: HandPose, joints: [f64; ARM_JOINTS]) -> Self {
        Self { pose, joints }
    }

    /// Returns the joint targets of the last step.
    pub(super) fn joints(&self) -> &[f64; ARM_JOINTS] {
        &self.joints
    }

    /// Applies the first six components of an action and returns joint targets. `scratch` is only
    /// used for kinematics; nothing in it outlives the call.
    pub(super) fn command(
        &mut self,
        model: &SceneModel,
        scratch: &mut MjData<Arc<MjModel>>,
        measured: HandPose,
        action: &[f32],
    ) -> [f64; ARM_JOINTS] {
        self.pose = leashed(moved(self.pose, action), measured);
        let start = self.joints;
        for _ in 0..ITERATIONS {
            let reached = self.kinematics(model, scratch);
            let error = reached.error(&self.pose);
            let (jacobian_p, jacobian_r) = scratch.jac_site(true, true, model.grip);
            let jacobian = rows(&jacobian_p, &jacobian_r);
            let step = least_squares(&jacobian, &error, &self.joints);
            for (joint, value) in self.joints.iter_mut().enumerate() {
                let [low, high] = model.limits[joint];
                let (near, far) = (
                    (start[joint] - JOINT_STEP).max(low),
                    (start[joint] + JOINT_STEP).min(high),
                );
                *value = (*value + step[joint]).clamp(near.min(high), far.max(low));
            }
        }
        self.give_way(model, scratch);
        self.joints
    }

    /// If the command is out of reach, replaces it with the reached pose, so that the way back
    /// starts at once.
    fn give_way(&mut self, model: &SceneModel, scratch: &mut MjData<Arc<MjModel>>) {
        let reached = self.kinematics(model, scratch);
        let [x, y, z, a, b, c] = reached.error(&self.pose);
        if norm([x, y, z]) > 0.005 || norm([a, b, c]) > 0.05 {
            self.pose = reached;
        }
    }

    fn kinematics(&self, model: &SceneModel, scratch: &mut MjData<Arc<MjModel>>) -> HandPose {
        scratch.qpos_mut()[..ARM_JOINTS].copy_from_slice(&self.joints);
        scratch.kinematics();
        scratch.com_pos();
        HandPose::of_hand(model, scratch)
    }
}

fn moved(pose: HandPose, action: &[f32]) -> HandPose {
    let part = |index: usize, scale: f64| f64::from(action[index]) * scale;
    let mut position = pose.position;
    for (axis, value) in position.iter_mut().enumerate() {
        let [low, high] = WORKSPACE[axis];
        *value = (*value + part(axis, METRES_PER_ACTION)).clamp(low, high);
    }
    let turn = [3, 4, 5].map(|index| part(index, RADIANS_PER_ACTION));
    HandPose {
        position,
        quaternion: normalize(multiply(from_vector(turn), pose.quaternion)),
    }
}

fn leashed(pose: HandPose, measured: HandPose) -> HandPose {
    let offset = shorten(minus(pose.position, measured.position), LEASH.0);
    let turn = shorten(difference(measured.quaternion, pose.quaternion), LEASH.1);
    let position = [0, 1, 2].map(|axis| measured.position[axis] + offset[axis]);
    HandPose {
        position,
        quaternion: normalize(multiply(from_vector(turn), measured.quaternion)),
    }
}

/// Returns the arm's columns of both Jacobians (`[3, nv]` each, row-major) as `[6, 7]`.
fn rows(position: &[f64], rotation: &[f64]) -> [[f64; ARM_JOINTS]; 6] {
    let nv = position.len() / 3;
    let row =
        |source: &[f64], index: usize| std::array::from_fn(|joint| source[index * nv + joint]);
    std::array::from_fn(|index| {
        if index < 3 {
            row(position, index)
        } else {
            row(rotation, index - 3)
        }
    })
}

/// Returns the joint step `Jᵀ (J Jᵀ + λ² I)⁻¹ (e - J h) + h`, where `h` pulls towards [`HOME`].
fn least_squares(
    jacobian: &[[f64; ARM_JOINTS]; 6],
    error: &[f64; 6],
    joints: &[f64; ARM_JOINTS],
) -> [f64; ARM_JOINTS] {
    let home: [f64; ARM_JOINTS] = std::array::from_fn(|joint| 0.02 * (HOME[joint] - joints[joint]));
    let dot = |a: &[f64; ARM_JOINTS], b: &[f64; ARM_JOINTS]| {
        a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>()
    };
    let mut matrix: [[f64; 6]; 6] = std::array::from_fn(|row| {
        std::array::from_fn(|column| dot(&jacobian[row], &jacobian[column]))
    });
    for (index, row) in matrix.iter_mut().enumerate() {
        row[index] += DAMPING * DAMPING;
    }
    let right = std::array::from_fn(|row| error[row] - dot(&jacobian[row], &home));
    let solution = solve(matrix, right);
    std::array::from_fn(|joint| {
        home[joint]
            + (0..6)
                .map(|row| jacobian[row][joint] * solution[row])
                .sum::<f64>()
    })
}

/// Solves a symmetric positive definite system by Gaussian elimination; the damping keeps the
/// pivots above zero.
fn solve(mut matrix: [[f64; 6]; 6], mut right: [f64; 6]) -> [f64; 6] {
    for pivot in 0..6 {
        let upper = matrix[pivot];
        for row in pivot + 1..6 {
            let factor = matrix[row][pivot] / upper[pivot];
            matrix[row]
                .iter_mut()
                .zip(upper)
                .for_each(|(value, above)| *value -= factor * above);
            right[row] -= factor * right[pivot];
        }
    }
    for row in (0..6).rev() {
        let known: f64 = (row + 1..6)
            .map(|column| matrix[row][column] * right[column])
            .sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}

#[cfg(test)]
mod tests {
    use crate::env::mujoco::arm::{HandPose, LEASH, leashed, moved, solve};
    use crate::env::mujoco::rotation::{minus, norm};

    const DOWN: HandPose = HandPose {
        position: [0.4, 0.0, 0.2],
        quaternion: [0.0, 0.0, 1.0, 0.0],
    };

    #[test]
    fn system_is_solved() {
        let mut matrix = [[0.5; 6]; 6];
        for (index, row) in matrix.iter_mut().enumerate() {
            row[index] = 3.0;
        }
        // Every row of the matrix sums to 5.5.
        assert!(
            solve(matrix, [5.5; 6])
                .iter()
                .all(|x| (x - 1.0).abs() < 1e-12)
        );
    }

    #[test]
    fn a_component_of_one_moves_five_centimetres() {
        let pose = moved(DOWN, &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!((pose.position[0] - 0.45).abs() < 1e-9);
        assert_eq!(pose.quaternion, DOWN.quaternion);
    }

    #[test]
    fn commanded_pose_stays_near_a_blocked_hand() {
        let far = HandPose {
            position: [0.7, 0.0, 0.2],
            ..DOWN
        };
        assert!((norm(minus(leashed(far, DOWN).position, DOWN.position)) - LEASH.0).abs() < 1e-12);
    }
}
