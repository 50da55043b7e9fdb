//! Reads `statistics.json`, statistics of the training data, and converts with them between
//! physical values and the normalised values of the network.
//!
//! Statistics are `f64`, values are `f32`, and each step rounds where the reference's numpy does.

use std::fmt::Display;
use std::path::Path;

use jobs::refusal::Refusal;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::json::Document;

/// Maximum number of values in one statistic: steps times width.
const MOST_NUMBERS: usize = 1 << 22;

/// The statistics file of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Statistics(Document);

/// One statistic: `[rows, width]`, row-major, `f64`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatisticsTable {
    pub(super) width: usize,
    pub(super) values: Vec<f64>,
}

/// A statistic as it is in the file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of numbers, or a list of such lists")]
enum Rows {
    One(Vec<f64>),
    Many(Vec<Vec<f64>>),
}

/// The statistics of one key.
#[derive(Clone, Debug)]
pub(super) struct KeyStatistics<'a> {
    file: &'a Document,
    /// The embodiment's tag; `state`, `action`, or `relative_action`, whose actions are relative to
    /// the state and have statistics for each step; and the key.
    names: [&'a str; 3],
}

impl Statistics {
    pub(super) fn read(path: &Path) -> Result<Self, Refusal> {
        Ok(Self(Document::read(path)?))
    }

    /// Returns the statistics of a key; returns an error if there are none.
    pub(super) fn key<'a>(&'a self, names: [&'a str; 3]) -> Result<KeyStatistics<'a>, Refusal> {
        let file = &self.0;
        let is_there = file.get::<Option<IgnoredAny>>(&names)?.is_some();
        let wanted = "expected statistics of every key of the modality configuration";
        file.need(is_there, &names, wanted)?;
        Ok(KeyStatistics { file, names })
    }
}

impl KeyStatistics<'_> {
    /// Reads one of `min`, `max`, `mean`, `std`, `q01`, `q99`: a list, or a list of rows of the
    /// same length.
    pub(super) fn table(&self, name: &str) -> Result<StatisticsTable, Refusal> {
        let [tag, group, key] = self.names;
        let names = [tag, group, key, name];
        let rows = match self.file.get(&names)? {
            Rows::One(row) => vec![row],
            Rows::Many(rows) => rows,
        };
        let width = rows[0].len();
        let is_table = width > 0 && rows.iter().all(|row| row.len() == width);
        let wanted = "expected rows of the same length, at least one number each";
        let holds = is_table && rows.len() <= MOST_NUMBERS / width;
        self.file.need(holds, &names, wanted)?;
        let values = rows.concat();
        Ok(StatisticsTable { width, values })
    }

    /// Reads two statistics of the same shape.
    pub(super) fn tables(&self, names: [&str; 2]) -> Result<[StatisticsTable; 2], Refusal> {
        let (one, other) = (self.table(names[0])?, self.table(names[1])?);
        let wanted = format!(
            "expected `{}` and `{}` of the same shape",
            names[0], names[1]
        );
        let holds = (one.width, one.values.len()) == (other.width, other.values.len());
        self.need(holds, wanted)?;
        Ok([one, other])
    }

    /// Refuses these statistics unless they hold; `wanted` is a clause.
    pub(super) fn need(&self, holds: bool, wanted: impl Display) -> Result<(), Refusal> {
        self.file.need(holds, &self.names, wanted)
    }
}

impl StatisticsTable {
    pub(super) fn rows(&self) -> usize {
        self.values.len() / self.width
    }
}

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

    fn parse(text: &str) -> Statistics {
        let path = Path::new("statistics.json");
        Statistics(Document::parse(path, text.as_bytes()).unwrap())
    }

    fn table(json: &str) -> Result<StatisticsTable, Refusal> {
        let file = parse(&format!(
            r#"{{"robot": {{"state": {{"arm": {{"min": {json}}}}}}}}}"#
        ));
        file.key(["robot", "state", "arm"])?.table("min")
    }

    #[test]
    fn a_list_is_one_row_and_a_list_of_lists_many() {
        assert_eq!(
            table("[1, 2]").unwrap(),
            StatisticsTable {
                width: 2,
                values: vec![1.0, 2.0]
            }
        );
        assert_eq!(table("[[1, 2], [3, 4]]").unwrap().rows(), 2);
    }

    #[test]
    fn ragged_or_empty_statistics_are_refused_with_their_place() {
        for wrong in [
            "[]",
            "[[]]",
            "[[1], [2, 3]]",
            "[1, [2]]",
            "[null]",
            "3",
            "[[1], 2]",
        ] {
            assert!(
                table(wrong)
                    .unwrap_err()
                    .to_string()
                    .starts_with("`statistics.json`: `robot.state.arm.min"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_key_without_statistics_is_named() {
        let file = parse(r#"{"robot": {"state": {}}}"#);
        let text = file.key(["robot", "state", "arm"]).unwrap_err().to_string();
        assert!(text.starts_with("`statistics.json`: `robot.state.arm` is missing"));
    }
}
