//! End-effector poses: a rotation and a position, in the three layouts that checkpoints use.

use crate::gr00t::processor::modality::PoseFormat;

type Matrix = [[f64; 3]; 3];
type Vector = [f64; 3];

/// A rigid transform: p ↦ rotation · p + position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RigidPose {
    rotation: Matrix,
    /// Position in metres.
    position: Vector,
}

impl PoseFormat {
    /// Returns how many numbers a pose has.
    pub fn width(self) -> usize {
        match self {
            Self::Default => 16,
            Self::XyzRot6d => 9,
            Self::XyzRotvec => 6,
        }
    }
}

impl RigidPose {
    /// Reads a pose from `format.width()` numbers.
    pub(super) fn read(format: PoseFormat, values: &[f64]) -> Self {
        match format {
            PoseFormat::Default => {
                let row = |index: usize| vector(&values[4 * index..]);
                Self {
                    rotation: [row(0), row(1), row(2)],
                    position: [values[3], values[7], values[11]],
                }
            }
            PoseFormat::XyzRot6d => Self {
                rotation: orthogonal(vector(&values[3..]), vector(&values[6..])),
                position: vector(values),
            },
            PoseFormat::XyzRotvec => Self {
                rotation: from_rotation_vector(vector(&values[3..])),
                position: vector(values),
            },
        }
    }

    /// Transforms this pose, given in the frame of `reference`, into the frame in which `reference`
    /// is given.
    pub(super) fn seen_from(&self, reference: &Self) -> Self {
        let moved = times(&reference.rotation, self.position);
        Self {
            rotation: product(&reference.rotation, &self.rotation),
            position: [0, 1, 2].map(|axis| moved[axis] + reference.position[axis]),
        }
    }

    pub(super) fn write(&self, format: PoseFormat, out: &mut Vec<f64>) {
        let ([a, b, c], p) = (self.rotation, self.position);
        match format {
            PoseFormat::Default => {
                for (row, offset) in [a, b, c].iter().zip(p) {
                    out.extend(row);
                    out.push(offset);
                }
                out.extend([0.0, 0.0, 0.0, 1.0]);
            }
            PoseFormat::XyzRot6d => out.extend([p, a, b].as_flattened()),
            PoseFormat::XyzRotvec => {
                out.extend([p, rotation_vector(&self.rotation)].as_flattened());
            }
        }
    }
}

fn vector(values: &[f64]) -> Vector {
    [values[0], values[1], values[2]]
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

fn unit(a: Vector) -> Vector {
    let length = dot(a, a).sqrt();
    a.map(|x| x / length)
}

fn times(matrix: &Matrix, v: Vector) -> Vector {
    matrix.map(|row| dot(row, v))
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let column = |index: usize| [b[0][index], b[1][index], b[2][index]];
    a.map(|row| [0, 1, 2].map(|index| dot(row, column(index))))
}

/// Returns the rotation whose first two rows are nearest to `a` and `b`, by the Gram–Schmidt
/// process.
fn orthogonal(a: Vector, b: Vector) -> Matrix {
    let first = unit(a);
    let along = dot(first, b);
    let second = unit([0, 1, 2].map(|axis| b[axis] - along * first[axis]));
    [first, second, cross(first, second)]
}

/// Converts a rotation vector to a matrix by Rodrigues' formula; the vector's length is the angle
/// in radians.
fn from_rotation_vector(v: Vector) -> Matrix {
    let angle = dot(v, v).sqrt();
    // sin(angle)/angle and (1 - cos(angle))/angle², by their series where the quotients lose
    // precision.
    let (s, c) = if angle < 1e-4 {
        (1.0 - angle * angle / 6.0, 0.5 - angle * angle / 24.0)
    } else {
        (angle.sin() / angle, (1.0 - angle.cos()) / (angle * angle))
    };
    let [x, y, z] = v;
    let square = dot(v, v);
    [
        [
            1.0 - c * (square - x * x),
            c * x * y - s * z,
            c * x * z + s * y,
        ],
        [
            c * x * y + s * z,
            1.0 - c * (square - y * y),
            c * y * z - s * x,
        ],
        [
            c * x * z - s * y,
            c * y * z + s * x,
            1.0 - c * (square - z * z),
        ],
    ]
}

/// Returns axis times angle, with the angle in [0, π]. The conversion goes through the quaternion
/// and computes its largest component first.
fn rotation_vector(m: &Matrix) -> Vector {
    let trace = m[0][0] + m[1][1] + m[2][2];
    let skew = [m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]];
    let largest = [0, 1, 2].into_iter().fold(0, |best, axis| {
        if m[axis][axis] > m[best][best] {
            axis
        } else {
            best
        }
    });
    let (axis, w) = if trace >= m[largest][largest] {
        (skew, 1.0 + trace)
    } else {
        let (i, j, k) = (largest, (largest + 1) % 3, (largest + 2) % 3);
        let mut axis = [0.0; 3];
        axis[i] = 1.0 - trace + 2.0 * m[i][i];
        axis[j] = m[j][i] + m[i][j];
        axis[k] = m[k][i] + m[i][k];
        (axis, skew[i])
    };
    let (axis, w) = if w < 0.0 {
        (axis.map(|x| -x), -w)
    } else {
        (axis, w)
    };
    let length = dot(axis, axis).sqrt();
    let angle = 2.0 * length.atan2(w);
    // Near the identity, angle/length tends to 2/w, since both shrink at the same rate.
    let factor = if length < 1e-12 * w {
        2.0 / w
    } else {
        angle / length
    };
    axis.map(|x| x * factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn through(format: PoseFormat, values: &[f64]) -> Vec<f64> {
        let mut out = Vec::new();
        RigidPose::read(format, values).write(format, &mut out);
        out
    }

    fn assert_near(found: &[f64], wanted: &[f64]) {
        assert!(
            found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9),
            "{found:?} is not {wanted:?}"
        );
    }

    #[test]
    fn half_a_turn_has_an_axis() {
        let pi = std::f64::consts::PI;
        for axis in 0..3 {
            let mut values = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0];
            values[3 + axis] = pi;
            assert_near(&through(PoseFormat::XyzRotvec, &values), &values);
        }
    }

    #[test]
    fn a_pose_relative_to_itself_being_the_origin_is_itself() {
        let values = [0.1, 0.2, 0.3, 0.4, -0.5, 0.6];
        let pose = RigidPose::read(PoseFormat::XyzRotvec, &values);
        let origin = RigidPose::read(PoseFormat::XyzRotvec, &[0.0; 6]);
        assert_eq!(pose.seen_from(&origin), pose);
    }

    #[test]
    fn a_quarter_turn_about_z_moves_x_to_y() {
        let turn = RigidPose::read(
            PoseFormat::XyzRotvec,
            &[1.0, 0.0, 0.0, 0.0, 0.0, std::f64::consts::FRAC_PI_2],
        );
        let step = RigidPose::read(PoseFormat::XyzRotvec, &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let mut out = Vec::new();
        step.seen_from(&turn).write(PoseFormat::XyzRot6d, &mut out);
        assert_near(&out, &[1.0, 1.0, 0.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn every_layout_gives_back_what_it_was_given(v in prop::array::uniform3(-1.7f64..1.7), p in prop::array::uniform3(-5.0f64..5.0)) {
            let values = [p, v].concat();
            assert_near(&through(PoseFormat::XyzRotvec, &values), &values);
            let pose = RigidPose::read(PoseFormat::XyzRotvec, &values);
            for format in [PoseFormat::Default, PoseFormat::XyzRot6d] {
                let mut out = Vec::new();
                pose.write(format, &mut out);
                assert_near(&through(format, &out), &out);
            }
        }

        #[test]
        fn small_turns_keep_their_digits(v in prop::array::uniform3(-1e-7f64..1e-7)) {
            let found = through(PoseFormat::XyzRotvec, &[[0.0; 3], v].concat());
            prop_assert!(found[3..].iter().zip(v).all(|(a, b)| (a - b).abs() < 1e-15));
        }
    }
}
