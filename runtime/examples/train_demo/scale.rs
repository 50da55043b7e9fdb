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
pub fn normalise(values: impl Iterator<Item = f32>, low: f64, high: f64) -> Vec<f32> {
    values.map(|x| (((f64::from(x) - low) / (high - low)) as f32 * 2.0 - 1.0).clamp(-1.0, 1.0)).collect()
}

/// The state vectors, one after the other, normalised and padded with zeros to `width`.
pub fn state<'a>(read: impl Fn(&str) -> Option<&'a [f32]>, width: usize) -> Option<Vec<f32>> {
    let mut out = Vec::with_capacity(width);
    for (name, low, high) in STATE {
        let values = read(name)?;
        for ((&value, &low), &high) in values.iter().zip(low).zip(high) {
            out.extend(normalise(std::iter::once(value), low, high));
        }
    }
    out.resize(width, 0.0);
    Some(out)
}

/// From -1..1 to an action.
pub fn action(row: &[f32]) -> Vec<f32> {
    let part = |(&u, (_, low, high)): (&f32, &(&str, &[f64], &[f64]))| {
        (f64::from((u.clamp(-1.0, 1.0) + 1.0) / 2.0) * (high[0] - low[0]) + low[0]) as f32
    };
    row.iter().zip(&ACTION).map(part).collect()
}
