//! Reads `statistics.json`: statistics of the training data.

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

#[cfg(test)]
mod tests {
    use super::*;

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
