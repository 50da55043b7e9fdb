//! The numbers of selected episodes.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// Episode numbers as ascending ranges that do not touch; written as `0,3-5`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EpisodeNumbers(Vec<RangeInclusive<u64>>);

impl EpisodeNumbers {
    /// Returns the list of one number.
    pub(crate) fn one(number: u64) -> Self {
        Self(vec![number..=number])
    }

    /// Returns the list of all numbers of a range that is not empty.
    pub(crate) fn between(range: Range<u64>) -> Self {
        Self(vec![range.start..=range.end.saturating_sub(1)])
    }

    /// Returns whether `number` is in one of the ranges.
    pub fn has(&self, number: u64) -> bool {
        let next = self.0.partition_point(|range| *range.end() < number);
        self.0
            .get(next)
            .is_some_and(|range| range.contains(&number))
    }

    /// Returns how many numbers there are.
    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .map(|range| range.end() - range.start() + 1)
            .sum()
    }

    /// Returns how many numbers are below `end`.
    pub fn count_below(&self, end: u64) -> u64 {
        self.0
            .iter()
            .map(|range| (range.end() + 1).min(end).saturating_sub(*range.start()))
            .sum()
    }

    /// Returns the ranges of the numbers below `end`, ascending.
    pub fn ranges_below(&self, end: u64) -> Vec<Range<u64>> {
        let below = |range: &RangeInclusive<u64>| *range.start()..(range.end() + 1).min(end);
        let ranges = self.0.iter().map(below);
        ranges.filter(|range| !range.is_empty()).collect()
    }

    /// Returns the numbers below `end`, ascending.
    pub fn below(&self, end: u64) -> impl Iterator<Item = u64> {
        self.0
            .iter()
            .flat_map(move |range| *range.start()..(range.end() + 1).min(end))
    }

    /// Returns the highest number.
    pub(crate) fn last(&self) -> u64 {
        self.0.last().map_or(0, |range| *range.end())
    }

    /// Returns the numbers of both.
    #[must_use]
    pub(crate) fn union(self, other: Self) -> Self {
        Self::new([self.0, other.0].concat())
    }

    /// Sorts the ranges, and merges those that overlap or touch.
    fn new(mut ranges: Vec<RangeInclusive<u64>>) -> Self {
        ranges.sort_by_key(|range| *range.start());
        let mut joined: Vec<RangeInclusive<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if *range.start() <= last.end() + 1 => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => joined.push(range),
            }
        }
        Self(joined)
    }
}

impl FromIterator<u64> for EpisodeNumbers {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        Self::new(numbers.into_iter().map(|number| number..=number).collect())
    }
}

impl FromStr for EpisodeNumbers {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // A job has at most a million episodes; with `u32` no addition to a number can overflow.
        let number = |text: &str| text.trim().parse::<u32>().ok().map(u64::from);
        let range = |piece: &str| {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let range = number(first)?..=number(last)?;
            (range.start() <= range.end()).then_some(range)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        ranges.map(Self::new).ok_or_else(|| {
            Refusal::new(format_args!(
                "`{text}` is not a list of episodes: expected numbers and ranges, for example \
                 `0,3-5`"
            ))
        })
    }
}

impl fmt::Display for EpisodeNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, range) in self.0.iter().enumerate() {
            f.write_str(if nth > 0 { "," } else { "" })?;
            match range.start() == range.end() {
                true => write!(f, "{}", range.start())?,
                false => write!(f, "{}-{}", range.start(), range.end())?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for EpisodeNumbers {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<EpisodeNumbers> for String {
    fn from(numbers: EpisodeNumbers) -> Self {
        numbers.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_know_what_they_have() {
        let numbers: EpisodeNumbers = "7,0-2".parse().unwrap();
        let had: Vec<_> = (0..10).filter(|number| numbers.has(*number)).collect();
        assert_eq!((had, numbers.count()), (vec![0, 1, 2, 7], 4));
    }
}
