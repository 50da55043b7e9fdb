//! Reads `statistics.json`: statistics of the training data.

use std::path::Path;

use jobs::refusal::Refusal;

use crate::gr00t::processor::field::{Field, Json};

/// Maximum number of values in one statistic: steps times width.
const MOST_NUMBERS: usize = 1 << 22;

/// The values that a statistic describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatisticsGroup {
    State,
    Action,
    /// Actions relative to the state, with separate statistics for each step.
    RelativeAction,
}

/// The statistics file of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Statistics(Json);

/// The statistics of one embodiment.
#[derive(Clone, Debug)]
pub(super) struct TagStatistics<'a>(Field<'a>);

/// One statistic: `[rows, width]`, row-major, `f64`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatisticsTable {
    pub(super) width: usize,
    pub(super) values: Vec<f64>,
}

/// The statistics of one key.
#[derive(Clone, Debug)]
pub(super) struct KeyStatistics<'a>(Field<'a>);

impl Statistics {
    pub(super) fn read(path: &Path) -> Result<Self, Refusal> {
        Ok(Self(Json::read(path)?))
    }

    #[cfg(test)]
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        Ok(Self(Json::parse(
            Path::new("statistics.json"),
            text.as_bytes(),
        )?))
    }

    pub(super) fn of(&self, tag: &str) -> Result<TagStatistics<'_>, Refusal> {
        Ok(TagStatistics(self.0.root().get(tag)?))
    }
}

impl<'a> TagStatistics<'a> {
    /// Returns the statistics of a key; returns an error if there are none.
    pub(super) fn key(
        &self,
        group: StatisticsGroup,
        key: &str,
    ) -> Result<KeyStatistics<'a>, Refusal> {
        let group = match group {
            StatisticsGroup::State => "state",
            StatisticsGroup::Action => "action",
            StatisticsGroup::RelativeAction => "relative_action",
        };
        let field = self.0.get(group)?.get(key)?;
        if field.is_missing() {
            return Err(
                field.refuse("expected statistics of every key of the modality configuration")
            );
        }
        Ok(KeyStatistics(field))
    }
}

impl KeyStatistics<'_> {
    /// Reads one of `min`, `max`, `mean`, `std`, `q01`, `q99`: a list, or a list of rows of the
    /// same length.
    pub(super) fn table(&self, name: &str) -> Result<StatisticsTable, Refusal> {
        let field = self.0.get(name)?;
        let items = field.items()?;
        let rows = match items.first() {
            Some(first) if first.is_list() => items
                .iter()
                .map(Field::numbers)
                .collect::<Result<Vec<_>, _>>()?,
            _ => vec![field.numbers()?],
        };
        let width = rows[0].len();
        if width == 0
            || rows.iter().any(|row| row.len() != width)
            || rows.len() > MOST_NUMBERS / width
        {
            return Err(field.refuse("expected rows of the same length, at least one number each"));
        }
        Ok(StatisticsTable {
            width,
            values: rows.concat(),
        })
    }

    /// Reads two statistics of the same shape.
    pub(super) fn tables(&self, names: [&str; 2]) -> Result<[StatisticsTable; 2], Refusal> {
        let tables = [self.table(names[0])?, self.table(names[1])?];
        if tables[0].width != tables[1].width || tables[0].values.len() != tables[1].values.len() {
            return Err(self.refuse(&format!(
                "expected `{}` and `{}` of the same shape",
                names[0], names[1]
            )));
        }
        Ok(tables)
    }

    pub(super) fn refuse(&self, wanted: &str) -> Refusal {
        self.0.refuse(wanted)
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

    fn table(json: &str) -> Result<StatisticsTable, Refusal> {
        let file = Statistics::parse(&format!(
            r#"{{"robot": {{"state": {{"arm": {{"min": {json}}}}}}}}}"#
        ))
        .unwrap();
        file.of("robot")?
            .key(StatisticsGroup::State, "arm")?
            .table("min")
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
        let file = Statistics::parse(r#"{"robot": {"state": {}}}"#).unwrap();
        let text = file
            .of("robot")
            .unwrap()
            .key(StatisticsGroup::State, "arm")
            .unwrap_err()
            .to_string();
        assert!(text.starts_with("`statistics.json`: `robot.state.arm` is missing"));
    }
}
