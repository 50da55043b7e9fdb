//! The statistics for normalisation in training: minimum, maximum, mean, standard deviation and
//! quantiles of each value of a feature.
//!
//! Statistics of several episodes are combined as in lerobot (lerobot/datasets/compute_stats.py:
//! `aggregate_feature_stats`): exactly, except for the quantiles, which are the mean over episodes
//! weighted by length.

use serde_json::{Value, json};

/// Quantiles and their names.
const QUANTILES: [(f64, &str); 5] = [
    (0.01, "q01"),
    (0.1, "q10"),
    (0.5, "q50"),
    (0.9, "q90"),
    (0.99, "q99"),
];

/// Statistics of one feature.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moments {
    count: u64,
    values: Vec<FeatureStats>,
    /// True for images, whose three colours have the shape `[3, 1, 1]`.
    picture: bool,
}

/// Statistics of one value of a feature.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct FeatureStats {
    min: f64,
    max: f64,
    mean: f64,
    std: f64,
    quantiles: [f64; QUANTILES.len()],
}

impl Moments {
    /// Computes the statistics of `values`, `[rows, width]`.
    pub(super) fn of(values: &[f64], width: usize) -> Self {
        let column = |at: usize| {
            values
                .iter()
                .skip(at)
                .step_by(width)
                .copied()
                .collect::<Vec<f64>>()
        };
        let count = (values.len() / width.max(1)) as u64;
        Self {
            count,
            values: (0..width).map(|at| FeatureStats::of(column(at))).collect(),
            picture: false,
        }
    }

    /// Computes the statistics of `frames` images from a histogram for each colour.
    pub(super) fn of_pictures(counts: &[[u64; 256]; 3], frames: u64) -> Self {
        Self {
            count: frames,
            values: counts.iter().map(FeatureStats::of_bytes).collect(),
            picture: true,
        }
    }

    /// Combines the statistics of two sets of rows.
    pub(super) fn and(&self, other: &Self) -> Self {
        let weights = (self.count as f64, other.count as f64);
        let values = self
            .values
            .iter()
            .zip(&other.values)
            .map(|(a, b)| a.and(b, weights));
        Self {
            count: self.count + other.count,
            values: values.collect(),
            picture: self.picture,
        }
    }

    /// Returns the entry of `stats.json`.
    pub(super) fn to_json(&self) -> Value {
        let list = |field: &dyn Fn(&FeatureStats) -> f64| {
            let shaped = |value| {
                if self.picture {
                    json!([[value]])
                } else {
                    json!(value)
                }
            };
            Value::from(
                self.values
                    .iter()
                    .map(|moment| shaped(field(moment)))
                    .collect::<Vec<_>>(),
            )
        };
        let mut entry = json!({
            "min": list(&|m| m.min), "max": list(&|m| m.max), "mean": list(&|m| m.mean), "std": list(&|m| m.std),
            "count": [self.count],
        });
        for (at, (_, name)) in QUANTILES.iter().enumerate() {
            entry[*name] = list(&|m| m.quantiles[at]);
        }
        entry
    }

    /// Parses an entry written by [`Moments::to_json`].
    pub(super) fn from_json(entry: &Value) -> Option<Self> {
        let picture = entry["mean"].get(0)?.is_array();
        let plain = |value: &Value| {
            if picture {
                value[0][0].as_f64()
            } else {
                value.as_f64()
            }
        };
        let list = |name: &str| {
            entry[name]
                .as_array()?
                .iter()
                .map(plain)
                .collect::<Option<Vec<f64>>>()
        };
        let [min, max, mean, std] = ["min", "max", "mean", "std"].map(list);
        let (min, max, mean, std) = (min?, max?, mean?, std?);
        let quantiles = QUANTILES
            .iter()
            .map(|(_, name)| list(name))
            .collect::<Option<Vec<_>>>()?;
        let moment = |at: usize| {
            let mut moment = FeatureStats {
                min: *min.get(at)?,
                max: *max.get(at)?,
                ..FeatureStats::default()
            };
            (moment.mean, moment.std) = (*mean.get(at)?, *std.get(at)?);
            for (quantile, values) in moment.quantiles.iter_mut().zip(&quantiles) {
                *quantile = *values.get(at)?;
            }
            Some(moment)
        };
        let values = (0..mean.len()).map(moment).collect::<Option<Vec<_>>>()?;
        Some(Self {
            count: entry["count"][0].as_u64()?,
            values,
            picture,
        })
    }
}

impl FeatureStats {
    fn of(mut values: Vec<f64>) -> Self {
        let (Some(first), rows) = (values.first().copied(), values.len() as f64) else {
            return Self::default();
        };
        let (min, max) = values.iter().fold((first, first), |(min, max), value| {
            (min.min(*value), max.max(*value))
        });
        let mean = values.iter().sum::<f64>() / rows;
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / rows;
        values.sort_by(f64::total_cmp);
        let quantiles = QUANTILES.map(|(part, _)| {
            // Linear interpolation between neighbours, numpy's default.
            let at = part * (values.len() - 1) as f64;
            let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
            low + (high - low) * at.fract()
        });
        Self {
            min,
            max,
            mean,
            std: variance.sqrt(),
            quantiles,
        }
    }

    /// Computes the statistics of a histogram of bytes, scaled to 0..1.
    fn of_bytes(counts: &[u64; 256]) -> Self {
        let all: u64 = counts.iter().sum();
        if all == 0 {
            return Self::default();
        }
        let seen = || {
            counts
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(|(byte, _)| byte as f64 / 255.0)
        };
        let mean_of = |part: &dyn Fn(f64) -> f64| {
            let sum: f64 = counts
                .iter()
                .enumerate()
                .map(|(byte, n)| part(byte as f64 / 255.0) * *n as f64)
                .sum();
            sum / all as f64
        };
        let mean = mean_of(&|value| value);
        let quantiles = QUANTILES.map(|(part, _)| {
            let wanted = (part * all as f64).ceil() as u64;
            let mut below = 0;
            let byte = counts.iter().position(|count| {
                below += count;
                below >= wanted.max(1)
            });
            byte.unwrap_or_default() as f64 / 255.0
        });
        let (min, max) = (
            seen().next().unwrap_or_default(),
            seen().next_back().unwrap_or_default(),
        );
        Self {
            min,
            max,
            mean,
            std: mean_of(&|value| (value - mean).powi(2)).sqrt(),
            quantiles,
        }
    }

    fn and(&self, other: &Self, (mine, theirs): (f64, f64)) -> Self {
        let between = |a: f64, b: f64| (a * mine + b * theirs) / (mine + theirs);
        let mean = between(self.mean, other.mean);
        let spread = |moment: &Self| moment.std.powi(2) + (moment.mean - mean).powi(2);
        let mut quantiles = self.quantiles;
        quantiles
            .iter_mut()
            .zip(other.quantiles)
            .for_each(|(a, b)| *a = between(*a, b));
        let std = between(spread(self), spread(other)).sqrt();
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            mean,
            std,
            quantiles,
        }
    }
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
            (apart.count, apart.values[0].max, apart.values[1].min),
            (3, 6.0, 0.0)
        );
        for (whole, parts) in all.values.iter().zip(&apart.values) {
            assert!(
                (whole.mean - parts.mean).abs() < 1e-12 && (whole.std - parts.std).abs() < 1e-12
            );
        }
    }

    #[test]
    fn quantiles_lie_between_neighbours_as_in_numpy() {
        let moments = Moments::of(&[4.0, 1.0, 3.0, 2.0], 1);
        assert_eq!(
            moments.values[0]
                .quantiles
                .map(|q| (q * 100.0).round() / 100.0),
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
