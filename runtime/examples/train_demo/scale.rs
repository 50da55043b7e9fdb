//! Ranges to which state and actions are normalised: the `statistics.json` of the checkpoint.
//!
//! They are the ranges of the arm and of the expert and not those of the samples: an angle that hardly moves in the
//! samples would otherwise be stretched until its noise is as large as the motion.

/// State vectors that the network sees: name, lowest and highest value. Places of targets are not among them.
pub const STATE: [(&str, &[f64], &[f64]); 3] = [
    ("eef_position", &[0.20, -0.45, 0.0], &[0.72, 0.45, 0.60]),
    ("eef_quaternion", &[-1.0; 4], &[1.0; 4]),
    ("gripper_position", &[0.0; 2], &[0.04; 2]),
];

/// Parts of the action: name, lowest and highest value.
pub const ACTION: [(&str, &[f64], &[f64]); 7] = [
    ("dx", &[-0.45], &[0.45]),
    ("dy", &[-0.45], &[0.45]),
    ("dz", &[-0.45], &[0.45]),
    ("droll", &[-0.5], &[0.5]),
    ("dpitch", &[-0.5], &[0.5]),
    ("dyaw", &[-0.5], &[0.5]),
    ("gripper", &[-1.0], &[1.0]),
];

/// To -1..1, clipped.
pub fn normalise(value: f32, low: f64, high: f64) -> f32 {
    (((f64::from(value) - low) / (high - low)) as f32 * 2.0 - 1.0).clamp(-1.0, 1.0)
}

/// The state vectors that `read` gives, one after the other, normalised and padded with zeros to `width`.
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
