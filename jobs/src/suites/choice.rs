//! `--tasks 0-4,reach-v3`: some tasks of a suite.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::refusal::Refusal;
use crate::suites::SuiteRow;

impl SuiteRow {
    /// Returns the numbers of all tasks.
    pub fn all_tasks(&self) -> Vec<usize> {
        (0..self.tasks.len()).collect()
    }

    /// Returns the numbers of some tasks, ascending, given as numbers, ranges and names that are
    /// separated by commas.
    ///
    /// # Errors
    /// Refuses the first one that the suite does not have.
    pub fn some_tasks(&self, text: &str) -> Result<Vec<usize>, Refusal> {
        let mut chosen = BTreeSet::new();
        for word in text.split(',').map(str::trim) {
            match self.tasks.iter().position(|name| name == word) {
                Some(task) => {
                    chosen.insert(task);
                }
                None => chosen.extend(range(self, word)?),
            }
        }
        Ok(chosen.into_iter().collect())
    }
}

/// Reads a number or a range of numbers.
fn range(suite: &SuiteRow, word: &str) -> Result<RangeInclusive<usize>, Refusal> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let name = &suite.name;
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(first) || !is_digits(last) {
        let known: Vec<_> = suite.tasks.iter().map(String::as_str).collect();
        return Err(Refusal::unknown(
            format_args!("`{name}`"),
            "task",
            word,
            &known,
        ));
    }
    let number = |part: &str| part.parse().ok().filter(|task| *task < suite.tasks.len());
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first > last => Err(Refusal::new(format_args!(
            "`{word}` is not a range of tasks: it ends before it begins"
        ))),
        (Some(first), Some(last)) => Ok(first..=last),
        _ => Err(Refusal::new(format_args!(
            "`{name}` has no task {word}: expected 0 to {}",
            suite.tasks.len() - 1
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str) -> Result<Vec<usize>, String> {
        let suite = SuiteRow::of("metaworld_mt10").unwrap();
        suite.some_tasks(text).map_err(|err| err.to_string())
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
            "`metaworld_mt10`: unknown task `puhs-v3`; did you mean `push-v3`?"
        );
        for word in ["", "1,", "-1", "1-", "99999999999999999999999"] {
            assert!(chosen(word).is_err(), "{word}");
        }
    }
}
