//! The statistics for normalisation in training: minimum, maximum, mean, standard deviation and
//! quantiles of each value of a feature.
//!
//! Statistics of several episodes are combined as in lerobot (lerobot/datasets/compute_stats.py:
//! `aggregate_feature_stats`): exactly, except for the quantiles, which are the mean over episodes
//! weighted by length.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The statistics of one value, in their order.
const NAMES: [&str; 9] = [
    "min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99",
];
/// The quantiles among them.
const QUANTILES: [f64; 5] = [0.01, 0.1, 0.5, 0.9, 0.99];

/// Statistics of one value of a feature: [`NAMES`].
type ValueStats = [f64; NAMES.len()];

/// Statistics of one feature.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moments {
    count: u64,
    values: Vec<ValueStats>,
    /// True for images, whose three colours have the shape `[3, 1, 1]`.
    picture: bool,
}

/// Statistics by feature.
pub(super) type FolderStats = BTreeMap<String, Moments>;

impl Moments {
    /// Computes the statistics of `values`, `[rows, width]`.
    pub(super) fn of(values: &[f64], width: usize) -> Self {
        let column = |at: usize| values.iter().skip(at).step_by(width).copied().collect();
        Self {
            count: (values.len() / width.max(1)) as u64,
            values: (0..width).map(|at| of_numbers(column(at))).collect(),
            picture: false,
        }
    }

    /// Computes the statistics of `frames` images from a histogram for each colour.
    pub(super) fn of_pictures(counts: &[[u64; 256]; 3], frames: u64) -> Self {
        Self {
            count: frames,
            values: counts.iter().map(of_bytes).collect(),
            picture: true,
        }
    }

    /// Combines the statistics of two sets of rows.
    fn and(&self, other: &Self) -> Self {
        let weights = (self.count as f64, other.count as f64);
        let pairs = self.values.iter().zip(&other.values);
        Self {
            count: self.count + other.count,
            values: pairs.map(|(a, b)| joined(a, b, weights)).collect(),
            picture: self.picture,
        }
    }

    fn to_json(&self) -> Value {
        let shaped = |value: f64| match self.picture {
            true => json!([[value]]),
            false => json!(value),
        };
        let mut entry = json!({"count": [self.count]});
        for (at, name) in NAMES.iter().enumerate() {
            entry[*name] = self.values.iter().map(|stats| shaped(stats[at])).collect();
        }
        entry
    }

    fn from_json(entry: &Value) -> Option<Self> {
        let mean = entry["mean"].as_array()?;
        let of_value = |index: usize| {
            let mut stats = ValueStats::default();
            for (stat, name) in stats.iter_mut().zip(NAMES) {
                let value = &entry[name][index];
                *stat = value.as_f64().or_else(|| value[0][0].as_f64())?;
            }
            Some(stats)
        };
        Some(Self {
            count: entry["count"][0].as_u64()?,
            values: (0..mean.len()).map(of_value).collect::<Option<_>>()?,
            picture: mean.first()?.is_array(),
        })
    }
}

/// Combines the statistics of two sets of rows.
pub(super) fn and(before: &FolderStats, mut stats: FolderStats) -> FolderStats {
    for (name, moments) in &mut stats {
        if let Some(before) = before.get(name) {
            *moments = before.and(moments);
        }
    }
    stats
}

/// Returns the contents of `stats.json`.
pub(super) fn to_json(stats: &FolderStats) -> Value {
    stats
        .iter()
        .map(|(name, one)| (name.clone(), one.to_json()))
        .collect()
}

/// Parses what [`to_json`] returns.
pub(super) fn from_json(stats: &Value) -> Option<FolderStats> {
    let entries = stats.as_object()?.iter();
    entries
        .map(|(name, entry)| Some((name.clone(), Moments::from_json(entry)?)))
        .collect()
}

fn of_numbers(mut values: Vec<f64>) -> ValueStats {
    if values.is_empty() {
        return ValueStats::default();
    }
    let rows = values.len() as f64;
    let mean = values.iter().sum::<f64>() / rows;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    let std = (squares.sum::<f64>() / rows).sqrt();
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    let [q01, q10, q50, q90, q99] = QUANTILES.map(|part| {
        // Linear interpolation between neighbours, numpy's default.
        let at = part * last as f64;
        let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
        low + (high - low) * at.fract()
    });
    [values[0], values[last], mean, std, q01, q10, q50, q90, q99]
}

/// Computes the statistics of a histogram of bytes, scaled to 0..1.
fn of_bytes(counts: &[u64; 256]) -> ValueStats {
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return ValueStats::default();
    }
    let part = |byte: usize| byte as f64 / 255.0;
    let mean_of = |of: &dyn Fn(f64) -> f64| {
        let each = counts.iter().enumerate();
        each.map(|(byte, n)| of(part(byte)) * *n as f64)
            .sum::<f64>()
            / all as f64
    };
    let mean = mean_of(&|value| value);
    let std = mean_of(&|value| (value - mean).powi(2)).sqrt();
    let is_seen = |count: &u64| *count > 0;
    let min = part(counts.iter().position(is_seen).unwrap_or_default());
    let max = part(counts.iter().rposition(is_seen).unwrap_or_default());
    let [q01, q10, q50, q90, q99] = QUANTILES.map(|quantile| {
        let wanted = (quantile * all as f64).ceil() as u64;
        let mut below = 0;
        let byte = counts.iter().position(|count| {
            below += count;
            below >= wanted.max(1)
        });
        part(byte.unwrap_or_default())
    });
    [min, max, mean, std, q01, q10, q50, q90, q99]
}

/// Combines the statistics of two sets of rows, of so many rows each.
fn joined(a: &ValueStats, b: &ValueStats, (mine, theirs): (f64, f64)) -> ValueStats {
    let between = |a: f64, b: f64| (a * mine + b * theirs) / (mine + theirs);
    let mut both = *a;
    both.iter_mut()
        .zip(b)
        .for_each(|(a, b)| *a = between(*a, *b));
    let [min, max, mean, std, ..] = &mut both;
    (*min, *max) = (a[0].min(b[0]), a[1].max(b[1]));
    let spread = |of: &ValueStats| of[3].powi(2) + (of[2] - *mean).powi(2);
    *std = between(spread(a), spread(b)).sqrt();
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_episodes_give_what_one_of_all_rows_gives() {
        let (a, b) = ([1.0, 10.0, 2.0, 20.0], [6.0, 0.0]);
        let (all, apart) = (
            Moments::of(&[&a[..], &b].concat(), 2),
            Moments::of(&a, 2).and(&Moments::of(&b, 2)),
        );
        assert_eq!(
            (apart.count, apart.values[0][1], apart.values[1][0]),
            (3, 6.0, 0.0)
        );
        for (whole, parts) in all.values.iter().zip(&apart.values) {
            assert!((whole[2] - parts[2]).abs() < 1e-12 && (whole[3] - parts[3]).abs() < 1e-12);
        }
    }

    #[test]
    fn quantiles_lie_between_neighbours_as_in_numpy() {
        let moments = Moments::of(&[4.0, 1.0, 3.0, 2.0], 1);
        assert_eq!(
            moments.values[0].map(|value| (value * 100.0).round() / 100.0)[4..],
            [1.03, 1.3, 2.5, 3.7, 3.97]
        );
    }

    #[test]
    fn pictures_count_as_parts_of_255_in_three_dimensions() {
        let mut counts = [[0; 256]; 3];
        (counts[0][0], counts[0][255]) = (1, 3);
        (counts[1][51], counts[2][0]) = (4, 4);
        let entry = Moments::of_pictures(&counts, 2).to_json();
        assert_eq!(entry["mean"], json!([[[0.75]], [[0.2]], [[0.0]]]));
        assert_eq!(
            (&entry["max"][0], &entry["q50"][0], &entry["count"]),
            (&json!([[1.0]]), &json!([[1.0]]), &json!([2]))
        );
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut counts = [[1; 256]; 3];
        counts[1][7] = 100;
        let (vector, picture) = (
            Moments::of(&[1.0, 0.5, -1.0, 3.0], 2),
            Moments::of_pictures(&counts, 5),
        );
        assert_eq!(Moments::from_json(&vector.to_json()), Some(vector));
        assert_eq!(Moments::from_json(&picture.to_json()), Some(picture));
        assert_eq!(Moments::from_json(&json!({"mean": []})), None);
    }
}
