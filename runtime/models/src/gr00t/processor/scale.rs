//! Converts between physical values and the normalised values of the network.
//!
//! Statistics are `f64`, values are `f32`, and each step rounds where the reference's numpy does.

use jobs::refusal::Refusal;

use crate::gr00t::processor::statistics::{KeyStatistics, StatisticsTable};

/// The normalisation of one key; the tables have one row, or one for each step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ValueScale {
    /// (x − mean) / std, not clipped; a value whose std is 0 stays unchanged.
    Spread {
        mean: StatisticsTable,
        std: StatisticsTable,
    },
    /// Maps [low, high] to [−1, 1].
    Range {
        low: StatisticsTable,
        high: StatisticsTable,
    },
}

impl ValueScale {
    pub(super) fn spread(statistics: &KeyStatistics) -> Result<Self, Refusal> {
        let [mean, std] = statistics.tables(["mean", "std"])?;
        Ok(Self::Spread { mean, std })
    }

    /// Reads a range between two statistics, such as `min` and `max`.
    pub(super) fn range(statistics: &KeyStatistics, names: [&str; 2]) -> Result<Self, Refusal> {
        let [low, high] = statistics.tables(names)?;
        Ok(Self::Range { low, high })
    }

    fn first(&self) -> &StatisticsTable {
        match self {
            Self::Spread { mean: table, .. } | Self::Range { low: table, .. } => table,
        }
    }

    pub(super) fn width(&self) -> usize {
        self.first().width
    }

    pub(super) fn rows(&self) -> usize {
        self.first().rows()
    }

    /// Returns one normalised state value; `column` must be below the width.
    pub(super) fn normalize(&self, column: usize, x: f32, clip: bool) -> f32 {
        match self {
            Self::Spread { mean, std } if std.values[column] != 0.0 => {
                ((f64::from(x) - mean.values[column]) / std.values[column]) as f32
            }
            Self::Spread { .. } => x,
            Self::Range { low, high } => {
                let (low, high) = (low.values[column], high.values[column]);
                if is_close(high, low) {
                    return 0.0;
                }
                let part = ((f64::from(x) - low) / (high - low)) as f32;
                let y = 2.0 * part - 1.0;
                if clip { y.clamp(-1.0, 1.0) } else { y }
            }
        }
    }

    /// Returns one physical action value of step `row`.
    pub(super) fn denormalize(&self, row: usize, column: usize, x: f32) -> f64 {
        let at = if self.rows() == 1 {
            column
        } else {
            row * self.width() + column
        };
        match self {
            Self::Spread { mean, std } if std.values[at] != 0.0 => {
                f64::from((f64::from(x) * std.values[at] + mean.values[at]) as f32)
            }
            Self::Spread { .. } => f64::from(x),
            Self::Range { low, high } => {
                let (low, high) = (low.values[at], high.values[at]);
                let part = (x.clamp(-1.0, 1.0) + 1.0) / 2.0;
                f64::from(part) * (high - low) + low
            }
        }
    }
}

/// Compares as numpy's `isclose(a, b)` with its default tolerances.
fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-8 + 1e-5 * b.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f64]) -> StatisticsTable {
        StatisticsTable {
            width: values.len(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn a_range_that_is_a_point_gives_zero_and_decodes_to_the_point() {
        let scale = ValueScale::Range {
            low: row(&[2.0]),
            high: row(&[2.000001]),
        };
        assert_eq!(scale.normalize(0, 99.0, false), 0.0);
        assert!((scale.denormalize(0, 0, 0.3) - 2.0).abs() < 1e-5);
    }

    #[test]
    fn a_value_without_spread_passes_as_it_is() {
        let scale = ValueScale::Spread {
            mean: row(&[5.0, 1.0]),
            std: row(&[0.0, 2.0]),
        };
        assert_eq!(
            (scale.normalize(0, 7.0, true), scale.normalize(1, 7.0, true)),
            (7.0, 3.0)
        );
        assert_eq!(
            (scale.denormalize(3, 0, 7.0), scale.denormalize(3, 1, 3.0)),
            (7.0, 7.0)
        );
    }

    #[test]
    fn only_clipping_cuts_states_but_actions_are_always_cut() {
        let scale = ValueScale::Range {
            low: row(&[0.0]),
            high: row(&[1.0]),
        };
        assert_eq!(
            (
                scale.normalize(0, 2.0, false),
                scale.normalize(0, 2.0, true)
            ),
            (3.0, 1.0)
        );
        assert_eq!(scale.denormalize(0, 0, 7.0), 1.0);
    }

    #[test]
    fn each_step_has_a_row_of_its_own() {
        let low = StatisticsTable {
            width: 1,
            values: vec![0.0, 10.0],
        };
        let high = StatisticsTable {
            width: 1,
            values: vec![1.0, 30.0],
        };
        assert_eq!(ValueScale::Range { low, high }.denormalize(1, 0, 0.0), 20.0);
    }
}
