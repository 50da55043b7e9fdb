//! Functions for unit quaternions `[w, x, y, z]` and rotation vectors (axis times angle, radians).

/// Returns the product of two quaternions: the rotation `b` followed by `a`.
pub(crate) fn multiply(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    let ([aw, ax, ay, az], [bw, bx, by, bz]) = (a, b);
    [
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    ]
}

/// Returns the inverse of a unit quaternion.
pub(crate) fn conjugate([w, x, y, z]: [f64; 4]) -> [f64; 4] {
    [w, -x, -y, -z]
}

/// Scales a quaternion to length 1, which rounding errors change after many products.
pub(crate) fn normalize(q: [f64; 4]) -> [f64; 4] {
    let length = q.iter().map(|v| v * v).sum::<f64>().sqrt();
    if length < 1e-9 {
        [1.0, 0.0, 0.0, 0.0]
    } else {
        q.map(|v| v / length)
    }
}

/// Returns the quaternion of a rotation vector.
pub(crate) fn from_vector(v: [f64; 3]) -> [f64; 4] {
    let angle = norm(v);
    if angle < 1e-9 {
        return normalize([1.0, v[0] / 2.0, v[1] / 2.0, v[2] / 2.0]);
    }
    let scale = (angle / 2.0).sin() / angle;
    [
        (angle / 2.0).cos(),
        v[0] * scale,
        v[1] * scale,
        v[2] * scale,
    ]
}

/// Returns the shortest rotation vector of a quaternion.
pub(crate) fn to_vector(q: [f64; 4]) -> [f64; 3] {
    let [w, x, y, z] = if q[0] < 0.0 { q.map(|v| -v) } else { q };
    let sine = norm([x, y, z]);
    let scale = if sine < 1e-9 {
        2.0
    } else {
        2.0 * sine.atan2(w) / sine
    };
    [x * scale, y * scale, z * scale]
}

/// Returns the rotation vector, in the base frame, that turns `from` into `to`.
pub(crate) fn difference(from: [f64; 4], to: [f64; 4]) -> [f64; 3] {
    to_vector(multiply(to, conjugate(from)))
}

/// Rotates a vector by a quaternion.
pub(crate) fn rotate(q: [f64; 4], v: [f64; 3]) -> [f64; 3] {
    let [_, x, y, z] = multiply(multiply(q, [0.0, v[0], v[1], v[2]]), conjugate(q));
    [x, y, z]
}

/// Returns the quaternion of a row-major rotation matrix.
pub(crate) fn from_matrix(m: &[f64; 9]) -> [f64; 4] {
    let squares = [
        1.0 + m[0] + m[4] + m[8],
        1.0 + m[0] - m[4] - m[8],
        1.0 - m[0] + m[4] - m[8],
        1.0 - m[0] - m[4] + m[8],
    ];
    // Dividing by the largest component keeps half turns exact.
    let largest = (0..4)
        .max_by(|&a, &b| squares[a].total_cmp(&squares[b]))
        .unwrap_or(0);
    let (wx, wy, wz) = (m[7] - m[5], m[2] - m[6], m[3] - m[1]);
    let (xy, xz, yz) = (m[1] + m[3], m[2] + m[6], m[5] + m[7]);
    normalize(match largest {
        0 => [squares[0], wx, wy, wz],
        1 => [wx, squares[1], xy, xz],
        2 => [wy, xy, squares[2], yz],
        _ => [wz, xz, yz, squares[3]],
    })
}

/// Returns the horizontal distance between two points.
///
/// It is written out because `hypot` differs between C libraries, and needs glibc 2.35.
pub(crate) fn flat_distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (x, y) = (a[0] - b[0], a[1] - b[1]);
    (x * x + y * y).sqrt()
}

/// Returns the Euclidean length of a vector.
pub(crate) fn norm(v: [f64; 3]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Returns `a - b`.
pub(crate) fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// Returns `v`, shortened to `length` if it is longer.
pub(crate) fn shorten(v: [f64; 3], length: f64) -> [f64; 3] {
    let found = norm(v);
    if found <= length {
        v
    } else {
        v.map(|x| x * length / found)
    }
}

#[cfg(test)]
mod tests {
    use crate::env::mujoco::rotation::{
        difference, from_matrix, from_vector, minus, multiply, norm, rotate, to_vector,
    };

    #[test]
    fn vector_and_quaternion_agree_both_ways() {
        let vector = [0.4, -1.2, 0.7];
        assert!(norm(minus(to_vector(from_vector(vector)), vector)) < 1e-12);
    }

    #[test]
    fn quarter_turn_about_z_takes_x_to_y() {
        let turned = rotate(
            from_vector([0.0, 0.0, std::f64::consts::FRAC_PI_2]),
            [1.0, 0.0, 0.0],
        );
        assert!(norm(minus(turned, [0.0, 1.0, 0.0])) < 1e-12);
    }

    #[test]
    fn difference_is_what_is_left_to_turn() {
        let (start, turn) = (from_vector([0.3, 0.1, -0.5]), [0.2, 0.0, 0.4]);
        assert!(
            norm(minus(
                difference(start, multiply(from_vector(turn), start)),
                turn
            )) < 1e-12
        );
    }

    #[test]
    fn half_turn_matrix_gives_its_axis() {
        assert_eq!(
            from_matrix(&[-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0]),
            [0.0, 0.0, 1.0, 0.0]
        );
    }
}
