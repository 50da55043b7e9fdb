//! The ranges by which states and actions are normalised: the `statistics.json` of the checkpoint.
//!
//! These are the ranges of the arm and of the expert, not those of the samples: an angle that
//! hardly moves in the samples would otherwise be stretched until its noise is as large as the
//! motion.

/// The state vectors that the network sees: name, minima and maxima. Positions of targets are not
/// among them.
pub const STATE: [(&str, &[f64], &[f64]); 3] = [
    ("eef_position", &[0.20, -0.45, 0.0], &[0.72, 0.45, 0.60]),
    ("eef_quaternion", &[-1.0; 4], &[1.0; 4]),
    ("gripper_position", &[0.0; 2], &[0.04; 2]),
];

/// The parts of the action: name, minimum and maximum.
pub const ACTION: [(&str, &[f64], &[f64]); 7] = [
    ("dx", &[-0.45], &[0.45]),
    ("dy", &[-0.45], &[0.45]),
    ("dz", &[-0.45], &[0.45]),
    ("droll", &[-0.5], &[0.5]),
    ("dpitch", &[-0.5], &[0.5]),
    ("dyaw", &[-0.5], &[0.5]),
    ("gripper", &[-1.0], &[1.0]),
];

/// Normalises a value to -1..1, and clips it.
pub fn normalise(value: f32, low: f64, high: f64) -> f32 {
    (((f64::from(value) - low) / (high - low)) as f32 * 2.0 - 1.0).clamp(-1.0, 1.0)
}

/// Returns the concatenated state vectors that `read` provides, normalised and padded with zeros to
/// `width`.
pub fn state<'a>(read: impl Fn(&str) -> &'a [f32], width: usize) -> Vec<f32> {
    let part = |(name, low, high): &(&str, &[f64], &[f64])| {
        let ranges = low.iter().zip(*high);
        read(name)
            .iter()
            .zip(ranges)
            .map(|(&value, (&low, &high))| normalise(value, low, high))
            .collect::<Vec<_>>()
    };
    let mut out: Vec<_> = STATE.iter().flat_map(part).collect();
    out.resize(width, 0.0);
    out
}
