//! `--tasks 0-4,reach-v3`: some tasks of a suite.

use std::collections::BTreeSet;

use crate::similar::{NAME, most_similar};
use crate::suites::SuiteRow;

/// Tasks of a suite by their numbers, ascending; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChoice(Vec<usize>);

/// Why a text chooses no tasks of a suite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskChoiceError {
    /// A number or range leads past the last task.
    #[error("`{suite}` has no task {found}: expected 0 to {last}")]
    NoNumber {
        /// Name of the suite.
        suite: &'static str,
        /// The number or range as given.
        found: String,
        /// Number of the last task.
        last: usize,
    },
    /// A range ends before it begins.
    #[error("`{found}` is not a range of tasks: it ends before it begins")]
    Backwards {
        /// The range as given.
        found: String,
    },
    /// There is no task of that name.
    #[error(
        "`{suite}` has no task `{found}`{hint}; `rrun suite {suite}` lists them, and numbers and \
         ranges such as 0-4 are also accepted"
    )]
    NoName {
        /// Name of the suite.
        suite: &'static str,
        /// The name as given.
        found: String,
        /// The nearest name, as a clause.
        hint: String,
    },
}

impl TaskChoice {
    /// Returns all tasks of a suite.
    pub fn all(suite: &SuiteRow) -> Self {
        Self((0..suite.tasks.len()).collect())
    }

    /// Reads numbers, ranges and names, separated by commas.
    ///
    /// # Errors
    /// Returns [`TaskChoiceError`] for the first one that the suite does not have.
    pub fn parse(suite: &'static SuiteRow, text: &str) -> Result<Self, TaskChoiceError> {
        let mut chosen = BTreeSet::new();
        for word in text.split(',').map(str::trim) {
            match suite.tasks.iter().position(|name| *name == word) {
                Some(task) => {
                    chosen.insert(task);
                }
                None => chosen.extend(range(suite, word)?),
            }
        }
        Ok(Self(chosen.into_iter().collect()))
    }

    /// Returns the numbers of the tasks, ascending.
    pub fn numbers(&self) -> &[usize] {
        &self.0
    }
}

/// Reads a number or a range of numbers.
fn range(
    suite: &'static SuiteRow,
    word: &str,
) -> Result<std::ops::RangeInclusive<usize>, TaskChoiceError> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(first) || !is_digits(last) {
        let hint = most_similar(word, suite.tasks.iter().copied(), NAME);
        return Err(TaskChoiceError::NoName {
            suite: suite.name,
            found: word.to_owned(),
            hint: hint
                .map(|name| format!(" (did you mean `{name}`?)"))
                .unwrap_or_default(),
        });
    }
    let number = |part: &str| part.parse().ok().filter(|task| *task < suite.tasks.len());
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first > last => Err(TaskChoiceError::Backwards {
            found: word.to_owned(),
        }),
        (Some(first), Some(last)) => Ok(first..=last),
        _ => Err(TaskChoiceError::NoNumber {
            suite: suite.name,
            found: word.to_owned(),
            last: suite.tasks.len() - 1,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str) -> Result<Vec<usize>, String> {
        let suite = SuiteRow::of("metaworld_mt10").unwrap();
        TaskChoice::parse(suite, text)
            .map(|choice| choice.numbers().to_vec())
            .map_err(|err| err.to_string())
    }

    #[test]
    fn tasks_are_chosen_by_number_range_and_name() {
        assert_eq!(chosen("3"), Ok(vec![3]));
        assert_eq!(chosen("7-9, 0"), Ok(vec![0, 7, 8, 9]));
        assert_eq!(chosen("push-v3,0-1"), Ok(vec![0, 1]));
    }

    #[test]
    fn what_the_suite_does_not_have_is_refused() {
        let found = chosen("8-10").unwrap_err();
        assert_eq!(found, "`metaworld_mt10` has no task 8-10: expected 0 to 9");
        let wanted = "`4-2` is not a range of tasks: it ends before it begins";
        assert_eq!(chosen("4-2").unwrap_err(), wanted);
        assert_eq!(
            chosen("puhs-v3").unwrap_err(),
            "`metaworld_mt10` has no task `puhs-v3` (did you mean `push-v3`?); `rrun suite \
             metaworld_mt10` lists them, and numbers and ranges such as 0-4 are also accepted"
        );
        for word in ["", "1,", "-1", "1-", "99999999999999999999999"] {
            assert!(chosen(word).is_err(), "{word}");
        }
    }
}
